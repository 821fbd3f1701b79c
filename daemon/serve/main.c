/* dloaderd: arguments in, exit status out. */
#include "daemon/base/config.h"
#include "daemon/fetcher/service.h"
#include "daemon/serve/daemon.h"
#include "daemon/serve/lend.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char usage_text[] =
    "usage: dloaderd [--config FILE] [--socket PATH] [--private] [--log-level LEVEL]\n"
    "                [--client FD] [--stderr FD] [--helper ADDRESS]\n"
    "\n"
    "Serves batches of training data to clients on a Unix socket; see dloaderd(8).\n"
    "\n"
    "  --config FILE      settings in YAML, see dloaderd.conf(5)\n"
    "  --socket PATH      listen there, instead of at the configured path\n"
    "  --private          for one owner: ends when the last client leaves\n"
    "  --client FD        with --private: the first client's connection\n"
    "  --stderr FD        with --private: gets the standard error of Python workers\n"
    "  --helper ADDRESS   serve no clients, but lend workers to daemons of other machines there\n"
    "  --log-level LEVEL  error, warning, info or debug\n"
    "  --version, --help\n";

enum {
    OPT_CONFIG = 1,
    OPT_SOCKET,
    OPT_PRIVATE,
    OPT_CLIENT,
    OPT_STDERR,
    OPT_FETCH,
    OPT_HELPER,
    OPT_LOG_LEVEL,
    OPT_VERSION,
    OPT_HELP
};

static const struct option dloaderd_options[] = {
    {"config", required_argument, NULL, OPT_CONFIG},
    {"socket", required_argument, NULL, OPT_SOCKET},
    {"private", no_argument, NULL, OPT_PRIVATE},
    {"client", required_argument, NULL, OPT_CLIENT},
    {"stderr", required_argument, NULL, OPT_STDERR},
    {"fetch", required_argument, NULL, OPT_FETCH}, /* a process of the daemon's own */
    {"helper", required_argument, NULL, OPT_HELPER},
    {"log-level", required_argument, NULL, OPT_LOG_LEVEL},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0}};

/* One that this process was started with, not a standard one. */
static bool dloaderd_parse_fd(const char *text, int *ret)
{
    char *end;
    long fd = strtol(text, &end, 10);

    if (end == text || *end || fd <= STDERR_FILENO || fd > INT_MAX || fcntl((int)fd, F_GETFD) < 0)
        return false;
    *ret = (int)fd;
    return true;
}

/* What remotes.c writes: numbers, colons between them. */
enum {
    FETCH_CONTROL,
    FETCH_PAGE,
    FETCH_HELD,
    FETCH_CONFINED,
    FETCH_LINGER,
    FETCH_KEPT,
    FETCH_PEERS,
    FETCH_N
};

static bool dloaderd_read_numbers(const char *text, uint64_t ret[static FETCH_N])
{
    char *end = (char *)(uintptr_t)text;

    for (int i = 0; i < FETCH_N; i++, end++) {
        const char *begin = end;
        ret[i] = strtoull(begin, &end, 10);
        if (end == begin || *end != (i + 1 < FETCH_N ? ':' : '\0'))
            return false;
    }
    return true;
}

static bool dloaderd_is_open(uint64_t fd)
{
    return fd <= INT_MAX && fcntl((int)fd, F_GETFD) >= 0;
}

/* `rest`: the directory of what is kept, and networks. */
static int dloaderd_fetch(const char *text, char *const *rest)
{
    uint64_t how[FETCH_N];

    if (!dloaderd_read_numbers(text, how) || !*rest || !dloaderd_is_open(how[FETCH_CONTROL]) ||
        !dloaderd_is_open(how[FETCH_PAGE])) {
        fprintf(stderr, "dloaderd: --fetch is for the daemon's own use\n");
        return 2;
    }
    return remote_serve(&(struct remote_service){.control = (int)how[FETCH_CONTROL],
                                                 .page = (int)how[FETCH_PAGE],
                                                 .confined = how[FETCH_CONFINED] != 0,
                                                 .peers = how[FETCH_PEERS] != 0,
                                                 .memory = how[FETCH_HELD],
                                                 .linger_ms = how[FETCH_LINGER],
                                                 .cache = rest[0],
                                                 .kept = how[FETCH_KEPT],
                                                 .denied = rest + 1});
}

/* By its configuration. What is wrong with that, whoever reads it next says. */
static bool dloaderd_lends(const struct daemon_options *o)
{
    struct config config = {0};
    struct dl_error err;
    bool lends = !o->private && !o->socket && config_load(o->config_path, &config, &err) == 0 &&
                 *config.helpers.lend_at;

    config_deinit(&config);
    return lends;
}

int main(int argc, char **argv)
{
    struct daemon_options o = {.client = -1, .errors = -1};
    const char *helper = NULL;
    int c;

    while ((c = getopt_long(argc, argv, "", dloaderd_options, NULL)) != -1) {
        switch (c) {
        case OPT_CONFIG:
            o.config_path = optarg;
            break;
        case OPT_SOCKET:
            o.socket = optarg;
            break;
        case OPT_PRIVATE:
            o.private = true;
            break;
        case OPT_CLIENT:
        case OPT_STDERR:
            if (!dloaderd_parse_fd(optarg, c == OPT_CLIENT ? &o.client : &o.errors)) {
                fprintf(stderr, "dloaderd: --%s: \"%s\" is not an open descriptor above 2\n",
                        c == OPT_CLIENT ? "client" : "stderr", optarg);
                return 2;
            }
            break;
        case OPT_FETCH:
            return dloaderd_fetch(optarg, argv + optind);
        case OPT_HELPER:
            helper = optarg;
            break;
        case OPT_LOG_LEVEL:
            o.log_level = optarg;
            break;
        case OPT_VERSION:
            puts("dloaderd " DLOADER_VERSION);
            return 0;
        case OPT_HELP:
            fputs(usage_text, stdout);
            return 0;
        default:
            fputs(usage_text, stderr);
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "dloaderd: unexpected argument \"%s\"\n%s", argv[optind], usage_text);
        return 2;
    }
    if (!o.private && (o.client >= 0 || o.errors >= 0)) {
        fprintf(stderr, "dloaderd: --client and --stderr need --private\n");
        return 2;
    }
    if (helper && (o.private || o.socket)) {
        fprintf(stderr, "dloaderd: --helper serves no clients: leave out --private and --socket\n");
        return 2;
    }
    return helper || dloaderd_lends(&o) ? lend_run(helper, o.config_path, o.log_level)
                                        : daemon_run(&o);
}
