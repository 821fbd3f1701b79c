/* What the files of the plug-in host share: one open plug-in, and what it is doing. */
#ifndef DL_DATA_PLUGIN_PRIVATE_H
#define DL_DATA_PLUGIN_PRIVATE_H

#include "daemon/data/base/rng.h"
#include "daemon/data/files/source.h"
#include "daemon/data/plugin/dloader-plugin.h"
#include "daemon/data/plugin/plugin.h"

enum plugin_role { PLUGIN_DATASET, PLUGIN_COLLATE };

struct plugin_map {
    struct plugin_map *next;
    struct source source; /* owned */
};

struct plugin {
    struct dl_plugin_host host; /* what it was given */
    struct dl_plugin table;     /* its table, with NULL for missing functions */
    const struct data_env *env; /* borrowed */
    void *library;              /* owned; NULL: not loaded */
    char *path;                 /* owned */
    char *config;               /* owned; JSON */
    struct plugin_map *maps;    /* owned list */
    void *handle;               /* the plug-in's */
    bool opened;                /* its open() succeeded */
    struct dl_error said;       /* by fail(), in the current call; code 0: not called */
};

/* A sample in the plug-in's hands: to build, or, with `why` NULL, to read. */
struct dl_plugin_sample {
    struct sample *sample;
    struct dl_error *why; /* what broke it, in more words than sample_check() has */
};

struct dl_plugin_rng {
    struct rng rng;
};

/* The plug-in to open: path, configuration, and their place in the spec. */
struct plugin_choice {
    enum plugin_role role;
    const char *path;
    const struct value *config;
    const char *place;
};

/* plugin.c: the plug-in, loaded and opened. */
int _nodiscard_ plugin_new(const struct plugin_choice *choice, const struct data_env *env,
                           struct plugin **ret, struct dl_error *err);
struct plugin *plugin_free(struct plugin *p); /* NULL is fine; returns NULL */

static inline void plugin_freep(struct plugin **p)
{
    *p = plugin_free(*p);
}

/*
 * The result of a plug-in's function: 0 if it succeeded, else an error with the best text
 * available: its own, that of the broken sample, or ours. `what` begins the message.
 */
int _nodiscard_ plugin_judge(struct plugin *p, int r, const struct dl_error *why, const char *what,
                             struct dl_error *err);
/* As plugin_judge(), for a function that builds a sample. */
int _nodiscard_ plugin_judge_sample(struct plugin *p, int r, const struct dl_plugin_sample *built,
                                    const char *what, struct dl_error *err);

/* plugin_load.c: finds, judges and loads the library at `path`, and checks its table. */
int _nodiscard_ plugin_load(struct plugin *p, const char *path, enum plugin_role role,
                            struct dl_error *err);

/* plugin_config.c: `config` as JSON; `place` is its path in the spec. *ret is malloc()ed. */
int _nodiscard_ plugin_config_text(const struct value *config, const char *place, char **ret,
                                   struct dl_error *err);

/* plugin_host.c */
void plugin_host_init(struct plugin *p);
void plugin_host_deinit(struct plugin *p);

#endif
