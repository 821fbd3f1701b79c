/*
 * Opening files for another user: rights as acl(5) has them, and the way to a file. That user is
 * one that nobody is, so that no privilege is needed: the test's own user owns all files.
 */
#include "daemon/data/files/reader.h"
#include "tests/lib/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <sys/xattr.h>

enum { READER = 70001, OWNER = 70002, GROUP = 70003, SECOND = 70004, FOREIGN = 70005 };
enum { R = READER_READ, X = READER_SEARCH, RX = READER_READ | READER_SEARCH };

static const uint32_t groups[] = {GROUP, SECOND};
static const struct reader reader = {.uid = READER, .groups = groups, .n_groups = 2};

/* ---- modes and lists ------------------------------------------------------------------------ */

TEST(test_modes)
{
    static const struct {
        uid_t uid;
        gid_t gid;
        mode_t mode;
        unsigned rights;
        bool may;
    } rows[] = {
        {READER, FOREIGN, 0400, R, true},   {READER, FOREIGN, 0044, R, false},
        {READER, GROUP, 0077, R, false},    {READER, FOREIGN, 0500, RX, true},
        {READER, FOREIGN, 0400, RX, false}, {OWNER, GROUP, 0040, R, true},
        {OWNER, SECOND, 0040, R, true},     {OWNER, GROUP, 0704, R, false},
        {OWNER, GROUP, 0010, X, true},      {OWNER, FOREIGN, 0004, R, true},
        {OWNER, FOREIGN, 0770, R, false},   {OWNER, FOREIGN, 0771, X, true},
        {OWNER, FOREIGN, 0, R, false},      {0, 0, 0700, R, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct stat st = {.st_uid = rows[i].uid, .st_gid = rows[i].gid, .st_mode = rows[i].mode};
        if (reader_may(&reader, &st, NULL, 0, rows[i].rights) != rows[i].may)
            fail_msg("row %zu", i);
    }
}

struct entry {
    uint16_t tag, rights;
    uint32_t id;
};
enum { USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, GROUP_ENTRY = 8, MASK = 16, OTHER = 32 };

struct list {
    uint32_t version;
    struct entry entries[8];
};

static size_t list_bytes(const struct list *list)
{
    size_t n = 0;

    while (n < ARRAY_SIZE(list->entries) && list->entries[n].tag)
        n++;
    return sizeof list->version + n * sizeof list->entries[0];
}

TEST(test_lists)
{
    static const struct {
        gid_t gid;
        struct list list;
        unsigned rights;
        bool may;
    } rows[] = {
        /* what the mode would give has no say */
        {FOREIGN, {2, {{USER_OBJ, 7, 0}, {GROUP_OBJ, 0, 0}, {OTHER, 0, 0}}}, R, false},
        {FOREIGN, {2, {{USER_OBJ, 0, 0}, {GROUP_OBJ, 0, 0}, {OTHER, 4, 0}}}, R, true},
        /* who is named: that entry alone, and the mask */
        {FOREIGN, {2, {{USER, 4, READER}, {MASK, 4, 0}, {OTHER, 0, 0}}}, R, true},
        {FOREIGN, {2, {{USER, 4, READER}, {MASK, 1, 0}, {OTHER, 4, 0}}}, R, false},
        {FOREIGN, {2, {{USER, 0, READER}, {MASK, 7, 0}, {OTHER, 4, 0}}}, R, false},
        {GROUP, {2, {{USER, 0, READER}, {GROUP_OBJ, 4, 0}, {MASK, 7, 0}, {OTHER, 4, 0}}}, R, false},
        {FOREIGN, {2, {{USER, 4, OWNER}, {MASK, 7, 0}, {OTHER, 0, 0}}}, R, false},
        /* groups: one that has all is enough; one that matches keeps from others' rights */
        {GROUP, {2, {{GROUP_OBJ, 4, 0}, {OTHER, 0, 0}}}, R, true},
        {GROUP, {2, {{GROUP_OBJ, 4, 0}, {MASK, 0, 0}, {OTHER, 4, 0}}}, R, false},
        {GROUP, {2, {{GROUP_OBJ, 0, 0}, {GROUP_ENTRY, 4, SECOND}, {MASK, 7, 0}}}, R, true},
        {FOREIGN, {2, {{GROUP_OBJ, 7, 0}, {GROUP_ENTRY, 4, SECOND}, {MASK, 7, 0}}}, R, true},
        {FOREIGN, {2, {{GROUP_ENTRY, 0, GROUP}, {MASK, 7, 0}, {OTHER, 7, 0}}}, R, false},
        {FOREIGN,
         {2, {{GROUP_ENTRY, 4, GROUP}, {GROUP_ENTRY, 1, SECOND}, {OTHER, 7, 0}}},
         RX,
         false},
        {FOREIGN, {2, {{GROUP_ENTRY, 5, GROUP}, {GROUP_ENTRY, 1, SECOND}}}, RX, true},
        {FOREIGN, {2, {{GROUP_ENTRY, 7, FOREIGN}, {MASK, 7, 0}, {OTHER, 1, 0}}}, X, true},
        {FOREIGN, {2, {{GROUP_ENTRY, 7, FOREIGN}, {MASK, 7, 0}, {OTHER, 1, 0}}}, R, false},
        /* no list at all, or one of another time */
        {FOREIGN, {1, {{OTHER, 7, 0}}}, R, false},
        {FOREIGN, {2, {{0}}}, R, false},
    };
    static const struct list all = {2, {{OTHER, 7, 0}}};
    struct stat st = {.st_uid = OWNER, .st_gid = FOREIGN, .st_mode = 0777};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        st.st_gid = rows[i].gid;
        if (reader_may(&reader, &st, &rows[i].list, list_bytes(&rows[i].list), rows[i].rights) !=
            rows[i].may)
            fail_msg("row %zu", i);
    }
    for (size_t bytes = 0; bytes <= list_bytes(&all); bytes++)
        assert_int_equal(reader_may(&reader, &st, &all, bytes, R), bytes == list_bytes(&all));
    st.st_uid = READER; /* the owner's rights are the mode's */
    assert_true(reader_may(&reader, &st, &rows[0].list, list_bytes(&rows[0].list), R));
}

