/* The link between a daemon's stand-in and a helper: bytes in any pieces, proofs, and who is asked.
 */
#include "tests/lib/harness.h"

#include "daemon/helper/alike.h"
#include "daemon/helper/far_files.h"
#include "daemon/helper/files_seen.h"
#include "daemon/helper/link.h"
#include "daemon/helper/link_slot.h"
#include "daemon/helper/near_files.h"
#include "daemon/helper/proof.h"
#include "daemon/helper/sent.h"
#include "daemon/serve/pool/helpers.h"

#include <errno.h>
#include <sys/socket.h>

/* ---- frames --------------------------------------------------------------------------------- */

struct pair {
    struct link near, far;
};

static void pair_open(struct pair *pair)
{
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    link_init(&pair->near, fds[0]);
    link_init(&pair->far, fds[1]);
}

static void pair_close(struct pair *pair)
{
    link_deinit(&pair->near);
    link_deinit(&pair->far);
}

static enum link_news read_news(struct link *link)
{
    enum link_news news;

    assert_int_equal(link_read(link, &news), 0);
    return news;
}

/* More than a socket takes at once, behind a message; and the next message behind that. */
TEST(test_body)
{
    enum { BYTES = 3 << 20 };
    uint8_t *body = malloc(BYTES), *got = calloc(1, BYTES);
    struct pair pair;
    struct dl_message msg;
    enum link_news news = LINK_NOTHING;

    (void)state;
    assert_non_null(body);
    assert_non_null(got);
    for (size_t i = 0; i < BYTES; i++)
        body[i] = (uint8_t)(i * 7 + (i >> 11));
    pair_open(&pair);
    assert_int_equal(
        link_say(&pair.far, &(struct dl_message){.number = DL_MSG_H_DONE,
                                                 .h_done = {.task = 5, .bytes = BYTES}}),
        0);
    link_add_body(&pair.far, (struct dl_span){body, BYTES});
    assert_int_equal(link_write(&pair.far), 0);
    assert_false(link_is_idle(&pair.far));
    assert_int_equal(read_news(&pair.near), LINK_FRAME);
    assert_int_equal(message_decode(link_payload(&pair.near).data, link_payload(&pair.near).len,
                                    FROM_HELPER, &msg, NULL),
                     0);
    assert_int_equal(msg.h_done.bytes, BYTES);
    link_expect(&pair.near, got, BYTES);
    while (news != LINK_RAW) {
        assert_int_equal(link_write(&pair.far), 0);
        news = read_news(&pair.near);
    }
    assert_true(link_is_idle(&pair.far));
    assert_memory_equal(got, body, BYTES);
    assert_int_equal(link_say(&pair.far, &(struct dl_message){.number = DL_MSG_H_ALIVE}), 0);
    assert_int_equal(link_write(&pair.far), 0);
    assert_int_equal(read_news(&pair.near), LINK_FRAME);
    assert_int_equal(read_news(&pair.near), LINK_NOTHING);
    close_fdp(&pair.far.fd);
    assert_int_equal(link_read(&pair.near, &news), -EPIPE);
    pair_close(&pair);
    free(body);
    free(got);
}

/* Where the next is always added before all is sent, what is sent takes no memory. */
TEST(test_never_idle)
{
    enum { BYTES = 40000, BEHIND = 8 };
    uint8_t *bytes = calloc(1, BYTES);
    struct pair pair;

    (void)state;
    assert_non_null(bytes);
    pair_open(&pair);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(link_add(&pair.far, (struct dl_span){bytes, BYTES}), 0);
        assert_int_equal(link_write(&pair.far), 0);
        if (i < BEHIND)
            continue;
        assert_true(link_unsent(&pair.far) > 0);
        assert_int_equal(recv(pair.near.fd, bytes, BYTES, MSG_WAITALL), BYTES);
    }
    assert_true(pair.far.out.cap < 4 * BEHIND * BYTES);
    pair_close(&pair);
    free(bytes);
}

