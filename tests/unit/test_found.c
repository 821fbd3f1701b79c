/*
 * Libraries that are found at run time: the system's own, by the names that their users call; and
 * what is said where there is none (FOUND=0, for which the files are named otherwise).
 */
#include "tests/lib/harness.h"

#include "proto/common/library.h"

#include "daemon/remote/sigv4.h"
#include "proto/common/base.h"

#include <curl/curl.h>
#include <errno.h>
#include <math.h>
#if HAVE_MICROHTTPD
#include <microhttpd.h>
#endif
#include <signal.h>
#if HAVE_SECCOMP
#include <seccomp.h>
#endif

TEST(test_all_functions_or_none)
{
    static const char *const nothing[] = {"libof-nobody.so.7", NULL};
    static const char *const second[] = {"libof-nobody.so.7", "libm.so.6", NULL};
    double (*cosine)(double) = NULL;
    double (*unknown)(double) = NULL;
    const struct library_function both[] = {{"cos", &cosine}, {"of_nobody", &unknown}};

    assert_false(library_find(nothing, both, 1));
    assert_null(cosine);
    assert_true(library_find(second, both, 1));
    assert_true(cosine(0) == 1);
    assert_false(library_find(second, both, 2));
    assert_null(unknown);
}

TEST(test_names)
{
    assert_string_equal(library_signal_name(SIGKILL), "KILL");
    assert_string_equal(library_errno_name(ENOENT), "ENOENT");
    assert_null(library_errno_name(1 << 20));
}

TEST(test_curl)
{
    CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
    const char *url = "";
    CURL *easy;

    if (!FOUND) {
        assert_int_equal(code, CURLE_FAILED_INIT);
        assert_non_null(strstr(curl_easy_strerror(code), "install it (libcurl4 of Debian"));
        return;
    }
    assert_int_equal(code, CURLE_OK);
    assert_string_equal(curl_easy_strerror(CURLE_OK), "No error");
    easy = curl_easy_init();
    assert_non_null(easy);
    assert_int_equal(curl_easy_setopt(easy, CURLOPT_URL, "http://nobody/"), CURLE_OK);
    assert_int_equal(curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, 7L), CURLE_OK);
    assert_int_equal(curl_easy_getinfo(easy, CURLINFO_EFFECTIVE_URL, &url), CURLE_OK);
    assert_string_equal(url, "http://nobody/");
    curl_easy_cleanup(easy);
    curl_global_cleanup();
}

TEST(test_crypto)
{
    static const unsigned char begins[] = {0xE3, 0xB0, 0xC4, 0x42}; /* of SIGV4_EMPTY */
    struct sigv4_crypto crypto = {0};
    unsigned char hash[64] = {0};
    unsigned n = 0;

    assert_int_equal(sigv4_crypto_find(&crypto), FOUND);
    if (!FOUND) {
        assert_null(crypto.sha256);
        return;
    }
    assert_non_null(crypto.sha256(hash, 0, hash));
    assert_memory_equal(hash, begins, sizeof begins);
    assert_non_null(crypto.hmac(crypto.type_sha256(), "k", 1, hash, 0, hash, &n));
    assert_int_equal(n, 32);
}

#if HAVE_SECCOMP
TEST(test_seccomp)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);

    if (!FOUND) {
        assert_null(ctx);
        return;
    }
    assert_non_null(ctx);
    assert_int_equal(seccomp_syscall_resolve_name("ptrace"), SCMP_SYS(ptrace));
    assert_int_equal(seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ptrace), 0), 0);
    seccomp_release(ctx);
}
#endif

#if HAVE_MICROHTTPD
static enum MHD_Result answer_nothing(void *cls, struct MHD_Connection *connection, const char *url,
                                      const char *method, const char *version, const char *data,
                                      size_t *data_size, void **of_request)
{
    return MHD_NO;
}

TEST(test_microhttpd)
{
    struct MHD_Daemon *server =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, answer_nothing,
                         NULL, MHD_OPTION_CONNECTION_LIMIT, 4U, MHD_OPTION_END);
    MHD_UNSIGNED_LONG_LONG ms;

    if (!FOUND) {
        assert_null(server);
        assert_int_equal(errno, ENOPKG);
        return;
    }
    assert_non_null(server);
    assert_true(MHD_get_daemon_info(server, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd >= 0);
    assert_int_equal(MHD_run(server), MHD_YES);
    assert_int_equal(MHD_get_timeout(server, &ms), MHD_NO); /* nobody is there */
    struct MHD_Response *response =
        MHD_create_response_from_buffer(2, (void *)(uintptr_t) "ok", MHD_RESPMEM_PERSISTENT);
    assert_non_null(response);
    assert_int_equal(MHD_add_response_header(response, "X-Test", "1"), MHD_YES);
    MHD_destroy_response(response);
    MHD_stop_daemon(server);
}
#endif
