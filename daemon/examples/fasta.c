/*
 * An iterable dataset: the records of a FASTA file, DNA as tokens.
 *
 *   dataset: {kind: plugin, path: /.../fasta.so, config: {path: /.../genes.fa, window: 512}}
 *
 * A sample is a dict of `id`, the first word of the record's header, and `bases`, uint8: A 0, C 1,
 * G 2, T or U 3, any other letter 4. Of a record of more than `window` bases a random part of that
 * length is taken, another one in every epoch; without `window`, all of it. The records are dealt
 * out to all workers of all ranks in turn.
 *
 *   cc -O2 -shared -fPIC fasta.c $(pkg-config --cflags --libs dloader-plugin jansson) -o fasta.so
 */
#include <dloader-plugin.h>
#include <jansson.h>

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { OTHER_BASE = 4 };

struct fasta {
    const struct dl_plugin_host *host;
    const char *data; /* the file; mapped by the host */
    const char *end;
    uint64_t window; /* 0: whole records */
    uint8_t bases[256];
};

struct fasta_iter {
    const struct fasta *fasta;
    const char *at; /* the '>' of a record, or the end of the file */
    uint64_t record;
    uint64_t mine; /* of every `all` records, the one with this number */
    uint64_t all;
};

/* ---- records -------------------------------------------------------------------------------- */

static const char *line_end(const struct fasta *fasta, const char *at)
{
    const char *end = memchr(at, '\n', (size_t)(fasta->end - at));

    return end ? end : fasta->end;
}

/* The next '>' at the start of a line, behind the line at `at`. */
static const char *next_record(const struct fasta *fasta, const char *at)
{
    do {
        at = line_end(fasta, at);
        at += at < fasta->end;
    } while (at < fasta->end && *at != '>');
    return at;
}

/* To the next record that is this replica's; it is the one at hand, if that is. */
static void find_mine(struct fasta_iter *it)
{
    while (it->at < it->fasta->end && it->record % it->all != it->mine) {
        it->at = next_record(it->fasta, it->at);
        it->record++;
    }
}

static void pass(struct fasta_iter *it)
{
    it->at = next_record(it->fasta, it->at);
    it->record++;
}

/* ---- samples -------------------------------------------------------------------------------- */

/* The bases of the lines in begin..end, blanks left out, to `out`, which has room; their number. */
static uint64_t read_bases(const struct fasta *fasta, const char *begin, const char *end,
                           uint8_t *out)
{
    uint64_t n = 0;

    for (const char *c = begin; c < end; c++)
        if (!isspace((unsigned char)*c))
            out[n++] = fasta->bases[(unsigned char)*c];
    return n;
}

static int add_record(const struct fasta *fasta, const char *at, const char *end,
                      struct dl_plugin_sample *sample, struct dl_plugin_rng *rng)
{
    const struct dl_plugin_host *host = fasta->host;
    const char *head_end = line_end(fasta, at), *id_end = ++at;
    uint8_t *bases = host->alloc(sample, (size_t)(end - head_end));
    uint64_t n, first = 0;

    if (!bases)
        return host->fail(host, ENOMEM, "a record of %llu bytes does not fit the memory",
                          (unsigned long long)(end - at));
    while (id_end < head_end && !isspace((unsigned char)*id_end))
        id_end++;
    n = read_bases(fasta, head_end, end, bases);
    if (fasta->window > 0 && n > fasta->window) {
        first = host->below(rng, n - fasta->window + 1);
        n = fasta->window;
    }
    host->begin(sample, DL_PLUGIN_DICT, NULL);
    host->string(sample, "id", at, (size_t)(id_end - at));
    host->tensor(sample, "bases", DL_PLUGIN_UINT8, 1, &n, bases + first);
    return host->end(sample);
}

static int fasta_next(void *iter, struct dl_plugin_sample *sample, struct dl_plugin_rng *rng)
{
    struct fasta_iter *it = iter;
    const struct fasta *fasta = it->fasta;

    find_mine(it);
    if (it->at == fasta->end)
        return DL_PLUGIN_END;
    const char *record = it->at;
    pass(it);
    return add_record(fasta, record, it->at, sample, rng);
}

/* What is skipped is looked through for its end, and not read. */
static int fasta_skip(void *iter, uint64_t n)
{
    struct fasta_iter *it = iter;

    for (; n > 0; n--) {
        find_mine(it);
        if (it->at == it->fasta->end)
            return DL_PLUGIN_END;
        pass(it);
    }
    return 0;
}

