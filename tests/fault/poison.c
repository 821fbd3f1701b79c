/*
 * Lets a daemon that it is preloaded into die of certain specs, as bugs in reading them would: of
 * YAML with the word "poison" it crashes, and by that with "tar pit" it hangs.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

void yaml_parser_set_input_string(yaml_parser_t *parser, const unsigned char *input, size_t size)
{
    void (*real)(yaml_parser_t *, const unsigned char *, size_t);

    if (memmem(input, size, "poison", 6))
        abort();
    if (memmem(input, size, "tar pit", 7)) {
        (void)!write(STDERR_FILENO, "stuck in the tar pit\n", 21);
        for (;;)
            pause();
    }
    *(void **)&real = dlsym(RTLD_NEXT, "yaml_parser_set_input_string");
    real(parser, input, size);
}
