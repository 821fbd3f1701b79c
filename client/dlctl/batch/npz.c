/* The door to libzip, which does the archive: see npz.h. */
#include "client/dlctl/batch/npz.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <zip.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers say little-endian");

enum { HEADER_MAX = 448, HEADER_ALIGN = 64, SUFFIX_MAX = 8 };

/* Members have the earliest time that a .zip knows: the same batch gives the same file. */
enum { DOS_DATE = (1 << 5) | 1 };

struct npz {
    zip_t *zip;
    char *path; /* owned */
};

/* ---- members -------------------------------------------------------------------------------- */

/* What libzip reads, when the archive is written: a header, and the array where it lies. */
struct member {
    char header[HEADER_MAX];
    size_t header_len;
    const char *data;
    uint64_t nbytes;
    void *owned;
    uint64_t at; /* of the two, one behind the other */
    zip_error_t error;
};

/* Magic, version 1.0, the length of the rest; padded, so that the data is aligned. */
static void write_header(struct member *m, const struct npz_array *array)
{
    static const char magic[] = "\x93NUMPY\x01\x00";
    const char *order =
        array->type[0] != 'U' && strcmp(array->type + 1, "1") == 0 ? "|" : "<"; /* none of bytes */
    size_t start = sizeof magic - 1 + 2, n = start;

    n += (size_t)snprintf(m->header + n, sizeof m->header - n,
                          "{'descr': '%s%s', 'fortran_order': False, 'shape': (", order,
                          array->type);
    for (uint32_t d = 0; d < array->ndim; d++)
        n +=
            (size_t)snprintf(m->header + n, sizeof m->header - n, "%" PRIu64 ", ", array->shape[d]);
    n += (size_t)snprintf(m->header + n, sizeof m->header - n, "), }");
    while ((n + 1) % HEADER_ALIGN != 0)
        m->header[n++] = ' ';
    m->header[n++] = '\n';
    memcpy(m->header, magic, sizeof magic - 1);
    m->header[start - 2] = (char)((n - start) & 0xFF);
    m->header[start - 1] = (char)((n - start) >> 8);
    m->header_len = n;
}

static zip_int64_t member_read(struct member *m, char *to, uint64_t len)
{
    uint64_t all = m->header_len + m->nbytes, done = 0;

    while (done < len && m->at < all) {
        bool in_header = m->at < m->header_len;
        const char *from = in_header ? m->header + m->at : m->data + (m->at - m->header_len);
        uint64_t n = min_u64(len - done, (in_header ? m->header_len : all) - m->at);

        memcpy(to + done, from, n);
        done += n;
        m->at += n;
    }
    return (zip_int64_t)done;
}

static zip_int64_t member_stat(const struct member *m, void *to)
{
    zip_stat_t *stat = to;

    zip_stat_init(stat);
    stat->size = m->header_len + m->nbytes;
    stat->valid = ZIP_STAT_SIZE;
    return sizeof *stat;
}

