/*
 * A store that is far away, as a benchmark of remote files needs it: the files below a directory as
 * S3 gives them (GET and HEAD of an object or a range of it, ListObjectsV2), for anybody, each
 * answer so many milliseconds after its request, and all answers together at so many megabits a
 * second. It costs little of the processor, which it shares with what is measured.
 *
 *   far_store DIRECTORY DELAY_MS MBIT_S
 *
 * Says "port N" when it listens. Answers each line on standard input with a line of JSON: requests,
 * and the bytes of each tenth of a second, the one that has begun, too, since the line before; ends
 * with it. What a connection costs to set up is not delayed.
 */
#include "tests/bench/bench.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

enum {
    CONNS_MAX = 4096, /* descriptors */
    HEAD_MAX = 8192,
    CHUNK = 64 * 1024, /* of an answer, by turns */
    TENTHS_MAX = 6000,
    PAGE = 1000,
};

struct conn {
    int fd, file; /* file -1: the answer is `text` alone */
    char in[HEAD_MAX];
    size_t n_in;
    char *text; /* owned */
    size_t text_at, text_len;
    off_t at;
    uint64_t left; /* of the file */
    double due;
    struct conn *next; /* of those that wait, or those that are answered */
};

struct queue {
    struct conn *first, **end;
};

static struct {
    const char *root;
    double delay_s, bytes_s, tokens, filled, began;
    int poll;
    struct queue waiting, sending;
    uint64_t requests, tenths[TENTHS_MAX];
} store;

static void queue_put(struct queue *queue, struct conn *conn)
{
    conn->next = NULL;
    *queue->end = conn;
    queue->end = &conn->next;
}

static struct conn *queue_take(struct queue *queue)
{
    struct conn *conn = queue->first;

    queue->first = conn->next;
    if (!queue->first)
        queue->end = &queue->first;
    return conn;
}

static void watch(const struct conn *conn, int op)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = (void *)conn};

    (void)epoll_ctl(store.poll, op, conn->fd, &event);
}

