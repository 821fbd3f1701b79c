/* A whole file, for programs that compare what is made of it. */
#ifndef DL_TEST_READ_FILE_H
#define DL_TEST_READ_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Its bytes, to be freed; NULL: it cannot be read. */
static inline uint8_t *read_file(const char *path, size_t *ret)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    long size;

    if (file && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0) {
        rewind(file);
        data = malloc((size_t)size + 1);
        *ret = data ? fread(data, 1, (size_t)size, file) : 0;
    }
    if (file)
        fclose(file);
    return data;
}

#endif
