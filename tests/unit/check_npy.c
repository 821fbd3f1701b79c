/*
 * Reads the files that make_npy.py wrote with NumPy. Standard input has a line for each:
 *   ok PATH DTYPE NDIM DIM...     PATH.raw holds the same array as raw bytes
 *   refused PATH MESSAGE          the error must contain MESSAGE
 */
#include "daemon/data/kinds/arrays/array.h"

#include <stdio.h>

static int wrong(const char *path, const char *what)
{
    printf("%s: %s\n", path, what);
    return 1;
}

static int compare_rows(const struct array *array, const char *path)
{
    uint64_t bytes = array->count * array->row_bytes;
    _cleanup_free_ uint8_t *want = malloc(bytes + 1), *got = malloc(bytes + 1);
    char raw[4200];

    snprintf(raw, sizeof raw, "%s.raw", path);
    FILE *file = fopen(raw, "rb");
    if (!file)
        return wrong(raw, "is missing");
    size_t read = fread(want, 1, bytes + 1, file);
    fclose(file);
    if (read != bytes)
        return wrong(path, "has another number of bytes than NumPy's array");
    for (uint64_t i = 0; i < array->count; i++) {
        if (array_read_rows(array, &i, 1, got + i * array->row_bytes) != 1)
            return wrong(path, "a row is missing");
    }
    return memcmp(want, got, bytes) == 0 ? 0 : wrong(path, "has other bytes than NumPy's array");
}

static int check_ok(const char *path, char *rest)
{
    struct array array;
    struct dl_error err = {0};
    uint32_t dtype;
    int failed;

    if (array_open_npy(path, &(struct data_env){0}, &array, &err) < 0)
        return wrong(path, err.message);
    char *name = strtok(rest, " ");
    unsigned long ndim = strtoul(strtok(NULL, " "), NULL, 10);
    if (dtype_from_name(name, &dtype) < 0 || dtype != array.dtype)
        failed = wrong(path, "has the wrong dtype");
    else if (ndim != array.ndim + 1 || strtoull(strtok(NULL, " "), NULL, 10) != array.count)
        failed = wrong(path, "has the wrong number of dimensions or rows");
    else
        failed = compare_rows(&array, path);
    for (uint32_t i = 0; i < array.ndim && !failed; i++) {
        if (strtoull(strtok(NULL, " "), NULL, 10) != array.shape[i])
            failed = wrong(path, "has the wrong shape");
    }
    array_deinit(&array);
    return failed;
}

static int check_refused(const char *path, const char *message)
{
    struct array array;
    struct dl_error err = {0};

    if (array_open_npy(path, &(struct data_env){0}, &array, &err) == 0) {
        array_deinit(&array);
        return wrong(path, "was accepted");
    }
    return strstr(err.message, message) ? 0 : wrong(path, err.message);
}

int main(void)
{
    char line[8192];
    unsigned lines = 0;
    int failed = 0;

    for (; fgets(line, sizeof line, stdin); lines++) {
        line[strcspn(line, "\n")] = '\0';
        char *path = strchr(line, ' ');
        char *rest = path ? strchr(path + 1, ' ') : NULL;
        if (!rest)
            return wrong(line, "is no line of make_npy.py");
        *path++ = *rest++ = '\0';
        failed += strcmp(line, "ok") == 0 ? check_ok(path, rest) : check_refused(path, rest);
    }
    printf("%u files, %d wrong\n", lines, failed);
    return lines == 0 || failed > 0;
}
