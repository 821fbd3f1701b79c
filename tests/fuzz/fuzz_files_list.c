/*
 * The list of a dataset with a file for each sample, as another worker sends it: any bytes. What is
 * taken for a list can be read to its end.
 */
#include "daemon/data/kinds/files/files_list.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    struct files_list_head head;

    if (!copy)
        return 0;
    if (size > 0)
        memcpy(copy, data, size);
    if (files_list_is_sound(copy, size)) {
        memcpy(&head, copy, sizeof head);
        const uint32_t *begins = (const void *)(copy + sizeof head);
        const char *text = (const char *)(begins + head.files + 1);
        FUZZ_ASSERT(head.files <= size / sizeof *begins);
        for (uint64_t i = 0; i < head.files; i++)
            FUZZ_ASSERT(strlen(text + begins[i]) < begins[i + 1] - begins[i]);
    }
    free(copy);
    return 0;
}