TEST(test_too_long)
{
    static const struct {
        uint32_t bytes, most;
        int r;
    } rows[] = {
        {0, LINK_UNPROVEN_BYTES, -EMSGSIZE},
        {LINK_UNPROVEN_BYTES, LINK_UNPROVEN_BYTES, 0},
        {LINK_UNPROVEN_BYTES + 1, LINK_UNPROVEN_BYTES, -EMSGSIZE},
        {DL_MAX_FRAME_BYTES, DL_MAX_FRAME_BYTES, 0},
        {DL_MAX_FRAME_BYTES + 1, DL_MAX_FRAME_BYTES, -EMSGSIZE},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const uint32_t n = rows[i].bytes;
        const uint8_t head[] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16),
                                (uint8_t)(n >> 24)};
        enum link_news news;
        struct pair pair;

        pair_open(&pair);
        pair.near.most = rows[i].most;
        assert_int_equal(send(pair.far.fd, head, sizeof head, 0), sizeof head);
        assert_int_equal(link_read(&pair.near, &news), rows[i].r);
        assert_int_equal(news, LINK_NOTHING);
        assert_true(pair.near.in.cap <= 64 * 1024); /* what has not come takes no memory */
        pair_close(&pair);
    }
}

/* ---- slots ---------------------------------------------------------------------------------- */