static zip_int64_t member_call(void *owner, void *to, zip_uint64_t len, zip_source_cmd_t what)
{
    struct member *m = owner;

    switch (what) {
    case ZIP_SOURCE_OPEN:
        m->at = 0;
        return 0;
    case ZIP_SOURCE_READ:
        return member_read(m, to, len);
    case ZIP_SOURCE_CLOSE:
        return 0;
    case ZIP_SOURCE_STAT:
        return member_stat(m, to);
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&m->error, to, len);
    case ZIP_SOURCE_FREE:
        free(m->owned);
        free(m);
        return 0;
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              -1);
    default:
        zip_error_set(&m->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

/* ---- what ends dlctl while it writes -------------------------------------------------------- */

/*
 * libzip writes to a file beside the one that is meant, and takes it away if it gives up by itself,
 * not if a signal ends the process. So these wait, and libzip is made to give up.
 */
struct interruption {
    sigset_t awaited, before;
};

static void interruption_begin(struct interruption *i)
{
    static const int ending[] = {SIGHUP, SIGINT, SIGTERM};

    sigemptyset(&i->awaited);
    sigprocmask(SIG_BLOCK, NULL, &i->before);
    for (size_t n = 0; n < ARRAY_SIZE(ending); n++) {
        struct sigaction now;

        /* nohup(1) ignores one, and somebody may have blocked one: they end nothing. */
        if (sigaction(ending[n], NULL, &now) == 0 && now.sa_handler == SIG_DFL &&
            sigismember(&i->before, ending[n]) == 0)
            sigaddset(&i->awaited, ending[n]);
    }
    sigprocmask(SIG_BLOCK, &i->awaited, NULL);
}

/* The signal that has come ends the process here. */
static void interruption_end(const struct interruption *i)
{
    sigprocmask(SIG_SETMASK, &i->before, NULL);
}

static int is_interrupted(zip_t *zip, void *data)
{
    const struct interruption *i = data;
    sigset_t pending, both;

    (void)zip;
    return sigpending(&pending) == 0 && sigandset(&both, &pending, &i->awaited) == 0 &&
           !sigisemptyset(&both);
}

/* ---- the archive ---------------------------------------------------------------------------- */

static int fail(const char *path, zip_error_t *error, struct dl_error *err)
{
    bool of_system = zip_error_system_type(error) == ZIP_ET_SYS;
    int code = of_system                                    ? zip_error_code_system(error)
               : zip_error_code_zip(error) == ZIP_ER_MEMORY ? ENOMEM
                                                            : EIO;

    return dl_error_set(err, code ? code : EIO, path, "%s", zip_error_strerror(error));
}

int npz_begin(const char *path, struct npz **ret, struct dl_error *err)
{
    struct npz *npz = calloc(1, sizeof *npz);
    int code = 0;

    if (npz)
        npz->path = strdup(path);
    if (!npz || !npz->path) {
        free(npz);
        return dl_error_set(err, ENOMEM, path, "%s", strerror(ENOMEM));
    }
    npz->zip = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
    if (!npz->zip) {
        zip_error_t error;

        zip_error_init_with_code(&error, code);
        int r = fail(path, &error, err);
        zip_error_fini(&error);
        npz_discard(npz);
        return r;
    }
    *ret = npz;
    return 0;
}

static void member_name(const char *name, char ret[NPZ_NAME_MAX + SUFFIX_MAX])
{
    (void)snprintf(ret, NPZ_NAME_MAX + SUFFIX_MAX, "%.*s.npy", NPZ_NAME_MAX, name);
}

bool npz_has(struct npz *npz, const char *name)
{
    char file[NPZ_NAME_MAX + SUFFIX_MAX];

    member_name(name, file);
    return zip_name_locate(npz->zip, file, ZIP_FL_ENC_UTF_8) >= 0;
}

int npz_add(struct npz *npz, const char *name, const struct npz_array *array, struct dl_error *err)
{
    struct member *m = calloc(1, sizeof *m);
    char file[NPZ_NAME_MAX + SUFFIX_MAX];
    zip_source_t *source;

    if (!m) {
        free(array->owned);
        return dl_error_set(err, ENOMEM, npz->path, "%s", strerror(ENOMEM));
    }
    write_header(m, array);
    m->data = array->data;
    m->nbytes = array->nbytes;
    m->owned = array->owned;
    zip_error_init(&m->error);
    source = zip_source_function(npz->zip, member_call, m);
    if (!source) {
        free(m->owned);
        free(m);
        return fail(npz->path, zip_get_error(npz->zip), err);
    }
    member_name(name, file);
    zip_int64_t at = zip_file_add(npz->zip, file, source, ZIP_FL_ENC_UTF_8);
    if (at < 0) {
        int r = fail(npz->path, zip_get_error(npz->zip), err);
        zip_source_free(source);
        return r;
    }
    if (zip_set_file_compression(npz->zip, (zip_uint64_t)at, ZIP_CM_STORE, 0) < 0 ||
        zip_file_set_dostime(npz->zip, (zip_uint64_t)at, 0, DOS_DATE, 0) < 0)
        return fail(npz->path, zip_get_error(npz->zip), err);
    return 0;
}

int npz_end(struct npz *npz, struct dl_error *err)
{
    struct interruption interruption;
    int r = 0;

    interruption_begin(&interruption);
    if (zip_register_cancel_callback_with_state(npz->zip, is_interrupted, NULL, &interruption) <
            0 ||
        zip_close(npz->zip) < 0)
        r = fail(npz->path, zip_get_error(npz->zip), err);
    else
        npz->zip = NULL;
    npz_discard(npz);
    interruption_end(&interruption);
    return r;
}

struct npz *npz_discard(struct npz *npz)
{
    if (!npz)
        return NULL;
    if (npz->zip)
        zip_discard(npz->zip);
    free(npz->path);
    free(npz);
    return NULL;
}
