/*
 * Stands in for -lcurl where libcurl is the system's own, found at run time (meson option
 * found_at_run_time): its functions by their own names, for http.c. curl_global_init(), which comes
 * first, looks for it and fails where libcurl is missing.
 */
#include "proto/common/library.h"

#include "proto/common/base.h"

#include <curl/curl.h>
#include <stdarg.h>

/* Macros that check the types of arguments. */
#undef curl_easy_getinfo
#undef curl_easy_setopt
#undef curl_multi_setopt

#ifndef CURL_FILES
/* Debian has a second one, of the same functions, with GnuTLS. */
#define CURL_FILES "libcurl.so.4", "libcurl-gnutls.so.4"
#endif

#define CURL_FUNCTIONS(X)  \
    X(easy_cleanup)        \
    X(easy_getinfo)        \
    X(easy_init)           \
    X(easy_setopt)         \
    X(easy_strerror)       \
    X(global_cleanup)      \
    X(global_init)         \
    X(multi_add_handle)    \
    X(multi_assign)        \
    X(multi_cleanup)       \
    X(multi_info_read)     \
    X(multi_init)          \
    X(multi_remove_handle) \
    X(multi_setopt)        \
    X(multi_socket_action) \
    X(slist_append)        \
    X(slist_free_all)

/* Set once, on the main thread, which alone calls these functions. */
static struct {
    bool is_there;
#define X(name) __typeof__(curl_##name) *name;
    CURL_FUNCTIONS(X)
#undef X
} curl_library;

CURLcode curl_global_init(long flags)
{
    static const char *const files[] = {CURL_FILES, NULL};
    static const struct library_function functions[] = {
#define X(name) {"curl_" #name, &curl_library.name},
        CURL_FUNCTIONS(X)
#undef X
    };

    curl_library.is_there = library_find(files, functions, ARRAY_SIZE(functions));
    return curl_library.is_there ? curl_library.global_init(flags) : CURLE_FAILED_INIT;
}

void curl_global_cleanup(void)
{
    curl_library.global_cleanup();
}

const char *curl_easy_strerror(CURLcode code)
{
    if (curl_library.is_there)
        return curl_library.easy_strerror(code);
    return "this system has no libcurl.so.4; install it (libcurl4 of Debian and Ubuntu, libcurl "
           "of Fedora), or use backend: c10d, which needs none";
}

CURL *curl_easy_init(void)
{
    return curl_library.easy_init();
}

void curl_easy_cleanup(CURL *easy)
{
    curl_library.easy_cleanup(easy);
}

/* Every option takes a long, a pointer or a curl_off_t, which are passed alike on 64-bit systems.
 */
_Static_assert(sizeof(long) == sizeof(void *) && sizeof(curl_off_t) == sizeof(void *),
               "a value is one word");

static void *curl_found_only_value(va_list values)
{
    return va_arg(values, void *);
}

CURLcode curl_easy_setopt(CURL *easy, CURLoption option, ...)
{
    va_list values;

    va_start(values, option);
    CURLcode code = curl_library.easy_setopt(easy, option, curl_found_only_value(values));
    va_end(values);
    return code;
}

CURLcode curl_easy_getinfo(CURL *easy, CURLINFO info, ...)
{
    va_list values;

    va_start(values, info);
    CURLcode code = curl_library.easy_getinfo(easy, info, curl_found_only_value(values));
    va_end(values);
    return code;
}

CURLM *curl_multi_init(void)
{
    return curl_library.multi_init();
}

CURLMcode curl_multi_cleanup(CURLM *multi)
{
    return curl_library.multi_cleanup(multi);
}

CURLMcode curl_multi_setopt(CURLM *multi, CURLMoption option, ...)
{
    va_list values;

    va_start(values, option);
    CURLMcode code = curl_library.multi_setopt(multi, option, curl_found_only_value(values));
    va_end(values);
    return code;
}

CURLMcode curl_multi_add_handle(CURLM *multi, CURL *easy)
{
    return curl_library.multi_add_handle(multi, easy);
}

CURLMcode curl_multi_remove_handle(CURLM *multi, CURL *easy)
{
    return curl_library.multi_remove_handle(multi, easy);
}

CURLMcode curl_multi_assign(CURLM *multi, curl_socket_t fd, void *of_socket)
{
    return curl_library.multi_assign(multi, fd, of_socket);
}

CURLMcode curl_multi_socket_action(CURLM *multi, curl_socket_t fd, int events, int *ret_running)
{
    return curl_library.multi_socket_action(multi, fd, events, ret_running);
}

CURLMsg *curl_multi_info_read(CURLM *multi, int *ret_left)
{
    return curl_library.multi_info_read(multi, ret_left);
}

struct curl_slist *curl_slist_append(struct curl_slist *list, const char *text)
{
    return curl_library.slist_append(list, text);
}

void curl_slist_free_all(struct curl_slist *list)
{
    curl_library.slist_free_all(list);
}
