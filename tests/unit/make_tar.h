/* Building tar files in memory, as tests want them: good, and wrong in one place. */
#ifndef DL_TEST_MAKE_TAR_H
#define DL_TEST_MAKE_TAR_H

#include "daemon/data/kinds/tar/tar_reader.h"

#include <assert.h>
#include <stdio.h>

enum { TAR_ROOM = 1 << 20 };

struct tar_file {
    uint8_t *data; /* owned; TAR_ROOM of it */
    size_t len;
};

static inline struct tar_file tar_new(void)
{
    return (struct tar_file){.data = calloc(1, TAR_ROOM)};
}

static inline void tar_free(struct tar_file *tar)
{
    free(tar->data);
    *tar = (struct tar_file){0};
}

/* After anything in the header was changed. */
static inline void tar_sum(uint8_t *header)
{
    unsigned sum = 0;

    memset(header + 148, ' ', 8);
    for (int i = 0; i < TAR_BLOCK; i++)
        sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
}

/* A header without data; returns it. `magic`: "ustar", "ustar  " (GNU's) or "" (older). */
static inline uint8_t *tar_header(struct tar_file *tar, const char *magic, const char *name,
                                  char type, size_t size)
{
    uint8_t *header = tar->data + tar->len;

    assert(tar->len + TAR_BLOCK + size + TAR_BLOCK <= TAR_ROOM);
    memset(header, 0, TAR_BLOCK);
    memcpy(header, name, min_u64(strlen(name), 100));
    snprintf((char *)header + 100, 8, "%07o", 0644U);
    snprintf((char *)header + 124, 12, "%011o", (unsigned)size);
    header[156] = (uint8_t)type;
    memcpy(header + 257, magic, strlen(magic));
    if (strcmp(magic, "ustar") == 0)
        memcpy(header + 263, "00", 2);
    tar_sum(header);
    tar->len += TAR_BLOCK;
    return header;
}

static inline void tar_data(struct tar_file *tar, const void *data, size_t size)
{
    size_t whole = (size_t)align_up(size, TAR_BLOCK);

    memset(tar->data + tar->len, 0, whole);
    memcpy(tar->data + tar->len, data, size);
    tar->len += whole;
}

static inline void tar_member(struct tar_file *tar, const char *name, char type, const void *data,
                              size_t size)
{
    tar_header(tar, "ustar", name, type, size);
    tar_data(tar, data, size);
}

/* A file of text. */
static inline void tar_text(struct tar_file *tar, const char *name, const char *text)
{
    tar_member(tar, name, '0', text, strlen(text));
}

static inline void tar_end(struct tar_file *tar)
{
    memset(tar->data + tar->len, 0, 2 * TAR_BLOCK);
    tar->len += (size_t)2 * TAR_BLOCK;
}

/* "LEN KEY=VALUE\n"; returns its length. */
static inline size_t pax_record(char *out, size_t room, const char *key, const char *value)
{
    size_t body = strlen(key) + strlen(value) + 3, len = body + 1;

    while (len != body + (size_t)snprintf(NULL, 0, "%zu", len))
        len++;
    return (size_t)snprintf(out, room, "%zu %s=%s\n", len, key, value);
}

static inline void tar_pax(struct tar_file *tar, const char *key, const char *value)
{
    char record[8192];

    tar_member(tar, "PaxHeader", 'x', record, pax_record(record, sizeof record, key, value));
}

#endif
