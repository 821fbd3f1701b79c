#include "client/dlctl/run/token_files.h"

#include "client/dlctl/run/token_arrow.h"
#include "proto/common/array.h"
#include "proto/common/base.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    /* As Megatron-LM numbers them: DType of megatron/core/datasets/indexed_dataset.py. */
    TYPE_INT32 = 4,
    TYPE_UINT16 = 8,
    AT_ONCE = 4096,
    /* Of a record batch, or one document more. */
    BATCH_TOKENS = 1 << 20,
};

/* Of Arrow there is but one. */
enum part { PART_BIN, PART_IDX, PARTS };
static const char *const part_endings[PARTS] = {".bin", ".idx"};

struct token_files {
    char *prefix; /* owned */
    bool arrow;
    struct {
        off_t at; /* of its head; its first document and token are: */
        uint64_t document, token;
    } batch;
    FILE *part[PARTS]; /* owned; NULL: not opened, or all of it is in its place */
    uint32_t width;
    uint32_t *lengths; /* owned; of each document */
    uint64_t documents, room;
    uint64_t tokens;
};

/* ---- files ---------------------------------------------------------------------------------- */

/* `draft`: until all is written. False: the name is too long. */
static bool part_name(const struct token_files *files, enum part part, bool draft,
                      char ret[static PATH_MAX])
{
    int n = snprintf(ret, PATH_MAX, "%s%s%s", files->prefix, files->arrow ? "" : part_endings[part],
                     draft ? ".part" : "");

    return n >= 0 && n < PATH_MAX;
}

static int part_fail(const struct token_files *files, enum part part, int code,
                     struct dl_error *err)
{
    char path[PATH_MAX];

    (void)part_name(files, part, true, path);
    return dl_error_set(err, code, path, "%s", strerror(code));
}

static int part_open(struct token_files *files, enum part part, struct dl_error *err)
{
    char path[PATH_MAX];

    if (!part_name(files, part, true, path))
        return dl_error_set(err, ENAMETOOLONG, files->prefix, "%s", strerror(ENAMETOOLONG));
    files->part[part] = fopen(path, "w+e");
    return files->part[part] ? 0 : dl_error_set(err, errno, path, "%s", strerror(errno));
}

static int part_write(struct token_files *files, enum part part, const void *data, size_t len,
                      struct dl_error *err)
{
    if (len > 0 && fwrite(data, 1, len, files->part[part]) != len)
        return part_fail(files, part, errno ? errno : EIO, err);
    return 0;
}

static int part_sync(struct token_files *files, enum part part, struct dl_error *err)
{
    if (fflush(files->part[part]) != 0 || fsync(fileno(files->part[part])) < 0)
        return part_fail(files, part, errno, err);
    return 0;
}

static int part_rename(struct token_files *files, enum part part, struct dl_error *err)
{
    char from[PATH_MAX], to[PATH_MAX];

    if (!part_name(files, part, true, from) || !part_name(files, part, false, to))
        return part_fail(files, part, ENAMETOOLONG, err);
    if (rename(from, to) < 0)
        return dl_error_set(err, errno, to, "%s", strerror(errno));
    (void)fclose(steal_ptr(files->part[part]));
    return 0;
}

static bool prefix_is_arrow(const char *prefix)
{
    size_t n = strlen(prefix), ending = strlen(".arrow");

    return n > ending && strcmp(prefix + n - ending, ".arrow") == 0;
}

static int token_files_parts(const struct token_files *files)
{
    return files->arrow ? 1 : PARTS;
}

int token_files_new(const char *prefix, struct token_files **ret, struct dl_error *err)
{
    struct token_files *files = calloc(1, sizeof *files);
    int r = 0;

    if (files) {
        files->prefix = strdup(prefix);
        files->arrow = prefix_is_arrow(prefix);
        files->width = files->arrow ? sizeof(int32_t) : sizeof(uint16_t);
    }
    if (!files || !files->prefix)
        r = dl_error_set(err, ENOMEM, prefix, "%s", strerror(ENOMEM));
    for (int part = 0; r == 0 && part < token_files_parts(files); part++)
        r = part_open(files, part, err);
    if (r == 0 && files->arrow)
        r = part_write(files, PART_BIN, token_arrow_schema(), TOKEN_ARROW_SCHEMA, err);
    if (r < 0) {
        token_files_free(files);
        return r;
    }
    *ret = files;
    return 0;
}