static int fasta_iterate(void *handle, const struct dl_plugin_replica *replica, void **ret)
{
    const struct fasta *fasta = handle;
    struct fasta_iter *it = malloc(sizeof *it);

    if (!it)
        return fasta->host->fail(fasta->host, ENOMEM, "out of memory");
    *it = (struct fasta_iter){
        .fasta = fasta,
        .at = fasta->data,
        .mine = (uint64_t)replica->rank * replica->workers + replica->worker,
        .all = (uint64_t)replica->world * replica->workers,
    };
    *ret = it;
    return 0;
}

/* Where a replica stands: the record at hand, and where it begins. */
struct fasta_place {
    uint64_t offset;
    uint64_t record;
};

static int fasta_save_state(void *iter, void *state, size_t room, size_t *ret_bytes)
{
    const struct fasta_iter *it = iter;
    struct fasta_place place = {(uint64_t)(it->at - it->fasta->data), it->record};

    *ret_bytes = sizeof place;
    if (room >= sizeof place)
        memcpy(state, &place, sizeof place);
    return 0;
}

/* What comes from outside may say anything: it must be the beginning of a record, or the end. */
static int fasta_load_state(void *handle, const struct dl_plugin_replica *replica,
                            const void *state, size_t bytes, void **ret)
{
    const struct fasta *fasta = handle;
    const uint64_t size = (uint64_t)(fasta->end - fasta->data);
    struct fasta_place place;

    if (bytes != sizeof place)
        return fasta->host->fail(fasta->host, EINVAL, "%zu bytes are not a state", bytes);
    memcpy(&place, state, sizeof place);
    if (place.offset > size || (place.offset < size && fasta->data[place.offset] != '>'))
        return fasta->host->fail(fasta->host, EINVAL,
                                 "no record begins at byte %llu, where the state says; the file "
                                 "was changed: start the epoch from its beginning",
                                 (unsigned long long)place.offset);
    int r = fasta_iterate(handle, replica, ret);
    if (r < 0)
        return r;
    struct fasta_iter *it = *ret;
    it->at = fasta->data + place.offset;
    it->record = place.record;
    return 0;
}

static void fasta_iter_close(void *iter)
{
    free(iter);
}

/* ---- opening -------------------------------------------------------------------------------- */

static void number_bases(struct fasta *fasta)
{
    static const char *const letters[] = {"Aa", "Cc", "Gg", "TtUu"};

    memset(fasta->bases, OTHER_BASE, sizeof fasta->bases);
    for (int i = 0; i < OTHER_BASE; i++)
        for (const char *c = letters[i]; *c; c++)
            fasta->bases[(unsigned char)*c] = (uint8_t)i;
}

static int map_file(struct fasta *fasta, const char *path)
{
    const struct dl_plugin_host *host = fasta->host;
    const void *data;
    uint64_t bytes;
    int r = host->map(host, path, &data, &bytes);

    if (r < 0)
        return r;
    fasta->data = data;
    fasta->end = fasta->data + bytes;
    if (bytes > 0 && *fasta->data != '>')
        return host->fail(host, EINVAL, "%s: is not a FASTA file: it does not begin with '>'",
                          path);
    return 0;
}

static int fasta_open(const struct dl_plugin_host *host, const char *config, void **ret)
{
    struct fasta *fasta = calloc(1, sizeof *fasta);
    json_t *json = json_loads(config, 0, NULL);
    const char *path;
    json_int_t window = 0;
    int r;

    if (!fasta) {
        r = host->fail(host, ENOMEM, "out of memory");
    } else if (!json || json_unpack(json, "{s:s, s?I}", "path", &path, "window", &window) < 0 ||
               window < 0) {
        r = host->fail(host, EINVAL, "config is not {path: text, window: number of bases}: %.200s",
                       config);
    } else {
        fasta->host = host;
        fasta->window = (uint64_t)window;
        number_bases(fasta);
        r = map_file(fasta, path);
    }
    json_decref(json);
    if (r < 0)
        free(fasta);
    else
        *ret = fasta;
    return r;
}

static void fasta_close(void *handle)
{
    free(handle);
}

static const struct dl_plugin fasta_plugin = {
    .abi = DL_PLUGIN_ABI,
    .size = sizeof fasta_plugin,
    .open = fasta_open,
    .close = fasta_close,
    .iterate = fasta_iterate,
    .next = fasta_next,
    .skip = fasta_skip,
    .iter_close = fasta_iter_close,
    .save_state = fasta_save_state,
    .load_state = fasta_load_state,
};

const struct dl_plugin *dl_plugin_entry(void)
{
    return &fasta_plugin;
}
