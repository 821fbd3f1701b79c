/*
 * From the members of a tar file to samples, by WebDataset's rules.
 *
 * Members that follow one another and have the same name up to the first dot behind the last slash
 * are one sample. The text after that dot, in lower case (ASCII), is the field. Members without
 * one, or with nothing before it, and those at the top whose name is __so__, belong to no sample;
 * nor do directories, links and devices. The sample is {"__key__": name, field: ..., ...}, in the
 * order of the members. Its last extension decides what a field becomes:
 *
 *   jpg jpeg png        uint8 [H, W, 3] or what image.h makes of it
 *   cls cls2 index id   int64, of decimal digits
 *   txt text            string (UTF-8), as it is
 *   json                the same nested: numbers, bool, strings, lists and dicts
 *   npy                 tensor
 *   npz                 a dict of the tensors that are in it, by their names (npz.h)
 *   those of dataset.audio   tensor of a sound, as audio.h makes it
 *   gz zst              unpacked, then by the extension before it
 *   others, or all if they are not to be decoded: bytes
 *
 * If fields are chosen, a sample has only these, in the order of their new names; "__key__" is one
 * of them; of several extensions with ';' between them the first existing one is used.
 *
 * Bytes, strings and tensors stay in the mapped file. Pure but for the memory.
 * webdataset/tariterators.py: base_plus_ext, group_by_keys; autodecode.py: decoders.
 */
#ifndef DL_DATA_TAR_SAMPLE_H
#define DL_DATA_TAR_SAMPLE_H

#include "daemon/data/field/field.h"
#include "daemon/data/kinds/tar/tar_reader.h"

/* One member on its way into a sample. */
struct tar_field {
    const char *path;   /* of the file */
    const char *member; /* its name; NULL: it is the whole file */
    uint64_t offset;    /* of its header */
    const char *key;    /* the field's name in the sample; NULL: it is the sample */
    const char *source; /* and in the shard */
    const char *extension;
    const uint8_t *data;
    uint64_t size;
};

/*
 * Passes over the sample that begins at *offset of the file. 0, and *offset is its end; TAR_END: no
 * more samples; -EINVAL with `err`: the file is damaged in it, *offset stays.
 */
int _nodiscard_ tar_scan(const struct tar_view *view, uint64_t *offset, struct dl_error *err);

/* The sample at `offset`, appended to the empty `ret`; `decoding` is not NULL. Negative errno with
 * `err`; never TAR_END where tar_scan() found one. */
int _nodiscard_ tar_make(const struct tar_view *view, uint64_t offset,
                         const struct decoding *decoding, struct sample *ret, struct dl_error *err);

/* "SHARD.tar: cats/0017.jpg", of the first member of the sample at `offset`: as dataset_ops.name.
 * 0: unknown. */
size_t tar_put_name(const struct tar_view *view, uint64_t offset, char *ret, size_t room);

/*
 * Adds field `f`, by its extension, at the end of `ret`. Negative errno with `err`, or with the
 * error that sticks in `ret`, which the caller explains. tar_fields.c
 */
int _nodiscard_ tar_add_field(const struct tar_field *f, const struct decoding *decoding,
                              struct sample *ret, struct dl_error *err);

/* "member a/b.cls at byte 512: " and the error; returns -code. */
int tar_field_error(const struct tar_field *f, int code, struct dl_error *err, const char *fmt, ...)
    _printf_(4, 5);

#endif