TEST(test_done_fits)
{
    const struct slot_header header = {.samples = 2};
    const struct dl_span whole = {(const uint8_t *)&header, sizeof header};
    const struct {
        struct dl_msg_h_done msg;
        bool fits;
    } rows[] = {
        {{.task = 3, .used = 192, .header = whole}, true},
        {{.task = 3, .used = 4096, .header = whole, .bytes = 4096 - 192}, true},
        {{.task = 3, .used = 4097, .header = whole, .bytes = 4097 - 192}, false},
        {{.task = 4, .used = 192, .header = whole}, false},
        {{.task = 3, .used = 200, .header = whole}, false},
        {{.task = 3, .used = 192, .header = {whole.data, 184}}, false},
        {{.task = 3, .code = ENOBUFS, .used = 1 << 20, .header = whole}, true},
        {{.task = 3, .code = EIO, .used = 9, .header = whole, .bytes = 4096}, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_int_equal(link_done_fits(&rows[i].msg, 3, 4096), rows[i].fits);
}

/* ---- proofs --------------------------------------------------------------------------------- */

TEST(test_proofs)
{
    char near[PROOF_NONCE_MAX], far[PROOF_NONCE_MAX], proof[PEER_PROOF_MAX];
    struct sigv4_crypto crypto;

    (void)state;
    if (!sigv4_crypto_find(&crypto))
        return; /* built without */
    assert_int_equal(proof_nonce(near), 0);
    assert_int_equal(proof_nonce(far), 0);
    assert_string_not_equal(near, far);
    proof_make(&crypto, "secret", "near", near, far, proof);
    assert_int_equal(strlen(proof), PEER_PROOF_MAX - 1);
    assert_true(proof_holds(&crypto, "secret", "near", near, far, span_str(proof)));
    assert_false(proof_holds(&crypto, "secrets", "near", near, far, span_str(proof)));
    assert_false(proof_holds(&crypto, "secret", "far", near, far, span_str(proof)));
    assert_false(proof_holds(&crypto, "secret", "near", far, near, span_str(proof)));
    assert_false(proof_holds(&crypto, "secret", "near", near, far, span_str("")));
    /* A nonce of another form has no proof: neither a shorter one, nor one with a space in it. */
    far[63] = ' ';
    proof_make(&crypto, "secret", "near", near, far, proof);
    assert_string_equal(proof, "");
    assert_false(proof_holds(&crypto, "secret", "near", near, far, span_str("")));
}

TEST(test_releases)
{
    (void)state;
    assert_string_equal(proof_compare_releases(span_str(DLOADER_VERSION)), "");
    assert_string_not_equal(proof_compare_releases(span_str("0.0.1")), "");
    assert_string_not_equal(proof_compare_releases(span_str(DLOADER_VERSION "1")), "");
}

/* ---- files ---------------------------------------------------------------------------------- */

/* The first file that differs is named. */
TEST(test_files)
{
    static const char *const names[] = {"0.txt", "1.txt", "2.txt"};
    char *paths[3];
    struct spec_file files[3] = {0};
    struct dl_spec spec = {.dataset = {.kind = DATASET_TEXT, .files = files, .n_files = 3}};
    const struct data_env env = {0};
    struct files_seen seen = {0};
    struct dl_error err = {0};

    (void)state;
    for (int i = 0; i < 3; i++)
        files[i].path = paths[i] = strdup(harness_file(names[i], "some\n", 5));
    assert_int_equal(files_seen_make(&spec, &env, &seen, &err), 0);
    assert_int_equal(seen.n, 3);
    const struct dl_span sums = {(const uint8_t *)seen.sums, seen.n_sums * sizeof seen.sums[0]};
    assert_int_equal(files_seen_compare(&spec, &env, 3, sums, &err), 0);
    (void)harness_file(names[2], "else\n", 5);
    assert_int_equal(files_seen_compare(&spec, &env, 3, sums, &err), -ESTALE);
    assert_string_equal(err.path, paths[2]);
    assert_int_equal(unlink(paths[1]), 0);
    assert_int_equal(files_seen_compare(&spec, &env, 3, sums, &err), -ESTALE);
    assert_string_equal(err.path, paths[1]);
    spec.dataset.n_files = 1;
    assert_int_equal(files_seen_compare(&spec, &env, 3, sums, &err), -ESTALE);
    assert_int_equal(files_seen_compare(&spec, &env, 2, sums, &err), -EPROTO);
    assert_int_equal(files_seen_compare(&spec, &env, 0, (struct dl_span){0}, &err), -ESTALE);
    for (int i = 0; i < 3; i++)
        free(paths[i]);
}

/* What a helper may read of the daemon's machine: what the spec names, and what is beside or below.
 */
TEST(test_files_named)
{
    char one[] = "/d/one.npy", corpus[] = "/f/corpus", pattern[] = "/d/t*/x?.txt",
         model[] = "/m.json", remote[] = "s3://b/k";
    struct spec_file files[] = {{.path = one}, {.path = pattern}, {.path = remote}},
                     below = {.path = corpus};
    struct spec_dataset inner = {.files = &below, .n_files = 1};
    const struct spec_dataset dataset = {.kind = DATASET_NPY,
                                         .files = files,
                                         .n_files = 3,
                                         .model = model,
                                         .datasets = &inner,
                                         .n_datasets = 1};
    static const struct {
        const char *path;
        bool named;
    } rows[] = {
        {"/d/one.npy", true},
        {"/d", true}, /* the folder of the pattern */
        {"/d/train/x1.txt", true},
        {"/f/corpus.bin", true},
        {"/f/corpus/a/b.jpg", true},
        {"/m.json", true},
        {"/", false},
        {"", false},
        {"/e/one.npy", false},
        {"/m.jso", false},
        {"d/one.npy", false},
        {"/d/train/../../etc/passwd", false},
        {"/d/..", false},
        {"s3://b/k", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (near_files_named(&dataset, rows[i].path) != rows[i].named)
            fail_msg("%s", rows[i].path);
    assert_false(near_files_named(&dataset, "/f/other.jpg"));
    inner.listed = true;
    assert_true(near_files_named(&dataset, "/f/other.jpg"));
}

TEST(test_files_read)
{
    char path[DL_BOUND_PATH_BYTES - 8], beside[DL_BOUND_PATH_BYTES];
    struct spec_file file = {.path = path};
    struct near_files files = {.spec.dataset = {.kind = DATASET_NPY, .files = &file, .n_files = 1}};
    const struct {
        uint64_t what;
        const char *path;
        uint64_t first, bytes;
        int r;
        uint64_t code, size, len;
    } rows[] = {
        {NEAR_FILES_STAT, path, 0, 0, 0, 0, 10, 0},
        {NEAR_FILES_BYTES, path, 0, NEAR_FILES_MOST, 0, 0, 10, 10},
        {NEAR_FILES_BYTES, path, 4, 3, 0, 0, 10, 3},
        {NEAR_FILES_BYTES, path, 11, 5, 0, 0, 10, 0},
        {NEAR_FILES_BYTES, path, 0, NEAR_FILES_MOST + 1, -EBADMSG, 0, 0, 0},
        {NEAR_FILES_LIST, path, 0, 0, 0, ENOTDIR, 0, 0},
        {NEAR_FILES_BYTES, beside, 0, 5, 0, ENOENT, 0, 0},
        {NEAR_FILES_BYTES, "/etc/passwd", 0, 5, -EACCES, 0, 0, 0},
    };

    (void)state;
    snprintf(path, sizeof path, "%s", harness_file("read", "0123456789", 10));
    snprintf(beside, sizeof beside, "%s.idx", path);
    for (size_t i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
        const struct dl_msg_h_read msg = {.what = rows[i / 2].what,
                                          .path = span_str(rows[i / 2].path),
                                          .first = rows[i / 2].first,
                                          .bytes = rows[i / 2].bytes};
        struct dl_msg_h_part part;
        struct dl_buffer bytes = {0};

        files.on = i % 2; /* helpers.serve */
        int r = near_files_read(&files, &msg, &part, &bytes);
        assert_int_equal(r, files.on ? rows[i / 2].r : -EBADMSG);
        if (r == 0 && (part.code != rows[i / 2].code || part.size != rows[i / 2].size ||
                       part.bytes != rows[i / 2].len || bytes.len != rows[i / 2].len))
            fail_msg("row %zu: %llu", i / 2, (unsigned long long)part.code);
        buffer_deinit(&bytes);
    }
    close(files.fd);
    free(files.path);
}

/* What a worker asks, and what the stand-in answers: neither is trusted. */
TEST(test_files_asked)
{
    static const struct {
        uint32_t op, object;
        uint64_t first, bytes;
        int r;
        enum far_files_state then;
    } rows[] = {
        {REMOTE_STAT, 0, 0, 0, 0, FAR_FILES_TO_ASK},
        {REMOTE_EXPECT, 0, 0, UINT64_MAX, 0, FAR_FILES_IDLE},
        {REMOTE_NEED, 1, 0, 10, 0, FAR_FILES_TO_ASK},
        {REMOTE_NEED, 1, 0, 11, -EPROTO, FAR_FILES_IDLE},
        {REMOTE_NEED, 1, 1, 9, -EPROTO, FAR_FILES_IDLE},
        {REMOTE_NEED, 1, REMOTE_BLOCK_BYTES, 10, -EPROTO, FAR_FILES_IDLE},
        {REMOTE_NEED, 1, 0, 0, -EPROTO, FAR_FILES_IDLE},
        {REMOTE_NEED, 2, 0, 10, -EPROTO, FAR_FILES_IDLE},
        {REMOTE_DROP, 1, 0, 10, 0, FAR_FILES_IDLE},
        {REMOTE_DROP, 1, 0, UINT64_MAX, -EPROTO, FAR_FILES_IDLE},
        {REMOTE_CLOSE, 1, 0, 0, 0, FAR_FILES_IDLE},
        {REMOTE_CLOSE, 2, 0, 0, -EPROTO, FAR_FILES_IDLE},
        {99, 0, 0, 0, -EPROTO, FAR_FILES_IDLE},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct dl_msg_h_part part = {.sort = REMOTE_OBJECT, .size = 10};
        struct remote_question question = {.op = REMOTE_PAGED, .url = "/f"};
        struct far_files files;
        struct dl_msg_h_read read;
        uint8_t *to;
        int worker;

        assert_int_equal(far_files_init(&files, 1 << 20, &worker), 0);
        assert_int_equal(far_files_on_part(&files, &part, &to), -EBADMSG); /* nothing was asked */
        assert_true(send(worker, &question, sizeof question, 0) > 0);
        assert_int_equal(far_files_read(&files), 0);
        assert_true(far_files_ask(&files, &read));
        assert_int_equal(read.what, NEAR_FILES_STAT);
        assert_int_equal(far_files_on_part(&files, &part, &to), 0);
        assert_null(to);
        question = (struct remote_question){.op = rows[i].op,
                                            .object = rows[i].object,
                                            .first = rows[i].first,
                                            .bytes = rows[i].bytes};
        assert_true(send(worker, &question, sizeof question, 0) > 0);
        int r = far_files_read(&files);
        if (r != rows[i].r || (r == 0 && files.state != rows[i].then))
            fail_msg("row %zu: %d, %d", i, r, (int)files.state);
        far_files_deinit(&files);
        close(worker);
    }
}

static void ask_far(int worker, struct far_files *files, uint32_t op, uint64_t block, uint64_t n)
{
    const struct remote_question question = {.op = op,
                                             .object = 1,
                                             .first = block * REMOTE_BLOCK_BYTES,
                                             .bytes = n * REMOTE_BLOCK_BYTES};

    assert_true(send(worker, &question, sizeof question, 0) > 0);
    assert_int_equal(far_files_read(files), 0);
}

/* Whether an answer is there; then it is one of so many blocks. */
static bool is_given(int worker, uint64_t blocks)
{
    struct remote_answer answer;

    if (recv(worker, &answer, sizeof answer, MSG_DONTWAIT) < 0)
        return false;
    assert_int_equal(answer.code, 0);
    assert_int_equal(answer.bytes, blocks * REMOTE_BLOCK_BYTES);
    return true;
}

static void give_far(struct far_files *files, uint64_t blocks)
{
    const struct dl_msg_h_part part = {.bytes = blocks * REMOTE_BLOCK_BYTES};
    uint8_t *to;

    assert_int_equal(far_files_on_part(files, &part, &to), 0);
    assert_non_null(to);
    assert_int_equal(far_files_take(files), 0);
}

/* What it says that it will need comes before, four blocks at a time, in four questions at a time;
 * as much as its window has room for, until it takes some of it. */
TEST(test_files_ahead)
{
    enum { WINDOW = 20 };
    const struct dl_msg_h_part part = {.sort = REMOTE_OBJECT, .size = 100 * REMOTE_BLOCK_BYTES};
    struct remote_question question = {.op = REMOTE_PAGED, .url = "/f"};
    struct far_files files;
    struct dl_msg_h_read read;
    uint8_t *to;
    int worker;

    (void)state;
    assert_int_equal(far_files_init(&files, 8 * WINDOW * REMOTE_BLOCK_BYTES, &worker), 0);
    assert_true(send(worker, &question, sizeof question, 0) > 0);
    assert_int_equal(far_files_read(&files), 0);
    assert_true(far_files_ask(&files, &read));
    assert_int_equal(far_files_on_part(&files, &part, &to), 0);
    assert_true(recv(worker, &question, sizeof question, 0) > 0);
    ask_far(worker, &files, REMOTE_EXPECT, 10, 50);
    for (uint64_t i = 0; i < 4; i++) {
        assert_true(far_files_ask(&files, &read));
        assert_int_equal(read.first, (10 + 4 * i) * REMOTE_BLOCK_BYTES);
        assert_int_equal(read.bytes, 4 * REMOTE_BLOCK_BYTES);
    }
    assert_false(far_files_ask(&files, &read));
    /* What comes already is not asked for again. */
    ask_far(worker, &files, REMOTE_NEED, 10, 1);
    give_far(&files, 4);
    assert_true(is_given(worker, 4));
    /* What does not is asked for before the rest. */
    ask_far(worker, &files, REMOTE_NEED, 90, 1);
    assert_true(far_files_ask(&files, &read));
    assert_int_equal(read.first, 90 * REMOTE_BLOCK_BYTES);
    for (int i = 0; i < 3; i++)
        give_far(&files, 4);
    assert_false(is_given(worker, 1));
    give_far(&files, 1);
    assert_true(is_given(worker, 1));
    /* 12 blocks are there: 8 more come until it takes some. */
    for (uint64_t i = 0; i < 2; i++) {
        assert_true(far_files_ask(&files, &read));
        assert_int_equal(read.first, (26 + 4 * i) * REMOTE_BLOCK_BYTES);
        give_far(&files, 4);
    }
    assert_false(far_files_ask(&files, &read));
    ask_far(worker, &files, REMOTE_NEED, 14, 1);
    assert_true(is_given(worker, WINDOW / 2));
    assert_true(far_files_ask(&files, &read));
    assert_int_equal(read.first, 34 * REMOTE_BLOCK_BYTES);
    far_files_deinit(&files);
    close(worker);
}

/* Each line of the daemon's has to be among the helper's; what this one has besides is its own. */
TEST(test_versions)
{
    static const char here[] = "CPython 3.11.2\nnumpy 1.26.4\ntorch none\ncode of my.sets 12ab\n";
    static const char code[] = "bytecode cpython-311\n";
    static const struct {
        const char *there, *said; /* NULL: it is fine */
        const char *here;
    } rows[] = {
        {"bytecode cpython-311", NULL, code},
        {"bytecode cpython-312",
         "has bytecode cpython-311, the helper's bytecode cpython-312: ", code},
        {"CPython 3.11.2\nnumpy 1.26.4\ntorch none\ncode of my.sets 12ab\n", NULL},
        {"code of my.sets 12ab\ntorch none\nPillow 9.4.0\nnumpy 1.26.4\nCPython 3.11.2", NULL},
        {"CPython 3.12.2\nnumpy 1.26.4\ntorch none\ncode of my.sets 12ab\n",
         "has CPython 3.11.2, the helper's CPython 3.12.2: "},
        {"CPython 3.11.2\nnumpy 1.26.40\ntorch none\ncode of my.sets 12ab\n",
         "has numpy 1.26.4, the helper's numpy 1.26.40: "},
        {"CPython 3.11.2\nnumpy 1.26.4\ncode of my.sets 12ab\n",
         "has torch none, the helper's none: "},
        {"CPython 3.11.2\nnumpy 1.26.4\ntorch none\ncode of my.sets 12ac\n",
         "has code of my.sets 12ab, the helper's code of my.sets 12ac: "},
        {"", "has CPython 3.11.2, the helper's none: "},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_error err = {0};
        int r = alike_compare(rows[i].here ? rows[i].here : here, rows[i].there, &err);

        assert_int_equal(r, rows[i].said ? -ESTALE : 0);
        if (rows[i].said && !strstr(err.message, rows[i].said))
            fail_msg("row %zu: %s", i, err.message);
        assert_int_equal(strstr(err.message, "helpers.versions: any") != NULL,
                         rows[i].said && !strstr(rows[i].said, "code"));
    }
    assert_int_equal(alike_compare("", "numpy 1.26.4\n", NULL), 0);
}

/* What a client has made of its program's dataset, and what is left of it where versions may
 * differ. */
TEST(test_sent)
{
    static const struct {
        const char *file, *lines, *code;
    } rows[] = {
        {"numpy 1.26.4\nbytecode cpython-311\ncode of my.sets 12ab\n\n\x80.\n\n",
         "numpy 1.26.4\nbytecode cpython-311\ncode of my.sets 12ab\n",
         "bytecode cpython-311\ncode of my.sets 12ab\n"},
        {"\n\x80.\n\n", "", ""},
        {"numpy 1.26.4\n\x80.", NULL, NULL}, /* no empty line */
        {"numpy 1.26.4", NULL, NULL},
    };
    char long_line[ALIKE_MAX + 8];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct sent sent = {.bytes = (uint8_t *)(uintptr_t)rows[i].file,
                                  .len = strlen(rows[i].file)};
        char lines[ALIKE_MAX];
        struct dl_span pickle;

        for (int any = 0; any < 2; any++) {
            int r = sent_read(&sent, any, lines, &pickle, NULL);

            assert_int_equal(r, rows[i].lines ? 0 : -EINVAL);
            if (r < 0)
                continue;
            assert_string_equal(lines, any ? rows[i].code : rows[i].lines);
            assert_int_equal(pickle.len, 4);
            assert_memory_equal(pickle.data, "\x80.\n\n", 4);
        }
    }
    memset(long_line, 'x', sizeof long_line);
    memcpy(long_line + sizeof long_line - 3, "\n\n.", 3);
    const struct sent sent = {.bytes = (uint8_t *)long_line, .len = sizeof long_line};
    char lines[ALIKE_MAX];
    struct dl_span pickle;
    assert_int_equal(sent_read(&sent, false, lines, &pickle, NULL), -EINVAL);
}

/* ---- who is asked --------------------------------------------------------------------------- */

TEST(test_helpers)
{
    char first[] = "a:1", second[] = "b:2", *addresses[] = {first, second}, url[] = "s3://b/k";
    char nowhere[] = "", run[] = "train", sent_key[] = "sent";
    struct config config = {
        .helpers = {.addresses = {.paths = addresses, .n = 2}, .run = nowhere, .count = 3}};
    struct spec_file file = {.path = url};
    struct dl_spec spec = {
        .workers = 2, .helpers = DL_MAX_WORKERS, .dataset = {.kind = DATASET_RANGE}};
    struct python_run none = {0}, brought = {.host_number = 1}, named = {.interpreter = first};
    const char *why;

    (void)state;
    assert_int_equal(helpers_count(&config, &spec, &none, false, &why), 3);
    assert_null(why);
    assert_int_equal(helpers_count(&config, &spec, &none, true, &why), 0);
    assert_non_null(strstr(why, "another user"));
    assert_int_equal(helpers_count(&config, &spec, &brought, false, &why), 0);
    assert_non_null(strstr(why, "the trainer's own process"));
    struct value sent = {.type = VALUE_STRING, .string = url, .key = sent_key};
    spec.dataset = (struct spec_dataset){.kind = DATASET_PYTHON,
                                         .host = 1,
                                         .config = {.type = VALUE_MAP, .items = &sent, .count = 1}};
    assert_int_equal(helpers_count(&config, &spec, &brought, false, &why), 3);
    spec.dataset = (struct spec_dataset){.kind = DATASET_RANGE};
    assert_int_equal(helpers_count(&config, &spec, &named, false, &why), 3);
    spec.dataset.kind = DATASET_PYTHON;
    spec.in_order = true;
    assert_int_equal(helpers_count(&config, &spec, &named, false, &why), 3);
    spec.collate.kind = COLLATE_PYTHON;
    assert_int_equal(helpers_count(&config, &spec, &named, false, &why), 0);
    assert_non_null(strstr(why, "worker w makes steps w, w + N"));
    spec.dataset.kind = DATASET_RANGE;
    spec.helpers = 2;
    assert_int_equal(helpers_count(&config, &spec, &none, false, &why), 2);
    spec.helpers = 0;
    assert_int_equal(helpers_count(&config, &spec, &none, false, &why), 0);
    assert_null(why);
    spec.helpers = DL_MAX_WORKERS;
    spec.workers = DL_MAX_WORKERS - 1;
    assert_int_equal(helpers_count(&config, &spec, &none, false, &why), 1);
    spec.workers = 0;
    assert_int_equal(helpers_count(&config, &spec, &none, false, &why), 0);
    spec = (struct dl_spec){.workers = 2,
                            .helpers = DL_MAX_WORKERS,
                            .dataset = {.kind = DATASET_TEXT, .files = &file, .n_files = 1}};
    assert_int_equal(helpers_count(&config, &spec, &none, false, &why), 2 + 1);
    assert_int_equal(helpers_count(&config, &spec, &named, false, &why), 0);
    assert_non_null(strstr(why, "URLs"));
    assert_false(helpers_are_sized(&config, &spec));
    config.helpers.count = 0; /* auto */
    assert_true(helpers_are_sized(&config, &spec));
    assert_int_equal(helpers_count(&config, &spec, &none, false, &why), HELPERS_MOST);
    spec.helpers = HELPERS_MOST + 1;
    assert_false(helpers_are_sized(&config, &spec));
    assert_int_equal(helpers_count(&config, &spec, &none, false, &why), HELPERS_MOST + 1);
    config.helpers.count = 3;
    config.helpers.addresses.n = 0;
    assert_int_equal(helpers_count(&config, &spec, &none, false, &why), 0);
    assert_null(why);
    config.helpers.run = run; /* some may come */
    spec = (struct dl_spec){
        .workers = 2, .helpers = DL_MAX_WORKERS, .dataset = {.kind = DATASET_RANGE}};
    assert_int_equal(helpers_count(&config, &spec, &none, false, &why), 3);
}

TEST(test_helper_of_each)
{
    char first[] = "a:1", second[] = "b:2", third[] = "c:3", *all[] = {first, second, third};
    struct config config = {.helpers = {.addresses = {.paths = all, .n = 2}}};
    struct config_dirs found = {.paths = &all[2], .n = 1}, none = {0};
    static const struct {
        uint32_t helper;
        uint64_t attempt;
        const char *alone, *together;
    } rows[] = {
        {0, 0, "a:1", "a:1"}, {1, 0, "b:2", "b:2"}, {1, 1, "a:1", "c:3"}, {2, 0, "a:1", "c:3"},
        {2, 3, "b:2", "c:3"}, {3, 1, "a:1", "c:3"}, {0, 1, "b:2", "b:2"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_string_equal(helpers_address(&config, &none, rows[i].helper, rows[i].attempt),
                            rows[i].alone);
        assert_string_equal(helpers_address(&config, &found, rows[i].helper, rows[i].attempt),
                            rows[i].together);
    }
    config.helpers.addresses.n = 0;
    assert_string_equal(helpers_address(&config, &found, 7, 7), "c:3");
    assert_null(helpers_address(&config, &none, 0, 0));
}