/* ---- the way -------------------------------------------------------------------------------- */

static char top[PATH_MAX / 4];

static const char *in(const char *name)
{
    static char paths[4][PATH_MAX];
    static unsigned turn;
    char *path = paths[turn++ % 4];

    snprintf(path, PATH_MAX, "%s/%s", top, name);
    return path;
}

static void directory(const char *name, mode_t mode)
{
    assert_int_equal(mkdir(in(name), 0700), 0);
    assert_int_equal(chmod(in(name), mode), 0);
}

static void file(const char *name, mode_t mode)
{
    int fd = open(in(name), O_CREAT | O_WRONLY, 0600);

    assert_true(fd >= 0 && write(fd, name, strlen(name)) == (ssize_t)strlen(name));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* False: $TMPDIR is where no other user gets, and this cannot be tested. */
static bool make_tree(void)
{
    char real[PATH_MAX];

    assert_non_null(realpath(harness_tmpdir(), real));
    assert_true(strlen(real) < sizeof top);
    memcpy(top, real, strlen(real) + 1);
    assert_int_equal(chmod(top, 0755), 0);
    struct reader_place place;
    int fd;
    if (reader_find(&reader, in("."), true, &place, &fd) < 0) {
        print_message("other users have no way to %s: %s\n", top, place.at);
        return false;
    }
    close(fd);
    directory("open", 0755);
    directory("open/closed", 0700);
    directory("open/listed", 0744); /* read, not searched */
    directory("open/passed", 0711); /* searched, not read */
    file("open/file", 0644);
    file("open/secret", 0600);
    file("open/closed/file", 0644);
    file("open/listed/file", 0644);
    file("open/passed/file", 0644);
    assert_int_equal(symlink("file", in("open/link")), 0);
    assert_int_equal(symlink(in("open/file"), in("open/absolute")), 0);
    assert_int_equal(symlink("..", in("open/passed/up")), 0);
    assert_int_equal(symlink("loop", in("open/loop")), 0);
    assert_int_equal(symlink("../file", in("open/closed/back")), 0);
    assert_int_equal(symlink("closed/file", in("open/into")), 0);
    assert_int_equal(symlink("none", in("open/dangling")), 0);
    assert_int_equal(mkfifo(in("open/fifo"), 0644), 0);
    return true;
}

/* It was made by the first test. */
static bool has_tree(void)
{
    return access(in("open/fifo"), F_OK) == 0;
}

TEST(test_ways)
{
    static const struct {
        const char *path;
        int flags;
        int code;
        bool denied;
        const char *at; /* where it led */
    } rows[] = {
        {"open/file", 0, 0, false, "open/file"},
        {"open//./file", 0, 0, false, "open/file"},
        {"open/passed/../file", 0, 0, false, "open/file"},
        {"open/link", 0, 0, false, "open/file"},
        {"open/absolute", 0, 0, false, "open/file"},
        {"open/passed/up/link", 0, 0, false, "open/file"},
        {"open/passed/file", 0, 0, false, "open/passed/file"},
        {"open/fifo", 0, 0, false, "open/fifo"},
        {"open", O_DIRECTORY, 0, false, "open"},
        {"open/", O_DIRECTORY, 0, false, "open"},
        {"open/listed", O_DIRECTORY, 0, false, "open/listed"},
        {"open/secret", 0, EACCES, true, "open/secret"},
        {"open/closed", O_DIRECTORY, EACCES, true, "open/closed"},
        {"open/passed", O_DIRECTORY, EACCES, true, "open/passed"},
        {"open/listed/file", 0, EACCES, true, "open/listed"},
        {"open/closed/file", 0, EACCES, true, "open/closed"},
        /* the same answer whether something is there or not */
        {"open/closed/none", 0, EACCES, true, "open/closed"},
        {"open/closed/back", 0, EACCES, true, "open/closed"},
        {"open/closed/../file", 0, EACCES, true, "open/closed"},
        {"open/into", 0, EACCES, true, "open/closed"},
        {"open/none", 0, ENOENT, false, "open"},
        {"open/dangling", 0, ENOENT, false, "open"},
        {"open/loop", 0, ELOOP, false, NULL},
        {"open/file/x", 0, ENOTDIR, false, "open/file"},
        {"open/file/", 0, ENOTDIR, false, "open/file"},
        {"open/file", O_DIRECTORY, ENOTDIR, false, "open/file"},
    };

    if (!make_tree())
        return;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct reader_place place;
        int fd = -1, r = reader_open(&reader, in(rows[i].path), rows[i].flags, &place, &fd);

        if (r != -rows[i].code || (r < 0 && place.denied != rows[i].denied))
            fail_msg("%s: %s%s", rows[i].path, strerror(-r), place.denied ? ", denied" : "");
        if (rows[i].at)
            assert_string_equal(place.at, in(rows[i].at));
        assert_int_equal(fd >= 0, r == 0);
        if (fd >= 0)
            close(fd);
    }
}

