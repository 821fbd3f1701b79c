/*
 * Reader of NumPy's .npy files, versions 1.0, 2.0 and 3.0.
 *
 * The header is a Python dict literal: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
 * Only that form is accepted, with its three keys once each in any order and spacing; nothing is
 * evaluated. Files that NumPy can load but that are not tables of numbers are refused, with the
 * command that converts them.
 */
#include "daemon/data/kinds/arrays/array.h"

#include <errno.h>
#include <stdio.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian files are used in place");

enum {
    NPY_PREFIX_BYTES = 8,      /* magic, major, minor */
    NPY_HEADER_MAX = 64 << 10, /* of a plain array it is 118 bytes */
    NPY_DESCR_MAX = 16,        /* with the final NUL */
};

static const uint8_t npy_magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* The text between `at` and `end`, and the file's path for errors. */
struct npy_text {
    const char *at;
    const char *end;
    const char *path;
    struct dl_error *err;
};

/* The dict's values; `seen` has a bit for each key. */
struct npy_dict {
    char descr[NPY_DESCR_MAX];
    bool fortran;
    uint32_t ndim;
    uint64_t shape[TREE_DIMS];
    unsigned seen;
};

enum npy_key { NPY_KEY_DESCR = 1, NPY_KEY_FORTRAN = 2, NPY_KEY_SHAPE = 4, NPY_KEY_ALL = 7 };

static void npy_skip_space(struct npy_text *text)
{
    while (text->at < text->end &&
           (*text->at == ' ' || *text->at == '\t' || *text->at == '\n' || *text->at == '\r'))
        text->at++;
}

/* The next character that is not a space; NUL at the end. */
static char npy_peek(struct npy_text *text)
{
    npy_skip_space(text);
    return text->at < text->end ? *text->at : '\0';
}

static bool npy_take(struct npy_text *text, char c)
{
    if (text->at == text->end || npy_peek(text) != c || c == '\0')
        return false;
    text->at++;
    return true;
}

static bool npy_take_word(struct npy_text *text, const char *word)
{
    size_t len = strlen(word);

    npy_skip_space(text);
    if ((size_t)(text->end - text->at) < len || memcmp(text->at, word, len) != 0)
        return false;
    text->at += len;
    return true;
}

static int npy_damaged(const struct npy_text *text, const char *what)
{
    return dl_error_set(text->err, EINVAL, text->path,
                        "its .npy header is damaged: %s; write the file again with numpy.save",
                        what);
}

/* A quoted string without escapes: names and number types never have escapes. */
static int npy_take_string(struct npy_text *text, char *ret, size_t room)
{
    char quote = npy_peek(text);
    size_t len = 0;

    if (quote != '\'' && quote != '"')
        return npy_damaged(text, "a quoted string is missing");
    text->at++;
    while (text->at < text->end && *text->at != quote) {
        if (*text->at < ' ' || *text->at > '~' || *text->at == '\\' || len + 1 >= room)
            return npy_damaged(text, "a string in it is too long or has odd characters");
        ret[len++] = *text->at++;
    }
    if (text->at == text->end)
        return npy_damaged(text, "a string has no end");
    text->at++;
    ret[len] = '\0';
    return 0;
}

static int npy_take_descr(struct npy_text *text, struct npy_dict *dict)
{
    char c = npy_peek(text);

    if (c == '[' || c == '(' || c == '{')
        return dl_error_set(text->err, EINVAL, text->path,
                            "holds a structured dtype; save each of its fields as a file of its "
                            "own: numpy.save('FIELD.npy', array['FIELD'])");
    return npy_take_string(text, dict->descr, sizeof dict->descr);
}

static int npy_take_bool(struct npy_text *text, bool *ret)
{
    if (npy_take_word(text, "True"))
        *ret = true;
    else if (npy_take_word(text, "False"))
        *ret = false;
    else
        return npy_damaged(text, "fortran_order is neither True nor False");
    return 0;
}

static int npy_take_dimension(struct npy_text *text, uint64_t *ret)
{
    uint64_t n = 0;
    unsigned digits = 0;

    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++, digits++) {
        if (mul_overflows(n, 10, &n) || add_overflows(n, (uint64_t)(*text->at - '0'), &n))
            return npy_damaged(text, "a dimension is beyond 2^64");
    }
    if (digits == 0)
        return npy_damaged(text, "shape is not a tuple of whole numbers");
    /* Python 2 wrote long integers as 3L. */
    if (text->at < text->end && *text->at == 'L')
        text->at++;
    *ret = n;
    return 0;
}

