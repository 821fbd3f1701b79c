/* Questions to the fetcher, and their answers. */
#include "daemon/data/files/remote_private.h"

#include "proto/common/clock.h"
#include "proto/fdpass.h"
#include "proto/shared/remote_environment.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <xxhash.h>

/* ---- packets: async-signal-safe ------------------------------------------------------------- */

int remote_send(struct remote *remote, const struct remote_question *question)
{
    size_t bytes = offsetof(struct remote_question, url) + strlen(question->url) + 1;

    if (getpid() != remote->pid) /* a copy would take the answers of its worker */
        return -EPIPE;
    while (send(remote->sock, question, bytes, MSG_NOSIGNAL) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return 0;
}

bool remote_note(uint64_t table[static REMOTE_EXPECTED_MAX], uint64_t hash)
{
    uint64_t *known = &table[hash % REMOTE_EXPECTED_MAX];
    bool was = *known == hash;

    *known = hash;
    return was;
}

static int remote_receive(struct remote *remote, struct remote_answer *ret, int *ret_fd)
{
    ssize_t n = fdpass_recv_packet(remote->sock, ret, sizeof *ret, 0, ret_fd);

    if (n < 0)
        return (int)n;
    if ((size_t)n <= offsetof(struct remote_answer, message)) /* 0: it has ended */
        return -EPIPE;
    ((char *)ret)[n - 1] = '\0';
    return 0;
}

void remote_ask(struct remote *remote, const struct remote_question *question,
                struct remote_answer *ret, int *ret_fd)
{
    static const char words[] =
        "dloader-worker: the daemon's process that fetches remote files has ended\n";
    uint64_t begun = clock_ns();
    int r = remote_send(remote, question);

    *ret_fd = -1;
    if (r == 0)
        r = remote_receive(remote, ret, ret_fd);
    remote->waited_ns += clock_ns() - begun;
    if (r == 0)
        return;
    (void)!write(STDERR_FILENO, words, sizeof words - 1);
    _exit(1);
}

/* ---- questions of a URL --------------------------------------------------------------------- */

/* What it does not have it could not send: this process has too many descriptors. */
static int remote_say_lost(const char *url, struct dl_error *err)
{
    return dl_error_set(err, EMFILE, url,
                        "no descriptor came with it; raise the limit of open "
                        "files (ulimit -n)");
}

static int remote_ask_url(struct remote *remote, enum remote_op op, const char *url,
                          struct remote_answer *ret, int *ret_fd, struct dl_error *err)
{
    struct remote_question question = {.op = op};
    size_t bytes = strlen(url) + 1;

    *ret_fd = -1;
    if (bytes > sizeof question.url)
        return dl_error_set(err, ENAMETOOLONG, url, "has %zu bytes; a URL may have %zu", bytes - 1,
                            sizeof question.url - 1);
    memcpy(question.url, url, bytes);
    remote_ask(remote, &question, ret, ret_fd);
    if (op == REMOTE_WHOLE || op == REMOTE_PAGED)
        remote->expected[XXH3_64bits(url, bytes) % REMOTE_EXPECTED_MAX] = 0;
    return ret->code ? dl_error_set(err, ret->code, url, "%s", ret->message) : 0;
}

static void remote_fill_stat(const struct remote_answer *answer, struct stat *ret)
{
    bool directory = answer->sort == REMOTE_DIRECTORY;

    *ret = (struct stat){.st_mode = directory ? S_IFDIR | 0555 : S_IFREG | 0444,
                         .st_nlink = 1,
                         .st_ino = answer->identity,
                         .st_size = (off_t)answer->bytes,
                         .st_mtim = {.tv_sec = answer->modified},
                         .st_ctim = {.tv_sec = answer->modified}};
}

int remote_stat(struct remote *remote, const char *url, struct stat *ret)
{
    struct remote_answer answer;
    int fd;
    int r = remote_ask_url(remote, REMOTE_STAT, url, &answer, &fd, NULL);

    close_fdp(&fd);
    if (r == 0)
        remote_fill_stat(&answer, ret);
    return r;
}

int remote_open(struct remote *remote, const char *url, int *ret_fd, struct stat *ret_st,
                struct dl_error *err)
{
    struct remote_answer answer;
    _cleanup_fd_ int fd = -1;
    int r = remote_ask_url(remote, REMOTE_WHOLE, url, &answer, &fd, err);

    if (r < 0)
        return r;
    if (fd < 0)
        return remote_say_lost(url, err);
    remote_fill_stat(&answer, ret_st);
    *ret_fd = steal_fd(&fd);
    return 0;
}

int remote_list(struct remote *remote, const char *url, void **ret, uint64_t *ret_bytes,
                struct dl_error *err)
{
    struct remote_answer answer;
    _cleanup_fd_ int fd = -1;
    int r = remote_ask_url(remote, REMOTE_LIST, url, &answer, &fd, err);

    *ret = NULL;
    *ret_bytes = 0;
    if (r < 0 || answer.bytes == 0)
        return r;
    void *entries = fd < 0 ? MAP_FAILED : mmap(NULL, answer.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (entries == MAP_FAILED)
        return fd < 0 ? remote_say_lost(url, err)
                      : dl_error_set(err, errno, url, "its list of %llu bytes cannot be mapped: %s",
                                     (ull)answer.bytes, strerror(errno));
    *ret = entries;
    *ret_bytes = answer.bytes;
    return 0;
}

void remote_expect_file(struct remote *remote, const char *url)
{
    struct remote_question question = {.op = remote->ahead ? REMOTE_AHEAD : REMOTE_EXPECT};
    size_t bytes = strlen(url) + 1;

    if (bytes > sizeof question.url ||
        remote_note(remote->ahead ? remote->said : remote->expected, XXH3_64bits(url, bytes)))
        return;
    question.bytes = UINT64_MAX;
    memcpy(question.url, url, bytes);
    (void)remote_send(remote, &question);
}

void remote_expect_list(struct remote *remote, const char *url)
{
    struct remote_question question = {.op = REMOTE_EXPECT};
    int len = snprintf(question.url, sizeof question.url, "%s/", url);

    if (len > 0 && (size_t)len < sizeof question.url)
        (void)remote_send(remote, &question);
}

void remote_expect_part(struct remote *remote, const char *url, uint64_t first, uint64_t bytes)
{
    struct remote_question question = {
        .op = remote->ahead ? REMOTE_AHEAD : REMOTE_EXPECT, .first = first, .bytes = bytes};
    size_t len = strlen(url) + 1;

    if (len > sizeof question.url)
        return;
    memcpy(question.url, url, len);
    (void)remote_send(remote, &question);
}

void remote_look_ahead(struct remote *remote, bool anew)
{
    if (anew)
        (void)remote_send(remote, &(struct remote_question){.op = REMOTE_ANEW});
    remote->ahead = true;
    memset(remote->said, 0, sizeof remote->said);
}

void remote_look_ahead_off(struct remote *remote)
{
    remote->ahead = false;
}

int remote_open_pages(struct remote *remote, const char *url, struct remote_answer *ret,
                      int *ret_fd, struct stat *ret_st, struct dl_error *err)
{
    int r = remote_ask_url(remote, REMOTE_PAGED, url, ret, ret_fd, err);

    if (r < 0)
        return r;
    if (*ret_fd < 0)
        return remote_say_lost(url, err);
    remote_fill_stat(ret, ret_st);
    return 0;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static const char *remote_none =
    "only workers of a daemon read it; open it with a daemon, or copy the file and give its path";

const char *remote_why_none(void)
{
    return remote_none;
}

/* A client's own host may be of another release, and has the client's environment. */
static bool remote_is_usable(const struct remote_offer *offer)
{
    bool same = offer->environment == 0 || offer->environment == remote_environment(false);

    if (offer->version != REMOTE_WIRE_VERSION)
        remote_none = "the daemon is of another build, and fetches no files for this program";
    else if (!same)
        remote_none = "the daemon was started with other values of AWS_… or HF_… variables than "
                      "this program; start one with the same, or none";
    return same && offer->version == REMOTE_WIRE_VERSION;
}

int remote_new(const struct remote_offer *offer, struct guard *guard, struct remote **ret)
{
    bool usable = remote_is_usable(offer);
    struct remote *remote = usable ? calloc(1, sizeof *remote) : NULL;

    *ret = remote;
    if (!remote) {
        close(offer->sock);
        return usable ? -ENOMEM : 0;
    }
    remote->sock = offer->sock;
    remote->guard = guard;
    remote->pid = getpid();
    return 0;
}

uint64_t remote_waited_ns(struct remote *remote, bool anew)
{
    uint64_t waited_ns = remote ? remote->waited_ns : 0;

    if (remote && anew)
        remote->waited_ns = 0;
    return waited_ns;
}

struct remote *remote_free(struct remote *remote)
{
    if (!remote)
        return NULL;
    assert(!remote->maps);
    close_fdp(&remote->sock);
    free(remote->ready);
    free(remote);
    return NULL;
}
