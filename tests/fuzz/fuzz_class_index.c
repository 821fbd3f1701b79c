/*
 * The list of a folder of classes as another worker sends it: any bytes. What is taken for a list
 * can be read to its end.
 */
#include "daemon/data/files/class_list.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    struct shared_index index = {.data = copy, .bytes = size};
    struct class_list list;
    char path[256];
    size_t len;

    if (!copy)
        return 0;
    if (size > 0)
        memcpy(copy, data, size);
    if (!class_list_of(&index, &list)) {
        shared_index_deinit(&index);
        return 0;
    }
    FUZZ_ASSERT(list.n <= size / sizeof(uint32_t));
    for (uint64_t i = 0; i < list.n; i++)
        FUZZ_ASSERT(class_list_get(&list, i, path, sizeof path, &len) < list.classes);
    class_list_deinit(&list);
    return 0;
}
