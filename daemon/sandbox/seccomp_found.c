/*
 * Stands in for -lseccomp where libseccomp is the system's own, found at run time (meson option
 * found_at_run_time): its functions by their own names, for calls.c. seccomp_init(), which comes
 * first, looks for it and gives no filter where libseccomp is missing.
 */
#include "proto/common/library.h"

#include "proto/common/base.h"

#include <assert.h>
#include <seccomp.h>

#ifndef SECCOMP_FILES
#define SECCOMP_FILES "libseccomp.so.2"
#endif

#define SECCOMP_FUNCTIONS(X) \
    X(attr_set)              \
    X(init)                  \
    X(load)                  \
    X(release)               \
    X(rule_add_array)        \
    X(syscall_resolve_name)

/* Set once, by the one thread of a process that is being closed in. */
static struct {
#define X(name) __typeof__(seccomp_##name) *name;
    SECCOMP_FUNCTIONS(X)
#undef X
} seccomp_library;

scmp_filter_ctx seccomp_init(uint32_t action)
{
    static const char *const files[] = {SECCOMP_FILES, NULL};
    static const struct library_function functions[] = {
#define X(name) {"seccomp_" #name, &seccomp_library.name},
        SECCOMP_FUNCTIONS(X)
#undef X
    };

    if (!library_find(files, functions, ARRAY_SIZE(functions)))
        return NULL;
    return seccomp_library.init(action);
}

void seccomp_release(scmp_filter_ctx ctx)
{
    seccomp_library.release(ctx);
}

int seccomp_attr_set(scmp_filter_ctx ctx, enum scmp_filter_attr attribute, uint32_t value)
{
    return seccomp_library.attr_set(ctx, attribute, value);
}

int seccomp_syscall_resolve_name(const char *name)
{
    return seccomp_library.syscall_resolve_name(name);
}

/* Of those without conditions: these would be arguments of any number. */
int seccomp_rule_add(scmp_filter_ctx ctx, uint32_t action, int syscall, unsigned n, ...)
{
    assert(n == 0);
    return seccomp_library.rule_add_array(ctx, action, syscall, 0, NULL);
}

int seccomp_rule_add_array(scmp_filter_ctx ctx, uint32_t action, int syscall, unsigned n,
                           const struct scmp_arg_cmp *conditions)
{
    return seccomp_library.rule_add_array(ctx, action, syscall, n, conditions);
}

int seccomp_load(scmp_filter_ctx ctx)
{
    return seccomp_library.load(ctx);
}
