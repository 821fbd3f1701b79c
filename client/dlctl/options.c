/* Command-line parsing from one table: see options.h. */
#include "client/dlctl/options.h"

#include "client/dlclient.h"
#include "client/dlctl/text.h"
#include "proto/common/word_list.h"
#include "proto/limits.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

enum option_kind {
    KIND_FLAG,
    KIND_TEXT,
    KIND_NUMBER,
    KIND_RANK,
    KIND_WORLD,
    KIND_INDICES,
    KIND_SECONDS, /* kept in ms, min and max too */
};

enum {
    VALUES_DEFAULT = 8,
    VALUES_MAX = 4096,
    INDICES_MAX = 4096,
    DRAWS_DEFAULT = 16,
    DRAWS_MAX = 64,
    INTERVAL_DEFAULT_MS = 1000,
};

static const struct option_row {
    const char *name;
    const char *arg; /* NULL: takes none */
    enum option_kind kind;
    size_t field; /* of struct options: bool, const char * or uint64_t */
    uint64_t min;
    uint64_t max;
    const char *meaning;
} OPTIONS[OPTION_COUNT] = {
#define OPTION(id, name, arg, kind, field, ...) \
    {name, arg, KIND_##kind, offsetof(struct options, field), __VA_ARGS__},
#include "client/dlctl/options.def"
};

/* getopt_long() values of the options: above any character. */
enum { OPTION_VALUE = 256 };

bool options_want_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

/* Strict decimal: no sign, no space, no other base. */
static bool options_parse_u64(const char *text, uint64_t *ret)
{
    uint64_t n = 0;

    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || mul_overflows(n, 10, &n) ||
            add_overflows(n, (uint64_t)(*text - '0'), &n))
            return false;
    }
    *ret = n;
    return true;
}

/* The next number of a list, which *list is moved past; false at its end. */
static bool options_next_index(const char **list, uint64_t *ret)
{
    const char *end = strchrnul(*list, ',');
    char digits[24];

    if (end == *list || (size_t)(end - *list) >= sizeof digits)
        return false;
    snprintf(digits, sizeof digits, "%.*s", (int)(end - *list), *list);
    if (!options_parse_u64(digits, ret))
        return false;
    *list = *end && end[1] ? end + 1 : end;
    return true;
}

static int options_set_indices(const char *arg, struct options *o, struct dl_error *err)
{
    const char *rest = arg;
    uint64_t n, count = 0;

    while (options_next_index(&rest, &n))
        count++;
    if (*rest || count == 0 || count > INDICES_MAX)
        return dl_error_set(err, EINVAL, "--indices",
                            "'%.64s' is not a list of 1 to %d whole numbers such as 3,5,7", arg,
                            INDICES_MAX);
    o->indices = arg;
    return 0;
}

/* "2", "0.25": up to three decimals, which are ms. */
static bool options_parse_ms(const char *text, uint64_t *ret)
{
    static const uint64_t scale[] = {1000, 100, 10, 1};
    const char *point = strchrnul(text, '.');
    size_t decimals = *point ? strlen(point + 1) : 0;
    uint64_t whole, part = 0;
    char digits[24];

    if (point == text || (size_t)(point - text) >= sizeof digits || decimals > 3 ||
        (*point && decimals == 0))
        return false;
    snprintf(digits, sizeof digits, "%.*s", (int)(point - text), text);
    if (!options_parse_u64(digits, &whole) || (decimals && !options_parse_u64(point + 1, &part)) ||
        mul_overflows(whole, 1000, &whole))
        return false;
    return !add_overflows(whole, part * scale[decimals], ret);
}

static int options_set_seconds(const struct option_row *row, const char *arg, struct options *o,
                               struct dl_error *err)
{
    char path[32];
    uint64_t ms;

    snprintf(path, sizeof path, "--%s", row->name);
    if (!options_parse_ms(arg, &ms) || ms < row->min || ms > row->max)
        return dl_error_set(err, EINVAL, path, "'%.64s' is not a time from %g to %g seconds", arg,
                            (double)row->min / 1000, (double)row->max / 1000);
    memcpy((char *)o + row->field, &ms, sizeof ms);
    return 0;
}

static int options_set_number(const struct option_row *row, const char *arg, struct options *o,
                              struct dl_error *err)
{
    char path[32];
    uint64_t n;