/* (), (3,), (3, 4) or (3, 4,); but not (3), which is a number in Python. */
static int npy_take_shape(struct npy_text *text, struct npy_dict *dict)
{
    bool comma = true;
    int r;

    if (!npy_take(text, '('))
        return npy_damaged(text, "shape is not a tuple");
    for (dict->ndim = 0; npy_peek(text) != ')'; dict->ndim++) {
        if (!comma)
            return npy_damaged(text, "the dimensions of shape are not separated by commas");
        if (dict->ndim == TREE_DIMS)
            return dl_error_set(text->err, EINVAL, text->path,
                                "has more than %u dimensions; reshape it to fewer",
                                (unsigned)TREE_DIMS);
        r = npy_take_dimension(text, &dict->shape[dict->ndim]);
        if (r < 0)
            return r;
        comma = npy_take(text, ',');
    }
    text->at++;
    if (dict->ndim == 1 && !comma)
        return npy_damaged(text, "shape is a number, not a tuple");
    return 0;
}

static int npy_take_entry(struct npy_text *text, struct npy_dict *dict)
{
    char key[NPY_DESCR_MAX];
    unsigned bit;
    int r;

    r = npy_take_string(text, key, sizeof key);
    if (r < 0)
        return r;
    if (strcmp(key, "descr") == 0)
        bit = NPY_KEY_DESCR;
    else if (strcmp(key, "fortran_order") == 0)
        bit = NPY_KEY_FORTRAN;
    else if (strcmp(key, "shape") == 0)
        bit = NPY_KEY_SHAPE;
    else
        return npy_damaged(text, "it has a key that is not descr, fortran_order or shape");
    if (dict->seen & bit)
        return npy_damaged(text, "a key occurs twice");
    dict->seen |= bit;
    if (!npy_take(text, ':'))
        return npy_damaged(text, "a key has no value");
    if (bit == NPY_KEY_DESCR)
        return npy_take_descr(text, dict);
    if (bit == NPY_KEY_FORTRAN)
        return npy_take_bool(text, &dict->fortran);
    return npy_take_shape(text, dict);
}

static int npy_take_dict(struct npy_text *text, struct npy_dict *dict)
{
    bool comma = true;
    int r;

    if (!npy_take(text, '{'))
        return npy_damaged(text, "it is not a dict");
    while (npy_peek(text) != '}') {
        if (!comma)
            return npy_damaged(text, "its entries are not separated by commas");
        r = npy_take_entry(text, dict);
        if (r < 0)
            return r;
        comma = npy_take(text, ',');
    }
    text->at++;
    npy_skip_space(text);
    if (text->at != text->end)
        return npy_damaged(text, "something follows its dict");
    if (dict->seen != NPY_KEY_ALL)
        return npy_damaged(text, "one of descr, fortran_order and shape is missing");
    return 0;
}

/* "<f4" → float32. `|` (no byte order) is for types of one byte, to which `<` and `>` don't matter.
 */
static int npy_parse_descr(const struct npy_text *text, const char *descr, uint32_t *ret)
{
    uint32_t dtype;

    if (descr[0] == '\0' || !strchr("<>|=", descr[0]) || dtype_from_numpy(descr + 1, &dtype) < 0 ||
        descr[1] == '\0' || (descr[0] == '|' && dtype_bytes(dtype) > 1))
        return dl_error_set(text->err, EINVAL, text->path,
                            "its dtype '%s' is not a number type that tensors have (bool, int8 to "
                            "int64, uint8 to uint64, float16 to float64, complex64, complex128); "
                            "convert it with array.astype",
                            descr);
    *ret = dtype;
    return 0;
}

static int npy_check_rows(const struct npy_text *text, const struct npy_dict *dict)
{
    if (dict->ndim == 0)
        return dl_error_set(text->err, EINVAL, text->path,
                            "holds a single number without dimensions; the first dimension "
                            "counts the samples");
    return 0;
}