static void conn_close(struct conn *conn)
{
    close_fdp(&conn->file);
    close_fdp(&conn->fd);
    free(conn->text);
    free(conn);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void answer_text(struct conn *conn, const char *status, const char *more, char *body)
{
    size_t len = body ? strlen(body) : 0;

    conn->text_len = (size_t)asprintf(
        &conn->text,
        "HTTP/1.1 %s\r\nContent-Type: application/xml\r\n%sContent-Length: %zu\r\n\r\n%s", status,
        more, len, body ? body : "");
    free(body);
}

/* The value of a header, or NULL; of a query's key likewise. */
static const char *value_of(const char *in, const char *key)
{
    const char *found = strcasestr(in, key);

    return found ? found + strlen(key) : NULL;
}

static void unescape(char *text)
{
    char *to = text;
    unsigned byte;

    for (; *text; text++) {
        if (*text == '%' && sscanf(text + 1, "%2x", &byte) == 1) {
            *to++ = (char)byte;
            text += 2;
        } else {
            *to++ = *text;
        }
    }
    *to = '\0';
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* What is in the folder that the prefix names. */
static void answer_list(struct conn *conn, const char *query)
{
    char prefix[1024] = "", path[2048], *body;
    const char *given = value_of(query, "prefix="), *token = value_of(query, "continuation-token=");
    struct dirent **names = NULL;
    size_t len;

    if (given)
        (void)sscanf(given, "%1023[^& ]", prefix);
    unescape(prefix);
    snprintf(path, sizeof path, "%s/%s", store.root, prefix);
    int n = scandir(path, &names, NULL, by_name), from = token ? atoi(token) : 0, i;
    FILE *out = open_memstream(&body, &len);
    fprintf(out, "<ListBucketResult>");
    for (i = from; i < n && i < from + PAGE; i++) {
        struct stat st;

        snprintf(path, sizeof path, "%s/%s%s", store.root, prefix, names[i]->d_name);
        if (names[i]->d_name[0] == '.' || stat(path, &st) < 0)
            continue;
        if (S_ISDIR(st.st_mode))
            fprintf(out, "<CommonPrefixes><Prefix>%s%s/</Prefix></CommonPrefixes>", prefix,
                    names[i]->d_name);
        else
            fprintf(out,
                    "<Contents><Key>%s%s</Key><Size>%lld</Size>"
                    "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>",
                    prefix, names[i]->d_name, (long long)st.st_size);
    }
    if (i < n)
        fprintf(out, "<NextContinuationToken>%d</NextContinuationToken>", i);
    fprintf(out, "<IsTruncated>%s</IsTruncated></ListBucketResult>", i < n ? "true" : "false");
    fclose(out);
    for (i = 0; i < n; i++)
        free(names[i]);
    free(names);
    answer_text(conn, "200 OK", "", body);
}

static void answer_object(struct conn *conn, char *name, bool head)
{
    char path[2048], etag[64], part[128] = "";
    const char *range = value_of(conn->in, "\nrange: bytes="), *known;
    unsigned long long first = 0, last = UINT64_MAX;
    struct stat st;

    unescape(name);
    snprintf(path, sizeof path, "%s/%s", store.root, name);
    if ((conn->file = open(path, O_RDONLY | O_CLOEXEC)) < 0 || fstat(conn->file, &st) < 0 ||
        !S_ISREG(st.st_mode)) {
        close_fdp(&conn->file);
        answer_text(conn, "404 Not Found", "", strdup("<Error><Code>NoSuchKey</Code></Error>"));
        return;
    }
    uint64_t size = (uint64_t)st.st_size;
    snprintf(etag, sizeof etag, "\"%llx-%llx\"", (unsigned long long)st.st_ino,
             (unsigned long long)st.st_mtim.tv_sec);
    known = value_of(conn->in, "\nif-none-match: ");
    if (known && strncmp(known, etag, strlen(etag)) == 0) {
        close_fdp(&conn->file);
        answer_text(conn, "304 Not Modified", "", NULL);
        return;
    }
    if (range)
        (void)sscanf(range, "%llu-%llu", &first, &last);
    last = last < size ? last : size - 1;
    if (range)
        snprintf(part, sizeof part, "Content-Range: bytes %llu-%llu/%" PRIu64 "\r\n", first, last,
                 size);
    conn->at = (off_t)first;
    conn->left = head ? 0 : last + 1 - first;
    conn->text_len = (size_t)asprintf(
        &conn->text,
        "HTTP/1.1 %s\r\nContent-Type: application/octet-stream\r\nAccept-Ranges: bytes\r\n"
        "ETag: %s\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n%sContent-Length: "
        "%llu\r\n\r\n",
        range ? "206 Partial Content" : "200 OK", etag, part, last + 1 - first);
}

/* One request; the path begins with the bucket's name, whatever it is. */
static void conn_answer(struct conn *conn)
{
    char method[8], target[4096];

    store.requests++;
    conn->text_at = 0;
    if (sscanf(conn->in, "%7s /%4095s", method, target) != 2) {
        answer_text(conn, "400 Bad Request", "", NULL);
        return;
    }
    char *query = strchr(target, '?');
    if (query)
        *query++ = '\0';
    char *name = strchr(target, '/');
    if (query && strstr(query, "list-type="))
        answer_list(conn, query);
    else if (name)
        answer_object(conn, name + 1, strcmp(method, "HEAD") == 0);
    else
        answer_text(conn, "200 OK", "", NULL); /* is there such a bucket? */
}

/* ---- time ----------------------------------------------------------------------------------- */

static void count(double now, size_t bytes)
{
    uint64_t tenth = (uint64_t)((now - store.began) * 10);

    store.tokens -= (double)bytes;
    if (tenth < TENTHS_MAX)
        store.tenths[tenth] += bytes;
}

/* A turn. 1: there is more of it; 0: it is whole; -1: nobody wants it. */
static int conn_send(struct conn *conn, double now)
{
    ssize_t n;

    if (conn->text_at < conn->text_len) {
        n = send(conn->fd, conn->text + conn->text_at, conn->text_len - conn->text_at,
                 MSG_NOSIGNAL | MSG_DONTWAIT | (conn->left ? MSG_MORE : 0));
        conn->text_at += n > 0 ? (size_t)n : 0;
    } else {
        n = sendfile(conn->fd, conn->file, &conn->at, conn->left < CHUNK ? conn->left : CHUNK);
        conn->left -= n > 0 ? (uint64_t)n : 0;
    }
    if (n < 0)
        return errno == EAGAIN ? 1 : -1;
    count(now, (size_t)n);
    return conn->text_at < conn->text_len || conn->left > 0;
}

static void store_send(double now)
{
    double most = store.bytes_s * 0.02;

    store.tokens += (now - store.filled) * store.bytes_s;
    store.tokens = store.tokens < most ? store.tokens : most;
    store.filled = now;
    while (store.waiting.first && store.waiting.first->due <= now)
        queue_put(&store.sending, queue_take(&store.waiting));
    /* Sockets that are full have no part in the turn. */
    struct queue full = {.end = &full.first};
    while (store.sending.first && store.tokens > 0) {
        struct conn *conn = queue_take(&store.sending);
        uint64_t left = conn->left + conn->text_len - conn->text_at;
        int r = conn_send(conn, now);

        if (r > 0) {
            queue_put(left == conn->left + conn->text_len - conn->text_at ? &full : &store.sending,
                      conn);
        } else if (r < 0) {
            conn_close(conn);
        } else {
            close_fdp(&conn->file);
            free(conn->text);
            conn->text = NULL;
            watch(conn, EPOLL_CTL_MOD);
        }
    }
    while (full.first)
        queue_put(&store.sending, queue_take(&full));
}

static void conn_read(struct conn *conn, double now)
{
    ssize_t n =
        recv(conn->fd, conn->in + conn->n_in, sizeof conn->in - 1 - conn->n_in, MSG_DONTWAIT);

    if (n <= 0 && !(n < 0 && errno == EAGAIN)) {
        conn_close(conn);
        return;
    }
    conn->n_in += n > 0 ? (size_t)n : 0;
    conn->in[conn->n_in] = '\0';
    if (!strstr(conn->in, "\r\n\r\n")) {
        watch(conn, EPOLL_CTL_MOD);
        return;
    }
    conn_answer(conn);
    conn->n_in = 0;
    conn->due = now + store.delay_s;
    queue_put(&store.waiting, conn);
}

static void store_accept(int listener)
{
    struct conn *conn = calloc(1, sizeof *conn);
    int one = 1;

    conn->file = -1;
    conn->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    watch(conn, EPOLL_CTL_ADD);
}

/* False: it is the end. */
static bool store_tell(double now)
{
    char line[16];

    if (read(STDIN_FILENO, line, sizeof line) <= 0)
        return false;
    uint64_t n = (uint64_t)((now - store.began) * 10);
    printf("{\"requests\": %" PRIu64 ", \"tenths\": [", store.requests);
    for (uint64_t i = 0; i <= n && i < TENTHS_MAX; i++)
        printf("%s%" PRIu64, i ? ", " : "", store.tenths[i]);
    printf("]}\n");
    fflush(stdout);
    memset(store.tenths, 0, sizeof store.tenths);
    store.requests = 0;
    store.began = now;
    return true;
}

static int store_listen(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) < 0 || listen(fd, CONNS_MAX) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) < 0)
        return -1;
    printf("port %u\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv)
{
    struct epoll_event events[64], event = {.events = EPOLLIN};
    uint64_t delay_ms, mbit_s;
    int listener, input;

    if (argc != 4 || !bench_parse_u64(argv[2], 60000, &delay_ms) ||
        !bench_parse_u64(argv[3], 1000000, &mbit_s)) {
        fprintf(stderr, "usage: far_store DIRECTORY DELAY_MS MBIT_S\n");
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    store.root = argv[1];
    store.delay_s = (double)delay_ms / 1000;
    store.bytes_s = (double)mbit_s * 125000;
    store.waiting.end = &store.waiting.first;
    store.sending.end = &store.sending.first;
    store.poll = epoll_create1(EPOLL_CLOEXEC);
    store.began = store.filled = bench_now_s();
    event.data.ptr = &listener;
    if ((listener = store_listen()) < 0 ||
        epoll_ctl(store.poll, EPOLL_CTL_ADD, listener, &event) < 0)
        return 1;
    event.data.ptr = &input;
    (void)epoll_ctl(store.poll, EPOLL_CTL_ADD, STDIN_FILENO, &event);
    for (;;) {
        bool busy = store.waiting.first || store.sending.first;
        int n = epoll_wait(store.poll, events, ARRAY_SIZE(events), busy ? 1 : -1);
        double now = bench_now_s();

        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == &listener)
                store_accept(listener);
            else if (events[i].data.ptr != &input)
                conn_read(events[i].data.ptr, now);
            else if (!store_tell(now))
                return 0;
        }
        store_send(now);
    }
}