struct token_files *token_files_free(struct token_files *files)
{
    char path[PATH_MAX];

    for (int part = 0; files && part < PARTS; part++) {
        if (files->part[part] && part_name(files, part, true, path)) {
            (void)unlink(path);
            (void)fclose(files->part[part]);
        }
    }
    if (files) {
        free(files->prefix);
        free(files->lengths);
    }
    free(files);
    return NULL;
}

/* ---- tokens --------------------------------------------------------------------------------- */

/* In place, from the end on: nothing is written over that has not been read. */
static int tokens_widen(struct token_files *files, struct dl_error *err)
{
    FILE *bin = files->part[PART_BIN];
    uint16_t narrow[AT_ONCE];
    int32_t wide[AT_ONCE];

    files->width = sizeof *wide;
    for (uint64_t end = files->tokens, n; end > 0; end -= n) {
        n = min_u64(end, AT_ONCE);
        uint64_t first = end - n;
        if (fseeko(bin, (off_t)(first * sizeof *narrow), SEEK_SET) < 0 ||
            fread(narrow, sizeof *narrow, n, bin) != n ||
            fseeko(bin, (off_t)(first * sizeof *wide), SEEK_SET) < 0)
            return part_fail(files, PART_BIN, errno ? errno : EIO, err);
        for (uint64_t i = 0; i < n; i++)
            wide[i] = narrow[i];
        int r = part_write(files, PART_BIN, wide, n * sizeof *wide, err);
        if (r < 0)
            return r;
    }
    return fseeko(bin, 0, SEEK_END) < 0 ? part_fail(files, PART_BIN, errno, err) : 0;
}

/* Checks them, and makes room for the greatest of them. */
static int tokens_make_fit(struct token_files *files, const int64_t *tokens, size_t n,
                           struct dl_error *err)
{
    int64_t greatest = 0;

    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] > INT32_MAX)
            return dl_error_set(err, ERANGE, files->prefix,
                                "token %zu of document %llu is %lld, which is not one of int32's "
                                "that are not negative",
                                i, (ull)files->documents, (long long)tokens[i]);
        greatest = tokens[i] > greatest ? tokens[i] : greatest;
    }
    return greatest > UINT16_MAX && files->width == sizeof(uint16_t) ? tokens_widen(files, err) : 0;
}

static int tokens_write(struct token_files *files, const int64_t *tokens, size_t n,
                        struct dl_error *err)
{
    union {
        uint16_t narrow[AT_ONCE];
        int32_t wide[AT_ONCE];
    } out;

    for (size_t i = 0; i < n; i++) {
        if (files->width == sizeof *out.narrow)
            out.narrow[i] = (uint16_t)tokens[i];
        else
            out.wide[i] = (int32_t)tokens[i];
    }
    return part_write(files, PART_BIN, &out, n * files->width, err);
}

static int tokens_note_document(struct token_files *files, size_t n, struct dl_error *err)
{
    if (n > INT32_MAX)
        return dl_error_set(err, EOVERFLOW, files->prefix,
                            "document %llu has %zu tokens, more than %d", (ull)files->documents, n,
                            INT32_MAX);
    if (!array_reserve(files->lengths, files->room, files->documents + 1))
        return dl_error_set(err, ENOMEM, files->prefix, "%s", strerror(ENOMEM));
    files->lengths[files->documents++] = (uint32_t)n;
    return 0;
}

/* ---- record batches of Arrow ----------------------------------------------------------------- */

static int batch_write_offsets(struct token_files *files, uint64_t documents, struct dl_error *err)
{
    uint32_t offset = 0, none = 0;
    int r = part_write(files, PART_BIN, &offset, sizeof offset, err);

    for (uint64_t i = 0; i < documents && r == 0; i++) {
        offset += files->lengths[files->batch.document + i];
        r = part_write(files, PART_BIN, &offset, sizeof offset, err);
    }
    if (r == 0 && (documents + 1) % 2)
        r = part_write(files, PART_BIN, &none, sizeof none, err);
    return r;
}

