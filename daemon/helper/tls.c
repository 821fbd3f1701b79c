#include "daemon/helper/tls.h"

#include "proto/common/library.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>

/* ---- libssl ---------------------------------------------------------------------------------- */

/* Of its headers, which builds do not need: names there, without SSL_. */
enum {
    TLS_FILETYPE_PEM = 1,
    TLS_VERIFY_PEER = 1,
    TLS_VERIFY_FAIL_IF_NO_PEER_CERT = 2,
    TLS_CTRL_MODE = 33,
    TLS_CTRL_SET_MIN_PROTO_VERSION = 123,
    TLS_MODE_ENABLE_PARTIAL_WRITE = 1,
    TLS_MODE_ACCEPT_MOVING_WRITE_BUFFER = 2,
    TLS_ERROR_WANT_READ = 2,
    TLS_ERROR_WANT_WRITE = 3,
    TLS_ERROR_SYSCALL = 5,
    TLS_ERROR_ZERO_RETURN = 6,
    TLS_1_3 = 0x0304,
    TLS_OP_IGNORE_UNEXPECTED_EOF = 1 << 7,
};

/* Its functions, by their signatures there. */
struct tls_library {
    const void *(*method)(void);
    void *(*context_new)(const void *method);
    void (*context_free)(void *context);
    long (*context_ctrl)(void *context, int command, long number, void *data);
    uint64_t (*set_options)(void *context, uint64_t options);
    int (*use_certificate)(void *context, const char *file);
    int (*use_key)(void *context, const char *file, int type);
    int (*check_key)(const void *context);
    int (*load_authority)(void *context, const char *file, const char *folder);
    void (*set_verify)(void *context, int mode, void *callback);
    void *(*new)(void *context);
    void (*free)(void *ssl);
    long (*ctrl)(void *ssl, int command, long number, void *data);
    int (*set_fd)(void *ssl, int fd);
    void (*set_accept)(void *ssl);
    void (*set_connect)(void *ssl);
    int (*handshake)(void *ssl);
    int (*read)(void *ssl, void *to, int room);
    int (*write)(void *ssl, const void *data, int len);
    int (*get_error)(const void *ssl, int result);
    long (*get_verify_result)(const void *ssl);
    const char *(*verify_error)(long code);
    unsigned long (*error)(void);
    void (*clear_errors)(void);
    const char *(*reason)(unsigned long error);
};

static bool tls_library_find(struct tls_library *ret)
{
    static const char *const files[] = {"libssl.so.3", "libssl.so.1.1", NULL};
    const struct library_function functions[] = {
        {"TLS_method", &ret->method},
        {"SSL_CTX_new", &ret->context_new},
        {"SSL_CTX_free", &ret->context_free},
        {"SSL_CTX_ctrl", &ret->context_ctrl},
        {"SSL_CTX_set_options", &ret->set_options},
        {"SSL_CTX_use_certificate_chain_file", &ret->use_certificate},
        {"SSL_CTX_use_PrivateKey_file", &ret->use_key},
        {"SSL_CTX_check_private_key", &ret->check_key},
        {"SSL_CTX_load_verify_locations", &ret->load_authority},
        {"SSL_CTX_set_verify", &ret->set_verify},
        {"SSL_new", &ret->new},
        {"SSL_free", &ret->free},
        {"SSL_ctrl", &ret->ctrl},
        {"SSL_set_fd", &ret->set_fd},
        {"SSL_set_accept_state", &ret->set_accept},
        {"SSL_set_connect_state", &ret->set_connect},
        {"SSL_do_handshake", &ret->handshake},
        {"SSL_read", &ret->read},
        {"SSL_write", &ret->write},
        {"SSL_get_error", &ret->get_error},
        {"SSL_get_verify_result", &ret->get_verify_result},
        {"X509_verify_cert_error_string", &ret->verify_error},
        {"ERR_get_error", &ret->error},
        {"ERR_clear_error", &ret->clear_errors},
        {"ERR_reason_error_string", &ret->reason},
    };

    return library_find(files, functions, ARRAY_SIZE(functions));
}

/* ---- a connection ---------------------------------------------------------------------------- */

struct tls {
    struct tls_library ssl;
    void *context, *session; /* owned */
};

/* The first error since they were cleared, which is the cause of the others. */
static const char *tls_reason(const struct tls *tls)
{
    const char *reason = tls->ssl.reason(tls->ssl.error());

    return reason ? reason : "no reason is given";
}

struct tls *tls_free(struct tls *tls)
{
    if (tls && tls->session)
        tls->ssl.free(tls->session);
    if (tls && tls->context)
        tls->ssl.context_free(tls->context);
    free(tls);
    return NULL;
}

static int tls_refuse_file(const struct tls *tls, const char *key, const char *file,
                           struct dl_error *err)
{
    return dl_error_set(err, EINVAL, key,
                        "%s cannot be used: %s; it has to be in PEM, and readable for this user",
                        file, tls_reason(tls));
}