    snprintf(path, sizeof path, "--%s", row->name);
    if (!options_parse_u64(arg, &n) || n < row->min || n > row->max)
        return dl_error_set(err, EINVAL, path,
                            "'%s' is not a whole number from %" PRIu64 " to %" PRIu64 "%s", arg,
                            row->min, row->max,
                            row->kind == KIND_RANK    ? ", or all"
                            : row->kind == KIND_WORLD ? ", or cluster"
                                                      : "");
    memcpy((char *)o + row->field, &n, sizeof n);
    return 0;
}

static int options_set_option(enum option_id id, const char *arg, struct options *o,
                              struct dl_error *err)
{
    const struct option_row *row = &OPTIONS[id];
    static const bool yes = true;

    switch (row->kind) {
    case KIND_FLAG:
        memcpy((char *)o + row->field, &yes, sizeof yes);
        return 0;
    case KIND_TEXT:
        if (!*arg) {
            char path[32];

            snprintf(path, sizeof path, "--%s", row->name);
            return dl_error_set(err, EINVAL, path, "is empty: %s %s", path, row->arg);
        }
        memcpy((char *)o + row->field, &arg, sizeof arg);
        return 0;
    case KIND_RANK:
        o->has_rank = true;
        o->rank_all = strcmp(arg, "all") == 0;
        if (o->rank_all) {
            o->rank = 0;
            return 0;
        }
        return options_set_number(row, arg, o, err);
    case KIND_WORLD:
        o->has_world = true;
        if (strcmp(arg, "cluster") == 0) {
            o->world = DL_WORLD_CLUSTER;
            return 0;
        }
        return options_set_number(row, arg, o, err);
    case KIND_NUMBER:
        o->has_length |= id == OPTION_LENGTH;
        o->has_world |= id == OPTION_WORLD;
        o->has_seed |= id == OPTION_SEED;
        o->has_sample |= id == OPTION_SAMPLE;
        return options_set_number(row, arg, o, err);
    case KIND_INDICES:
        return options_set_indices(arg, o, err);
    case KIND_SECONDS:
        return options_set_seconds(row, arg, o, err);
    }
    return 0;
}

/* "--epoch E, --world W, ...": what a verb takes. */
static void options_list_options(const struct verb *verb, char *buf, size_t size)
{
    size_t at = 0;

    buf[0] = '\0';
    for (int id = 0; id < OPTION_COUNT; id++) {
        if (!(verb->options & BIT(id)) || at >= size)
            continue;
        at += (size_t)snprintf(buf + at, size - at, "%s--%s%s%s", at ? ", " : "", OPTIONS[id].name,
                               OPTIONS[id].arg ? " " : "", OPTIONS[id].arg ? OPTIONS[id].arg : "");
    }
}

/* The option that may be meant by a word that is none; NULL: none is near. A value may follow it.
 */
