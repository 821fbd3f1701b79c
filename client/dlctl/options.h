/*
 * The command line: one table of options, one of verbs; parsing, checking and --help come from
 * them. Nothing is opened here, and nothing read but torchrun's variables, as defaults of `run`.
 */
#ifndef DLCTL_OPTIONS_H
#define DLCTL_OPTIONS_H

#include "client/dlclient.h"
#include "proto/common/base.h"
#include "proto/common/error.h"

enum { STATUS_DONE = 0, STATUS_FAILED = 1, STATUS_USAGE = 2 };

/* Every option there is; a verb's `options` is a mask of BIT(OPTION_x). */
enum option_id {
#define OPTION(id, ...) OPTION_##id,
#include "client/dlctl/options.def"
    OPTION_COUNT,
};
#define BIT(option) (UINT64_C(1) << (option))

/* What the user asked for; strings are borrowed from argv. */
struct options {
    const struct verb *verb;
    const char *operand; /* SPEC or NAME; NULL for verbs without one */
    char *const *more;   /* what stands behind it, of verbs that take more; n_more of it */
    int n_more;
    const char *socket; /* or a program that has a private daemon; NULL: see find.h */
    bool json;
    bool help;
    bool digest;
    bool totals;
    bool wide;
    bool quiet;
    bool text;       /* tokens as text */
    uint64_t epoch;  /* the only or the first one */
    uint64_t epochs; /* how many */
    uint64_t world;  /* ≥ 1; DL_WORLD_CLUSTER: the cluster's, and rank is one of this node; 0: the
                        state's, as replay may have it */
    uint64_t rank;   /* below world; 0 with rank_all */
    bool rank_all;   /* --rank all */
    bool has_world, has_rank, has_sample;
    bool has_launcher;    /* which says that there are several ranks */
    uint32_t local_world; /* ranks of each node, as the launcher says; 0: not known */
    uint64_t from;        /* first step */
    uint64_t steps;       /* at most; UINT64_MAX: all, or as usual */
    uint64_t length;      /* valid if has_length */
    bool has_length;
    uint64_t batches; /* at most, of each rank and epoch; UINT64_MAX: all */
    uint64_t credits; /* 0: the daemon's choice */
    uint64_t step;
    uint64_t at, at_epoch;        /* where weights change; UINT64_MAX: the first step that can be */
    const char *indices;          /* numbers joined by commas, checked; NULL: not given */
    uint64_t values;              /* shown of each leaf at most */
    const char *state;            /* file to continue from; or NULL */
    const char *changes;          /* file with a state whose changed weights count; NULL: none */
    const char *save_state;       /* file to write at the end; NULL: none */
    const char *journal;          /* file with one; NULL: none */
    const char *save_journal;     /* as save_state */
    const char *job;              /* whose ranks these are; or the launcher's; NULL: of none */
    char job_found[DL_JOB_BYTES]; /* where it lies if it is the launcher's */
    bool resume;                  /* where the job's rank has left off */
    const char *output;           /* file to write; NULL: standard output */
    const char *spec;             /* file to put into the report; NULL: none */
    uint64_t interval_ms;         /* between two looks */
    uint64_t count;               /* looks to show; 0: until somebody ends it */
    uint64_t seed;                /* valid if has_seed */
    bool has_seed;
    const char *png;     /* file for the batch's pictures; NULL: none */
    const char *html;    /* file for a page with all of it; NULL: none */
    uint64_t sample;     /* the only one to show, valid if has_sample */
    uint64_t draws;      /* number of epochs; 0: not given */
    const char *workers; /* a number or auto, not checked; NULL: not given */
};

/* Which daemon a verb asks where none is named. */
enum verb_daemon {
    DAEMON_ANY,     /* the service; where none runs, the private one of the user's program */
    DAEMON_NONE,    /* it needs none */
    DAEMON_SERVICE, /* the service alone: it changes something */
    DAEMON_ALL,     /* all of them */
};

struct verb {
    const char *name;
    /* "SPEC"; "[NAME]": it may be left out; "NAME X": X follows; "NAME X ...": one or more; NULL:
     * takes none */
    const char *operand;
    uint64_t options;                    /* mask; --socket, --json and --help are always in it */
    int (*run)(const struct options *o); /* returns an exit status, and has reported failures */
    const char *meaning;
    enum verb_daemon daemon;
    const char *view; /* that it shows; NULL: the one of its name */
};

/*
 * Parses argv[2..], the arguments of `verb`. Returns 0, or -EINVAL with `err` saying which argument
 * is wrong and what would be right; `json` and `help` in *ret are set even then.
 */
int _nodiscard_ options_parse(const struct verb *verb, int argc, char **argv, struct options *ret,
                              struct dl_error *err);

/* True if --json stands among the arguments: errors are then JSON, whatever else is wrong. */
bool options_want_json(int argc, char **argv);

void options_help(const struct verb *verb);

/* The verbs, one function each: main.c has their table. Each returns an exit status. */
int verb_plan(const struct options *o);
int verb_check(const struct options *o);
int verb_lengths(const struct options *o);
int verb_kinds(const struct options *o);
int verb_run(const struct options *o);
int verb_fetch(const struct options *o); /* run/warm.c */
int verb_pretokenize(const struct options *o);
int verb_peek(const struct options *o);
int verb_replay(const struct options *o);
int verb_state(const struct options *o);
int verb_resize(const struct options *o);
int verb_why(const struct options *o);
int verb_headspace(const struct options *o);
int verb_mix(const struct options *o);
int verb_weights(const struct options *o); /* offline/weights.c */
int verb_trace(const struct options *o);
int verb_report(const struct options *o);
int verb_spec(const struct options *o);
int verb_metrics(const struct options *o);
int verb_top(const struct options *o);
int verb_status(const struct options *o);
int verb_ready(const struct options *o);
int verb_view(const struct options *o);    /* the lists */
int verb_control(const struct options *o); /* stop, drain, reload */
int verb_close_run(const struct options *o);

#endif