/* Files that people take for .npy, by how they start. */
static int npy_refuse_magic(const uint8_t *data, uint64_t len, const char *path,
                            struct dl_error *err)
{
    if (len >= 2 && data[0] == 0x1f && data[1] == 0x8b)
        return dl_error_set(err, EINVAL, path,
                            "is compressed by gzip; unpack it with gunzip, so that it can be "
                            "mapped");
    if (len >= 4 && memcmp(data, "PK\3\4", 4) == 0)
        return dl_error_set(err, EINVAL, path,
                            "is a zip archive (.npz); save each of its arrays with numpy.save");
    return dl_error_set(err, EINVAL, path, "does not start with \\x93NUMPY; it is not a .npy file");
}

/* Where the header's text lies: [*ret_off, *ret_off + *ret_len), inside `len`. */
static int npy_find_header(const uint8_t *data, uint64_t len, const char *path, uint64_t *ret_off,
                           uint64_t *ret_len, struct dl_error *err)
{
    uint64_t off, text_len = 0;

    if (len == 0)
        return dl_error_set(err, EINVAL, path, "is empty; a .npy file needs a header");
    if (memcmp(data, npy_magic, min_u64(len, sizeof npy_magic)) != 0)
        return npy_refuse_magic(data, len, path, err);
    if (len >= NPY_PREFIX_BYTES && (data[6] < 1 || data[6] > 3 || data[7] != 0))
        return dl_error_set(err, EINVAL, path,
                            "is .npy version %u.%u; 1.0, 2.0 and 3.0 can be read", data[6],
                            data[7]);
    off = NPY_PREFIX_BYTES + (len > 6 && data[6] == 1 ? 2 : 4);
    for (uint64_t i = NPY_PREFIX_BYTES; i < off && off <= len; i++)
        text_len |= (uint64_t)data[i] << (8 * (i - NPY_PREFIX_BYTES));
    if (text_len > NPY_HEADER_MAX)
        return dl_error_set(err, EINVAL, path,
                            "its .npy header claims %llu bytes; that of a plain array is below "
                            "%u: the file is damaged",
                            (ull)text_len, (unsigned)NPY_HEADER_MAX);
    if (len < off + text_len)
        return dl_error_set(err, EINVAL, path,
                            "ends inside its .npy header, after %llu bytes; it is truncated",
                            (ull)len);
    *ret_off = off;
    *ret_len = text_len;
    return 0;
}

bool npy_is(const uint8_t *data, uint64_t len)
{
    return len >= sizeof npy_magic && memcmp(data, npy_magic, sizeof npy_magic) == 0;
}

static int npy_parse_either(const uint8_t *data, uint64_t len, const char *path, bool rows,
                            struct array_header *ret, struct dl_error *err)
{
    struct npy_text text = {.path = path, .err = err};
    struct array_header header = {0};
    struct npy_dict dict = {0};
    uint64_t off = 0, text_len = 0;
    int r;

    r = npy_find_header(data, len, path, &off, &text_len, err);
    if (r < 0)
        return r;
    text.at = (const char *)data + off;
    text.end = text.at + text_len;
    if ((r = npy_take_dict(&text, &dict)) < 0 ||
        (r = npy_parse_descr(&text, dict.descr, &header.dtype)) < 0 ||
        (rows && (r = npy_check_rows(&text, &dict)) < 0))
        return r;
    header.order.swapped = dict.descr[0] == '>' && dtype_bytes(header.dtype) > 1;
    header.order.fortran = dict.fortran && dict.ndim > 1;
    header.ndim = dict.ndim;
    memcpy(header.shape, dict.shape, dict.ndim * sizeof *dict.shape);
    header.data_off = off + text_len;
    r = array_header_measure(&header, path, err);
    if (r < 0)
        return r;
    *ret = header;
    return 0;
}

int npy_parse(const uint8_t *data, uint64_t len, const char *path, struct array_header *ret,
              struct dl_error *err)
{
    return npy_parse_either(data, len, path, true, ret, err);
}

int npy_parse_value(const uint8_t *data, uint64_t len, const char *path, struct array_header *ret,
                    struct dl_error *err)
{
    return npy_parse_either(data, len, path, false, ret, err);
}

int array_open_npy(const char *path, const struct data_env *env, struct array *ret,
                   struct dl_error *err)
{
    _cleanup_(source_close) struct source source = {0};
    struct array_header header = {0};
    int r;

    if ((r = source_open(path, env, &source, err)) < 0 ||
        (r = npy_parse(source.data, source.bytes, path, &header, err)) < 0 ||
        (r = array_header_fits(&header, source.bytes, path, err)) < 0)
        return r;
    array_init(ret, &header, &source, source.data + header.data_off);
    return 0;
}