static int tls_load(const struct tls *tls, const struct tls_files *files, struct dl_error *err)
{
    if (tls->ssl.use_certificate(tls->context, files->certificate) != 1)
        return tls_refuse_file(tls, "helpers.certificate", files->certificate, err);
    if (tls->ssl.use_key(tls->context, files->key, TLS_FILETYPE_PEM) != 1 ||
        tls->ssl.check_key(tls->context) != 1)
        return tls_refuse_file(tls, "helpers.key", files->key, err);
    if (tls->ssl.load_authority(tls->context, files->authority, NULL) != 1)
        return tls_refuse_file(tls, "helpers.authority", files->authority, err);
    return 0;
}

static int tls_open(struct tls *tls, const struct tls_files *files, int fd, bool accepts,
                    struct dl_error *err)
{
    tls->ssl.clear_errors();
    tls->context = tls->ssl.context_new(tls->ssl.method());
    if (!tls->context ||
        tls->ssl.context_ctrl(tls->context, TLS_CTRL_SET_MIN_PROTO_VERSION, TLS_1_3, NULL) != 1)
        return dl_error_set(err, ENOTSUP, "helpers.certificate", "libssl has no TLS 1.3: %s",
                            tls_reason(tls));
    /* One that dies says no last word; what it has not finished is made again. */
    (void)tls->ssl.set_options(tls->context, TLS_OP_IGNORE_UNEXPECTED_EOF);
    int r = tls_load(tls, files, err);
    if (r < 0)
        return r;
    tls->ssl.set_verify(tls->context, TLS_VERIFY_PEER | TLS_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    tls->session = tls->ssl.new(tls->context);
    if (!tls->session || tls->ssl.set_fd(tls->session, fd) != 1)
        return -ENOMEM;
    (void)tls->ssl.ctrl(tls->session, TLS_CTRL_MODE,
                        TLS_MODE_ENABLE_PARTIAL_WRITE | TLS_MODE_ACCEPT_MOVING_WRITE_BUFFER, NULL);
    if (accepts)
        tls->ssl.set_accept(tls->session);
    else
        tls->ssl.set_connect(tls->session);
    return 0;
}

int tls_new(const struct tls_files *files, int fd, bool accepts, struct tls **ret,
            struct dl_error *err)
{
    struct tls *tls = calloc(1, sizeof *tls);

    if (!tls)
        return -ENOMEM;
    (void)signal(SIGPIPE, SIG_IGN); /* it writes by write() */
    int r = tls_library_find(&tls->ssl)
                ? tls_open(tls, files, fd, accepts, err)
                : dl_error_set(err, ENOENT, "helpers.certificate",
                               "this system has no libssl.so.3, which encrypts; install it "
                               "(libssl3 of Debian and Ubuntu, openssl-libs of Fedora)");
    if (r < 0)
        tls_free(tls);
    else
        *ret = tls;
    return r;
}

/* What a call has come to that returned no bytes. -EAGAIN: *ret_events are to come first. */
static int tls_outcome(const struct tls *tls, int result, short *ret_events)
{
    int code = errno;

    switch (tls->ssl.get_error(tls->session, result)) {
    case TLS_ERROR_WANT_READ:
        *ret_events = POLLIN;
        return -EAGAIN;
    case TLS_ERROR_WANT_WRITE:
        *ret_events = POLLOUT;
        return -EAGAIN;
    case TLS_ERROR_ZERO_RETURN:
        return -EPIPE;
    case TLS_ERROR_SYSCALL:
        return code == 0 || code == ECONNRESET ? -EPIPE : -code;
    default:
        return -EKEYREJECTED;
    }
}

int tls_shake(struct tls *tls, short *ret_events, struct dl_error *err)
{
    tls->ssl.clear_errors();
    errno = 0;
    int n = tls->ssl.handshake(tls->session);
    int r = n == 1 ? 0 : tls_outcome(tls, n, ret_events);

    if (r == 0 || r == -EAGAIN)
        return r;
    long verified = tls->ssl.get_verify_result(tls->session);
    if (verified != 0)
        return dl_error_set(err, EKEYREJECTED, "helpers.authority",
                            "the other end's certificate is not accepted: %s",
                            tls->ssl.verify_error(verified));
    if (r == -EKEYREJECTED)
        return dl_error_set(err, EKEYREJECTED, "helpers.certificate",
                            "the two ends do not come to speak TLS: %s; both need "
                            "helpers.certificate, or neither",
                            tls_reason(tls));
    return r;
}

/* Libssl takes an int; and no more than a record comes at a time. */
static int tls_most(uint64_t bytes)
{
    return (int)min_u64(bytes, INT_MAX);
}

static int64_t tls_end(const struct tls *tls, int n)
{
    short events;
    int r = tls_outcome(tls, n, &events);

    return r == -EAGAIN ? 0 : r;
}

int64_t tls_receive(struct tls *tls, void *to, uint64_t room)
{
    tls->ssl.clear_errors();
    errno = 0;
    int n = tls->ssl.read(tls->session, to, tls_most(room));

    return n > 0 ? n : tls_end(tls, n);
}

int64_t tls_send(struct tls *tls, const void *data, uint64_t len)
{
    tls->ssl.clear_errors();
    errno = 0;
    int n = tls->ssl.write(tls->session, data, tls_most(len));

    return n > 0 ? n : tls_end(tls, n);
}
