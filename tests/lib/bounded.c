/*
 * For programs that read damaged files of a few KiB: with AddressSanitizer, an allocation that is
 * larger than what readers grant so small a file (64 MiB, and so much for each of its bytes) ends
 * the program, which tells where it was asked for.
 */
const char *__asan_default_options(void);

__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
    return "max_allocation_size_mb=128";
}
