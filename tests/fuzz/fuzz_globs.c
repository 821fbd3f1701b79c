/*
 * Lists of files as a spec writes them. Whatever the patterns are: the list is within its bounds,
 * and a pattern is never answered outside the one root that is allowed.
 *
 * Input: patterns, with newlines between; the first byte says whether there is a root.
 */
#include "tests/fuzz/fuzz.h"

#include "daemon/data/files/globs.h"

#include <errno.h>

enum { PATTERNS = 4, LONGEST = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    /* Where nothing is, so that it is not the machine's files that are looked through. */
    static const char below[] = "/nonexistent/";
    char text[PATTERNS][LONGEST + 2];
    struct spec_file files[PATTERNS];
    struct spec_dataset spec = {.kind = DATASET_TEXT, .files = files};
    char *root = (char *)"/nonexistent/a";
    struct data_env env = {.roots = &root, .n_roots = len > 0 && data[0] & 1};
    struct file_list list = {0};
    struct dl_error err = {0};

    for (size_t at = 1; at < len && spec.n_files < PATTERNS; spec.n_files++) {
        char *pattern = text[spec.n_files];
        size_t n = sizeof below - 1;

        memcpy(pattern, below, n);
        for (; at < len && data[at] != '\n' && n < LONGEST; at++)
            pattern[n++] = data[at] ? (char)data[at] : '?';
        at++;
        pattern[n] = '\0';
        files[spec.n_files] = (struct spec_file){.path = pattern};
    }
    int r = file_list_make(&spec, &env, &list, &err);
    if (r == 0) {
        FUZZ_ASSERT(list.n <= FILE_LIST_MAX && list.bytes <= FILE_LIST_BYTES);
        for (uint32_t i = 0; i < list.n; i++)
            FUZZ_ASSERT(strncmp(list.paths[i], below, sizeof below - 1) == 0);
    } else {
        FUZZ_ASSERT(err.code == -r && *err.message);
    }
    file_list_deinit(&list);
    return 0;
}
