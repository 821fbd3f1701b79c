/* The daemon's configuration: a YAML file and the command line become one immutable struct. */
#ifndef DL_CONFIG_H
#define DL_CONFIG_H

#include "daemon/base/log.h"
#include "proto/common/bytes.h"
#include "proto/common/error.h"

/* Bytes, or a share of what is available; one of them is 0. */
struct config_share {
    uint64_t bytes;
    uint64_t per_cent;
};

/* The account that limits apply to: a user's, or that of each of its control groups. */
enum config_charge { CONFIG_CHARGE_UID, CONFIG_CHARGE_CGROUP };

/* What becomes of a loader for which there is no room. */
enum config_full { CONFIG_FULL_REFUSE, CONFIG_FULL_WAIT };

/* What some users have of their own; owned. */
struct config_users {
    struct config_user *items;
    uint32_t n;
};

struct config_limits {
    uint64_t sessions;
    uint64_t loaders;
    uint64_t workers;
    uint64_t bytes;
    uint64_t epochs;
    uint64_t leases;
    uint64_t overhead;
    uint64_t descriptors;
    uint64_t worlds;
    uint64_t threads;
    uint64_t log_lines;
    uint64_t cpus;              /* 0: auto */
    struct config_share memory; /* of all users together */
    uint64_t bandwidth;         /* bytes a second, of all users together; 0: none */
    enum config_charge charge;
    enum config_full full;
    struct config_users users;
};

enum { CONFIG_WEIGHT = 100, CONFIG_WEIGHT_MOST = 10000 }; /* of a user: by default */

/* A user; or a control group, by its path or by a unit's name. */
struct config_user {
    char *name; /* owned; as the file says it */
    bool is_group;
    uint32_t uid;             /* of a user */
    uint64_t weight;          /* 0: not given, */
    struct config_limits own; /* as are those of these that are 0 */
};

/* What the processes of `uid` in that control group ("": not known) have of their own: of the
 * innermost group that is there, else of the user; or NULL. */
const struct config_user *config_find_user(const struct config_users *users, uint32_t uid,
                                           const char *group);

enum config_versions { CONFIG_VERSIONS_SAME, CONFIG_VERSIONS_ANY };
enum config_switch { CONFIG_NO, CONFIG_YES };
enum config_sandbox { CONFIG_SANDBOX_DEFAULT, CONFIG_SANDBOX_STRICT, CONFIG_SANDBOX_OFF };

enum config_backend { CONFIG_BACKEND_NONE, CONFIG_BACKEND_ETCD, CONFIG_BACKEND_C10D };

enum config_hosting { CONFIG_HOSTING_AUTO, CONFIG_HOSTING_YES, CONFIG_HOSTING_NO };

enum { CONFIG_TOKEN_MIN = 16, CONFIG_TOKEN_MAX = 512 }; /* bytes */

/* Where the daemon answers by HTTP; strings are owned. */
struct config_metrics {
    char *listen; /* see address.h; "" = nowhere */
    char *token_file;
    char *token; /* from the file; may be NULL */
};

/* The cluster that this node joins, see members.h; strings are owned, "" = not set. */
struct config_rendezvous {
    enum config_backend backend;
    char *endpoint;
    enum config_hosting host;
    char *id;
    char *prefix;
    char *node;
    uint64_t local_ranks;
    char *user;
    char *password; /* from the file, if one is given */
    char *password_file;
    struct {
        char *ca;
        char *certificate;
        char *key;
    } tls;
    struct {
        uint64_t min;
        uint64_t max;
    } nodes;
    struct {
        uint64_t join; /* ns, as all times here */
        uint64_t last_call;
        uint64_t close;
        uint64_t read;
    } timeouts;
    struct {
        uint64_t interval;
        uint64_t missed;
    } heartbeat;
    uint64_t fence; /* 0: as long as the others wait for a heartbeat */
    uint64_t keep;  /* 0: forever */
};

struct config_dirs {
    char **paths;   /* owned, with its strings; absolute, usually without links; NULL when n is 0 */
    char **seen_as; /* of each of data_roots, as clients see it, owned, "": as it is; else NULL */
    uint32_t n;
};

/* What is kept on disk. */
struct config_cache {
    char *dir;     /* owned; a directory, "" for none, or "auto" */
    uint64_t size; /* bytes; 0: auto */
};

/* Of files behind URLs. */
struct config_remote {
    uint64_t held;             /* bytes in memory */
    struct config_dirs denied; /* networks, as networks_parse() takes them */
    char *peers;               /* owned; an address for other nodes, or "": there are none */
};

/* Workers on other machines: for this daemon, and with --helper those it lends. */
struct config_helpers {
    struct config_dirs addresses; /* HOST:PORT each */
    char *run;                    /* under which they are found; "": they are not */
    uint64_t count;               /* workers of each loader; 0: auto */
    char *lend_at;                /* it is one itself, at this address; "": it is none */
    uint64_t lend;
    enum config_versions versions;
    enum config_switch checksums, serve;
    char *certificate, *key, *authority; /* files; "": without TLS */
    char *secret_file;
    char *secret; /* from the file; may be NULL */
};

struct config {
    char *socket; /* owned */
    uint32_t socket_mode;
    char *socket_group; /* owned; "": not set */
    struct config_dirs data_roots;
    struct config_dirs plugins;
    struct {
        struct config_dirs objects; /* "module:name" each */
        struct config_dirs plugins; /* files, links as they are */
    } site;
    struct config_cache cache;
    char *worker;                   /* owned; "" until config_find_worker() */
    struct config_dirs python;      /* programs, links as they are */
    struct config_dirs python_path; /* directories */
    uint64_t python_timeout;        /* ns; 0: unlimited */
    uint64_t open_timeout;          /* ns; 0: unlimited */
    uint64_t linger;                /* ns */
    uint64_t drain_timeout;         /* ns */
    enum log_level log_level;
    enum config_sandbox sandbox;
    struct config_limits limits;
    struct config_remote remote;
    struct config_helpers helpers;
    struct config_metrics metrics;
    struct config_rendezvous rendezvous;
};

/*
 * Defaults, then the file at `path` (may be NULL). Errors name file, key, value and remedy.
 * config_deinit() frees what it made; fine on a zeroed struct.
 */
int _nodiscard_ config_load(const char *path, struct config *ret, struct dl_error *err);
void config_deinit(struct config *config);

/* Adds a directory, which is absolute and resolved. */
void config_dirs_add(struct config_dirs *dirs, const char *path);
bool config_dirs_has(const struct config_dirs *dirs, const char *path);
void config_dirs_deinit(struct config_dirs *dirs);
/* HOST:PORT: a name or an address, an IPv6 one in brackets; and a port from 1 on. */
bool config_is_place(const char *text);
/* As a packed list of strings. Negative errno. */
int _nodiscard_ config_dirs_pack(const struct config_dirs *dirs, struct dl_buffer *out);

/* The one that runs what names no interpreter: the first of `python`, or the system's. */
const char *config_interpreter(const struct config *config);

/* Fills config->worker if empty; -ENOENT if the program is not found. */
int _nodiscard_ config_find_worker(struct config *config, struct dl_error *err);

#endif
