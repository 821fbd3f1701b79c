/*
 * Stands in for -lmicrohttpd where libmicrohttpd is the system's own, found at run time (meson
 * option found_at_run_time): its functions by their own names, for metrics_http.c and answers.c.
 * MHD_start_daemon(), which is called first, looks for it, and fails with ENOPKG if it is missing.
 */
#include "proto/common/library.h"

#include "proto/common/base.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdarg.h>

#ifndef MICROHTTPD_FILES
#define MICROHTTPD_FILES "libmicrohttpd.so.12"
#endif

#define MICROHTTPD_FUNCTIONS(X)    \
    X(add_connection)              \
    X(add_response_header)         \
    X(create_response_from_buffer) \
    X(destroy_response)            \
    X(get_connection_info)         \
    X(get_daemon_info)             \
    X(get_timeout)                 \
    X(lookup_connection_value)     \
    X(queue_response)              \
    X(run)                         \
    X(start_daemon_va)             \
    X(stop_daemon)

/* Set once, on the main thread, which is the only caller of these functions. */
static struct {
#define X(name) __typeof__(MHD_##name) *name;
    MICROHTTPD_FUNCTIONS(X)
#undef X
} microhttpd_library;

struct MHD_Daemon *MHD_start_daemon(unsigned int flags, uint16_t port, MHD_AcceptPolicyCallback apc,
                                    void *apc_cls, MHD_AccessHandlerCallback dh, void *dh_cls, ...)
{
    static const char *const files[] = {MICROHTTPD_FILES, NULL};
    static const struct library_function functions[] = {
#define X(name) {"MHD_" #name, &microhttpd_library.name},
        MICROHTTPD_FUNCTIONS(X)
#undef X
    };
    va_list options;

    if (!library_find(files, functions, ARRAY_SIZE(functions))) {
        errno = ENOPKG;
        return NULL;
    }
    va_start(options, dh_cls);
    struct MHD_Daemon *started =
        microhttpd_library.start_daemon_va(flags, port, apc, apc_cls, dh, dh_cls, options);
    va_end(options);
    return started;
}

void MHD_stop_daemon(struct MHD_Daemon *server)
{
    microhttpd_library.stop_daemon(server);
}

enum MHD_Result MHD_run(struct MHD_Daemon *server)
{
    return microhttpd_library.run(server);
}

enum MHD_Result MHD_get_timeout(struct MHD_Daemon *server, MHD_UNSIGNED_LONG_LONG *ret)
{
    return microhttpd_library.get_timeout(server, ret);
}

/* The requested values need no further argument; nor do those of a connection. */
const union MHD_DaemonInfo *MHD_get_daemon_info(struct MHD_Daemon *server,
                                                enum MHD_DaemonInfoType what, ...)
{
    return microhttpd_library.get_daemon_info(server, what);
}

const union MHD_ConnectionInfo *MHD_get_connection_info(struct MHD_Connection *connection,
                                                        enum MHD_ConnectionInfoType what, ...)
{
    return microhttpd_library.get_connection_info(connection, what);
}

enum MHD_Result MHD_add_connection(struct MHD_Daemon *server, MHD_socket fd,
                                   const struct sockaddr *address, socklen_t len)
{
    return microhttpd_library.add_connection(server, fd, address, len);
}

const char *MHD_lookup_connection_value(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                                        const char *key)
{
    return microhttpd_library.lookup_connection_value(connection, kind, key);
}

struct MHD_Response *MHD_create_response_from_buffer(size_t size, void *buffer,
                                                     enum MHD_ResponseMemoryMode mode)
{
    return microhttpd_library.create_response_from_buffer(size, buffer, mode);
}

enum MHD_Result MHD_add_response_header(struct MHD_Response *response, const char *header,
                                        const char *content)
{
    return microhttpd_library.add_response_header(response, header, content);
}

enum MHD_Result MHD_queue_response(struct MHD_Connection *connection, unsigned int status,
                                   struct MHD_Response *response)
{
    return microhttpd_library.queue_response(connection, status, response);
}

void MHD_destroy_response(struct MHD_Response *response)
{
    microhttpd_library.destroy_response(response);
}
