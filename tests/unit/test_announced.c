/* Which helpers are there, by what a store lists and when. */
#include "tests/lib/harness.h"

#include "daemon/cluster/world/announced.h"

#include <stdio.h>

#define SECOND UINT64_C(1000000000)

enum { ITEMS_MAX = 8, SILENCE_S = 20 };

/* "ADDRESS=WORD ..." as items; `text` is cut up. */
static uint32_t items_of(char *text, struct backend_item items[static ITEMS_MAX])
{
    uint32_t n = 0;

    for (char *at, *one = strtok_r(text, " ", &at); one; one = strtok_r(NULL, " ", &at)) {
        char *word = strchr(one, '=');

        *word++ = '\0';
        items[n++] = (struct backend_item){one, {(const uint8_t *)word, (uint32_t)strlen(word)}};
    }
    return n;
}

static void check_look(struct announced *announced, uint64_t second, const char *listed,
                       const char *there, const char *gone, bool changed)
{
    struct backend_item items[ITEMS_MAX];
    struct config_dirs list;
    char text[128], said[128] = "", dropped[128] = "";
    const char *address;
    uint32_t at = 0;

    (void)snprintf(text, sizeof text, "%s", listed);
    uint32_t n = items_of(text, items);
    assert_int_equal(announced_look(announced, items, n, second * SECOND, SILENCE_S * SECOND),
                     changed);
    announced_there(announced, &list);
    for (uint32_t i = 0; i < list.n; i++)
        (void)snprintf(said + strlen(said), sizeof said - strlen(said), " %s", list.paths[i]);
    while ((address = announced_next_gone(announced, &at)))
        (void)snprintf(dropped + strlen(dropped), sizeof dropped - strlen(dropped), " %s", address);
    config_dirs_deinit(&list);
    assert_string_equal(said, there);
    assert_string_equal(dropped, gone);
}

TEST(test_looks)
{
    /* One after another. */
    static const struct {
        uint64_t second;
        const char *listed, *there, *gone;
        bool changed;
    } rows[] = {
        {100, "", "", "", false},
        {105, "b:2=7", " b:2", "", true},
        {110, "a:1=1 b:2=8", " a:1 b:2", "", true}, /* another comes */
        {115, "a:1=2 b:2=8", " a:1 b:2", "", false},
        {129, "a:1=5 b:2=8", " a:1 b:2", "", false},
        {130, "a:1=5 b:2=8", " a:1", " b:2", true},  /* silent for 20 s: killed */
        {135, "a:1=6 b:2=8", " a:1", " b:2", false}, /* the store still has it */
        {140, "a:1=7", " a:1", "", false},
        {145, "a:1=8 b:2=8", " a:1 b:2", "", true},  /* as if it was never seen */
        {150, "a:1=9 b:2=1", " a:1 b:2", "", false}, /* started again at the same address */
        {155, "", " a:1 b:2", "", false},            /* the store was started again, empty */
        {160, "a:1=11", " a:1 b:2", "", false},
        {165, "a:1=12 b:2=4", " a:1 b:2", "", false},
        {185, "a:1=12 b:2=4", "", " a:1 b:2", true}, /* nobody beats */
        {190, "a:1=13 b:2=4", " a:1", " b:2", true}, /* it was only slow */
        {250, "", "", "", true},
        {255, "a:1=13", " a:1", "", true},
    };
    struct announced announced = {0};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        check_look(&announced, rows[i].second, rows[i].listed, rows[i].there, rows[i].gone,
                   rows[i].changed);
    announced_deinit(&announced);
}

/* What is no address is nobody's, whoever wrote it. */
TEST(test_strangers)
{
    struct announced announced = {0};

    check_look(&announced, 1, "host=1 host:0=1 /a:1=1 [::1]:9=1 host:70000=1", " [::1]:9", "",
               true);
    announced_deinit(&announced);
}

TEST(test_too_many)
{
    static struct backend_item items[ANNOUNCED_MAX + 1];
    static char names[ANNOUNCED_MAX + 1][16];
    struct announced announced = {0};
    struct config_dirs list;

    for (uint32_t i = 0; i <= ANNOUNCED_MAX; i++) {
        (void)snprintf(names[i], sizeof names[i], "h%04u:7071", i);
        items[i] = (struct backend_item){names[i], {(const uint8_t *)"1", 1}};
    }
    assert_true(announced_look(&announced, items, ANNOUNCED_MAX + 1, SECOND, SECOND));
    announced_there(&announced, &list);
    assert_int_equal(list.n, ANNOUNCED_MAX);
    assert_string_equal(list.paths[ANNOUNCED_MAX - 1], names[ANNOUNCED_MAX - 1]);
    config_dirs_deinit(&list);
    announced_deinit(&announced);
}