/* Nothing, if it has no documents. */
static int batch_end(struct token_files *files, struct dl_error *err)
{
    uint64_t documents = files->documents - files->batch.document;
    uint64_t tokens = files->tokens - files->batch.token;
    uint8_t head[TOKEN_ARROW_HEAD] = {0};
    FILE *out = files->part[PART_BIN];

    if (documents == 0)
        return 0;
    int r =
        part_write(files, PART_BIN, head, token_arrow_bytes(tokens) - tokens * files->width, err);
    if (r == 0)
        r = batch_write_offsets(files, documents, err);
    if (r == 0 && fseeko(out, files->batch.at, SEEK_SET) < 0)
        r = part_fail(files, PART_BIN, errno, err);
    token_arrow_head(documents, tokens, head);
    if (r == 0)
        r = part_write(files, PART_BIN, head, sizeof head, err);
    if (r == 0 && fseeko(out, 0, SEEK_END) < 0)
        r = part_fail(files, PART_BIN, errno, err);
    files->batch.document = files->documents;
    files->batch.token = files->tokens;
    return r;
}

/* There is a batch for a document of `n` tokens. */
static int batch_make_room(struct token_files *files, size_t n, struct dl_error *err)
{
    static const uint8_t later[TOKEN_ARROW_HEAD];
    uint64_t tokens = files->tokens - files->batch.token;
    int r = 0;

    if (tokens >= BATCH_TOKENS || tokens + n > INT32_MAX)
        r = batch_end(files, err);
    if (r < 0 || files->documents > files->batch.document)
        return r;
    files->batch.at = ftello(files->part[PART_BIN]);
    return part_write(files, PART_BIN, later, sizeof later, err);
}

/* ---- documents ------------------------------------------------------------------------------- */

int token_files_add(struct token_files *files, const int64_t *tokens, size_t n,
                    struct dl_error *err)
{
    int r = tokens_make_fit(files, tokens, n, err);

    if (r == 0 && files->arrow)
        r = batch_make_room(files, n, err);
    for (size_t i = 0; i < n && r == 0; i += AT_ONCE)
        r = tokens_write(files, tokens + i, min_u64(n - i, AT_ONCE), err);
    if (r == 0)
        r = tokens_note_document(files, n, err);
    files->tokens += r == 0 ? n : 0;
    return r;
}

/* ---- the index ------------------------------------------------------------------------------ */

static int index_write_u64(struct token_files *files, uint64_t n, struct dl_error *err)
{
    return part_write(files, PART_IDX, &n, sizeof n, err);
}

/* A document is one sequence. */
static int index_write(struct token_files *files, struct dl_error *err)
{
    const uint8_t type = files->width == sizeof(uint16_t) ? TYPE_UINT16 : TYPE_INT32;
    uint64_t offset = 0;
    int r = part_write(files, PART_IDX, "MMIDIDX\0", 9, err);

    if (r == 0)
        r = index_write_u64(files, 1, err);
    if (r == 0)
        r = part_write(files, PART_IDX, &type, 1, err);
    if (r == 0)
        r = index_write_u64(files, files->documents, err);
    if (r == 0)
        r = index_write_u64(files, files->documents + 1, err);
    if (r == 0)
        r = part_write(files, PART_IDX, files->lengths, files->documents * sizeof *files->lengths,
                       err);
    for (uint64_t i = 0; i < files->documents && r == 0; i++) {
        r = index_write_u64(files, offset, err);
        offset += (uint64_t)files->lengths[i] * files->width;
    }
    for (uint64_t i = 0; i <= files->documents && r == 0; i++)
        r = index_write_u64(files, i, err);
    return r;
}

int token_files_finish(struct token_files *files, struct dl_error *err)
{
    int r = files->arrow ? batch_end(files, err) : index_write(files, err);

    if (r == 0 && files->arrow)
        r = part_write(files, PART_BIN, token_arrow_end(), TOKEN_ARROW_END, err);
    for (int part = 0; part < token_files_parts(files) && r == 0; part++)
        r = part_sync(files, part, err);
    /* The index last: without it the tokens are no dataset. */
    for (int part = 0; part < token_files_parts(files) && r == 0; part++)
        r = part_rename(files, part, err);
    return r;
}

uint32_t token_files_width(const struct token_files *files)
{
    return files->width;
}

bool token_files_is_arrow(const struct token_files *files)
{
    return files->arrow;
}