TEST(test_what_is_not_followed)
{
    struct reader_place place;
    struct stat st;
    int fd;

    if (!has_tree())
        return;
    assert_int_equal(reader_find(&reader, in("open/dangling"), false, &place, &fd), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    close(fd);
    assert_int_equal(reader_find(&reader, in("open/secret"), true, &place, &fd), 0);
    close(fd); /* who may not read it may know of it */
    assert_int_equal(reader_find(&reader, "/", true, &place, &fd), 0);
    assert_string_equal(place.at, "/");
    close(fd);
    assert_int_equal(reader_find(&reader, "relative", true, &place, &fd), -EINVAL);
}

/* A list on a real file: one that shuts out who the mode lets in, and the other way round. */
TEST(test_a_files_list)
{
    static const struct list out = {2,
                                    {{USER_OBJ, 6, UINT32_MAX},
                                     {USER, 0, READER},
                                     {GROUP_OBJ, 4, UINT32_MAX},
                                     {MASK, 4, UINT32_MAX},
                                     {OTHER, 4, UINT32_MAX}}};
    static const struct list let_in = {2,
                                       {{USER_OBJ, 6, UINT32_MAX},
                                        {USER, 4, READER},
                                        {GROUP_OBJ, 0, UINT32_MAX},
                                        {MASK, 4, UINT32_MAX},
                                        {OTHER, 0, UINT32_MAX}}};
    struct reader_place place;
    int fd = -1;

    if (!has_tree())
        return;
    file("open/shut", 0644);
    if (setxattr(in("open/shut"), "system.posix_acl_access", &out, list_bytes(&out), 0) < 0) {
        print_message("no access control lists on %s: %s\n", top, strerror(errno));
        return;
    }
    assert_int_equal(reader_open(&reader, in("open/shut"), 0, &place, &fd), -EACCES);
    file("open/let-in", 0600);
    assert_int_equal(
        setxattr(in("open/let-in"), "system.posix_acl_access", &let_in, list_bytes(&let_in), 0), 0);
    assert_int_equal(reader_open(&reader, in("open/let-in"), 0, &place, &fd), 0);
    close(fd);
}

/* ---- a name that changes -------------------------------------------------------------------- */

enum { ROUNDS = 2000 };

/* Until it is killed: the name is one's own file, a link to the secret, and the secret itself. */
static void keep_swapping(void)
{
    for (;;) {
        (void)!rename(in("open/mine"), in("open/name"));
        (void)!symlink("secret", in("open/new"));
        (void)!rename(in("open/new"), in("open/name"));
        (void)!link(in("open/secret"), in("open/new"));
        (void)!rename(in("open/new"), in("open/name"));
        (void)!link(in("open/public"), in("open/mine"));
    }
}

TEST(test_a_name_that_is_swapped)
{
    struct reader_place place;
    unsigned opened = 0, refused = 0;

    if (!has_tree())
        return;
    file("open/public", 0644);
    file("open/mine", 0644);
    pid_t pid = fork();
    if (pid == 0)
        keep_swapping();
    for (unsigned i = 0; i < ROUNDS || opened == 0 || refused == 0; i++) {
        struct stat st;
        int fd, r = reader_open(&reader, in("open/name"), 0, &place, &fd);

        if (r < 0) {
            refused++;
            continue;
        }
        opened++;
        assert_int_equal(fstat(fd, &st), 0);
        assert_true(st.st_mode & S_IROTH);
        close(fd);
        sched_yield();
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}
