#include "proto/common/library.h"

#include "proto/common/base.h"

#include <dlfcn.h>

static bool library_find_functions(void *library, const struct library_function *functions,
                                   size_t n)
{
    for (size_t i = 0; i < n; i++) {
        void *symbol = dlsym(library, functions[i].name);

        if (!symbol)
            return false;
        memcpy(functions[i].ret, &symbol, sizeof symbol);
    }
    return true;
}

bool library_find(const char *const *files, const struct library_function *functions, size_t n)
{
    for (; *files; files++) {
        void *library = dlopen(*files, RTLD_NOW | RTLD_LOCAL);

        if (library && library_find_functions(library, functions, n))
            return true;
        if (library)
            dlclose(library);
    }
    return false;
}

/* What a function of the C library that takes a number and gives a name says of `number`. */
static const char *library_name_by(const char *function, int number)
{
    const char *(*name)(int) = NULL;
    void *symbol = dlsym(RTLD_DEFAULT, function);

    memcpy(&name, &symbol, sizeof symbol);
    return name ? name(number) : NULL;
}

const char *library_signal_name(int signal)
{
    return library_name_by("sigabbrev_np", signal);
}

const char *library_errno_name(int code)
{
    return library_name_by("strerrorname_np", code);
}
