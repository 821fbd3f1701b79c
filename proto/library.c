#include "proto/library.h"

#include "proto/base.h"

#include <dlfcn.h>

static bool find_functions(void *library, const struct library_function *functions, size_t n)
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

        if (library && find_functions(library, functions, n))
            return true;
        if (library)
            dlclose(library);
    }
    return false;
}