static const char *options_find_near(const struct verb *verb, const char *word)
{
    struct word_list names;
    char typed[32];

    if (strncmp(word, "--", 2) != 0)
        return NULL;
    snprintf(typed, sizeof typed, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    word_list_begin(&names, typed);
    for (int id = 0; id < OPTION_COUNT; id++)
        if (verb->options & BIT(id))
            word_list_add(&names, OPTIONS[id].name);
    return names.best;
}

/* `c` is what getopt_long() gave for a word it did not like; `word` is that word. */
static int options_bad_option(const struct verb *verb, int c, const char *word,
                              struct dl_error *err)
{
    const char *near;
    char list[512];
    int id = optopt - OPTION_VALUE;

    if (id >= 0 && id < OPTION_COUNT) {
        char path[32];
        snprintf(path, sizeof path, "--%s", OPTIONS[id].name);
        if (c == ':')
            return dl_error_set(err, EINVAL, path, "needs a value: %s %s", path, OPTIONS[id].arg);
        return dl_error_set(err, EINVAL, path, "takes no value");
    }
    if ((near = options_find_near(verb, word)))
        return dl_error_set(err, EINVAL, word, "%s has no such option; did you mean --%s?",
                            verb->name, near);
    options_list_options(verb, list, sizeof list);
    return dl_error_set(err, EINVAL, word, "%s has no such option; it has %s", verb->name, list);
}

static int options_check_operands(const struct verb *verb, int argc, char **argv, struct options *o,
                                  struct dl_error *err)
{
    int want = verb->operand ? 1 : 0;
    bool optional = want && verb->operand[0] == '[';
    bool more = want && strchr(verb->operand, ' ');
    bool many = more && strstr(verb->operand, " ...");

    if (more && argc > want) {
        o->more = argv + want;
        o->n_more = argc - want;
        argc = want;
    }
    if (!many && o->n_more > 1)
        return dl_error_set(err, EINVAL, o->more[1], "too many arguments: dlctl %s %s [options]",
                            verb->name, verb->operand);
    if ((argc < want && !optional) || (more && !o->n_more))
        return dl_error_set(err, EINVAL, verb->name, "needs %s: dlctl %s %s [options]",
                            verb->operand, verb->name, verb->operand);
    if (argc > want)
        return dl_error_set(err, EINVAL, argv[want], "too many arguments: dlctl %s%s%s [options]",
                            verb->name, want ? " " : "", want ? verb->operand : "");
    want = argc;
    if (want && !*argv[0])
        return dl_error_set(err, EINVAL, verb->name, "%s is empty", verb->operand);
    o->operand = want ? argv[0] : NULL;
    return 0;
}

/* A trainer's defaults: what its launcher says. */
static int options_take_environment(struct options *o, struct dl_error *err)
{
    struct dl_epoch_options said = {
        .size = sizeof said, .rank = (uint32_t)o->rank, .world = (uint32_t)o->world, .job = o->job};
    unsigned given = (o->has_rank ? (unsigned)DL_GIVEN_RANK : 0) |
                     (o->has_world ? (unsigned)DL_GIVEN_WORLD : 0) |
                     (o->job ? (unsigned)DL_GIVEN_JOB : 0);
    char why[DL_ERROR_MESSAGE_MAX];

    if (dl_epoch_options_from_env(&said, given, o->job_found, why, sizeof why) < 0)
        return dl_error_set(err, EINVAL, "environment", "%s", why);
    o->has_launcher = !o->has_world && said.world > 1;
    o->rank = said.rank;
    o->world = said.world;
    o->local_world = said.local_world;
    o->job = said.job;
    return 0;
}

/* What says where the first epoch begins: one of them. */
static int options_check_begin(const struct options *o, struct dl_error *err)
{
    if (o->state && o->epoch > 0)
        return dl_error_set(err, EINVAL, "--first-epoch",
                            "%" PRIu64
                            " given with --state, which contains the epoch; leave out one of them",
                            o->epoch);
    if (!o->resume)
        return 0;
    if (!o->job && o->world != DL_WORLD_CLUSTER)
        return dl_error_set(err, EINVAL, "--resume", "needs the job's name: --job NAME");
    if (o->state || o->epoch > 0)
        return dl_error_set(err, EINVAL, o->state ? "--state" : "--first-epoch",
                            "given with --resume, which sets the position; give one of them");
    if (o->rank_all)
        return dl_error_set(
            err, EINVAL, "--rank",
            "all with --resume: ranks may be in different epochs; resume each one separately");
    return 0;
}

static int options_check_ranges(const struct options *o, struct dl_error *err)
{
    uint64_t last;

    if (o->rank_all && o->world == DL_WORLD_CLUSTER)
        return dl_error_set(err, EINVAL, "--rank",
                            "all: a cluster's ranks are on several nodes; give one of this "
                            "node's");
    if (o->world > 0 && o->rank >= o->world)
        return dl_error_set(err, EINVAL, "--rank",
                            "%" PRIu64 " is not below the world size; with --world %" PRIu64
                            " ranks are 0 to %" PRIu64,
                            o->rank, o->world, o->world - 1);
    if (add_overflows(o->epoch, o->epochs - 1, &last))
        return dl_error_set(err, EINVAL, "--epochs",
                            "%" PRIu64 " epochs from %" PRIu64 " pass the last one, %" PRIu64,
                            o->epochs, o->epoch, UINT64_MAX);
    return options_check_begin(o, err);
}

/* What one batch is written to, and where it is. */
static int options_check_archive(struct options *o, struct dl_error *err)
{
    if (!o->output && !o->png && !o->html)
        return dl_error_set(err, EINVAL, "--output",
                            "needs the name of a file for the batch: -o batch.npz");
    if (o->state && o->epoch > 0)
        return dl_error_set(err, EINVAL, "--epoch",
                            "%" PRIu64
                            " given with --state, which contains the epoch; leave out one of them",
                            o->epoch);
    if (o->state && !o->has_world)
        o->world = 0;
    return 0;
}

/* One sample in several epochs, and what says which batch, are not to be had together. */
static int options_check_sample(struct options *o, struct dl_error *err)
{
    uint64_t last;

    if (!o->has_sample && o->draws)
        return dl_error_set(err, EINVAL, "--draws", "needs the sample's index: --sample I");
    if (!o->has_sample)
        return 0;
    if (o->indices || o->step)
        return dl_error_set(err, EINVAL, o->indices ? "--indices" : "--step",
                            "chooses a batch, and --sample one sample; give one of them");
    if (!o->draws)
        o->draws = DRAWS_DEFAULT;
    if (add_overflows(o->epoch, o->draws, &last))
        return dl_error_set(err, EINVAL, "--draws",
                            "%" PRIu64 " epochs from %" PRIu64 " pass the last one", o->draws,
                            o->epoch);
    return 0;
}

/* The options of `verb` as getopt_long() wants them. */
static void options_long_options(const struct verb *verb, struct option *ret)
{
    size_t n = 0;

    for (int id = 0; id < OPTION_COUNT; id++)
        if (verb->options & BIT(id))
            ret[n++] =
                (struct option){OPTIONS[id].name, OPTIONS[id].arg ? required_argument : no_argument,
                                NULL, OPTION_VALUE + id};
    ret[n] = (struct option){0};
}

int options_parse(const struct verb *verb, int argc, char **argv, struct options *ret,
                  struct dl_error *err)
{
    struct option longs[OPTION_COUNT + 1];
    int c, r;

    *ret = (struct options){.verb = verb,
                            .json = options_want_json(argc, argv),
                            .world = 1,
                            .epochs = 1,
                            .values = VALUES_DEFAULT,
                            .interval_ms = INTERVAL_DEFAULT_MS,
                            .steps = UINT64_MAX,
                            .at = UINT64_MAX,
                            .at_epoch = UINT64_MAX,
                            .batches = UINT64_MAX};
    options_long_options(verb, longs);
    opterr = 0;
    optind = 2;
    const uint64_t output = BIT(OPTION_OUTPUT) | BIT(OPTION_ARCHIVE) | BIT(OPTION_PREFIX);
    const char *shorts = verb->options & output ? ":ho:" : ":h";
    while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        if (c == 'h')
            c = OPTION_VALUE + OPTION_HELP;
        if (c == 'o')
            c = OPTION_VALUE + OPTION_OUTPUT;
        if (c == '?' || c == ':')
            return options_bad_option(verb, c, argv[optind - 1], err);
        r = options_set_option((enum option_id)(c - OPTION_VALUE), optarg, ret, err);
        if (r < 0)
            return r;
    }
    if (ret->help)
        return 0;
    r = options_check_operands(verb, argc - optind, argv + optind, ret, err);
    if (r == 0 && verb->options & BIT(OPTION_RUN_WORLD))
        r = options_take_environment(ret, err);
    if (r == 0 && verb->options & BIT(OPTION_ARCHIVE))
        r = options_check_archive(ret, err);
    if (r == 0 && verb->options & BIT(OPTION_PREFIX) && !ret->output)
        r = dl_error_set(err, EINVAL, "--output",
                         "needs the path of both files without .bin and .idx: -o corpus; or of one "
                         "for Arrow: -o corpus.arrow");
    if (r == 0 && verb->options & BIT(OPTION_SAMPLE))
        r = options_check_sample(ret, err);
    return r < 0 ? r : options_check_ranges(ret, err);
}

void options_help(const struct verb *verb)
{
    enum { LEFT = 21 };

    printf("Usage: dlctl %s%s%s [options]\n\n", verb->name, verb->operand ? " " : "",
           verb->operand ? verb->operand : "");
    text_wrap(stdout, verb->meaning, 0, 0, TEXT_WIDTH);
    printf("\nOptions:\n");
    for (int id = 0; id < OPTION_COUNT; id++) {
        char left[32];

        if (!(verb->options & BIT(id)))
            continue;
        snprintf(left, sizeof left, "--%s%s%s", OPTIONS[id].name, OPTIONS[id].arg ? " " : "",
                 OPTIONS[id].arg ? OPTIONS[id].arg : "");
        printf("  %-*s ", LEFT - 3, left);
        text_wrap(stdout, OPTIONS[id].meaning, max_u64(LEFT, strlen(left) + 3), LEFT, TEXT_WIDTH);
    }
    printf("\nExit status: 0 done, 1 failed, 2 usage. See dlctl(1).\n");
}
