/* dlctl: shows and steers what dloaderd does. The table of verbs, and nothing else. */
#include "client/dlctl/find.h"
#include "client/dlctl/manuals.h"
#include "client/dlctl/options.h"
#include "client/dlctl/report.h"
#include "client/dlctl/text.h"
#include "proto/common/word_list.h"

#include <errno.h>
#include <stdio.h>

#define COMMON (BIT(OPTION_SOCKET) | BIT(OPTION_JSON) | BIT(OPTION_HELP))
#define VIEW   (COMMON | BIT(OPTION_WIDE))
#define PLACE  (BIT(OPTION_WORLD) | BIT(OPTION_RANK))
#define LOOK   (BIT(OPTION_PNG) | BIT(OPTION_HTML))

static int verb_help(const struct options *o);

static const struct verb VERBS[] = {
    {"plan", "SPEC",
     COMMON | BIT(OPTION_QUIET) | PLACE | BIT(OPTION_EPOCH) | BIT(OPTION_FROM) | BIT(OPTION_STEPS) |
         BIT(OPTION_LENGTH) | BIT(OPTION_TOTALS) | BIT(OPTION_CHANGES),
     verb_plan, "Prints the sample indices of each step of an epoch. Needs no daemon.",
     DAEMON_NONE},
    {"check", "SPEC",
     COMMON | BIT(OPTION_QUIET) | PLACE | BIT(OPTION_EPOCH) | BIT(OPTION_EPOCHS) |
         BIT(OPTION_BATCHES) | BIT(OPTION_DIGEST) | BIT(OPTION_CHANGES),
     verb_check, "Loads in its own process and shows the content of a batch. Needs no daemon.",
     DAEMON_NONE},
    {"lengths", "SPEC", COMMON | BIT(OPTION_QUIET), verb_lengths,
     "Draws the lengths of the samples and how much batches of tokens would pad. Needs no "
     "daemon.",
     DAEMON_NONE},
    {"kinds", NULL, COMMON, verb_kinds,
     "Lists the kinds of dataset that this installation reads. Needs no daemon.", DAEMON_NONE},
    {"state", "FILE", COMMON, verb_state,
     "Prints the content of an epoch's state. Needs no daemon.", DAEMON_NONE},
    {"run", "SPEC|NAME",
     COMMON | BIT(OPTION_QUIET) | BIT(OPTION_RUN_WORLD) | BIT(OPTION_RUN_RANK) |
         BIT(OPTION_EPOCHS) | BIT(OPTION_FIRST_EPOCH) | BIT(OPTION_BATCHES) | BIT(OPTION_DIGEST) |
         BIT(OPTION_CREDITS) | BIT(OPTION_STATE) | BIT(OPTION_SAVE_STATE) | BIT(OPTION_JOURNAL) |
         BIT(OPTION_SAVE_JOURNAL) | BIT(OPTION_JOB) | BIT(OPTION_RESUME),
     verb_run, "Reads batches from the daemon as a trainer would, and prints the speed.",
     DAEMON_SERVICE},
    {"fetch", "SPEC|NAME", COMMON | BIT(OPTION_QUIET) | BIT(OPTION_EPOCH), verb_fetch,
     "Has the daemon read what an epoch reads, so that remote files are held before a training.",
     DAEMON_SERVICE},
    {"pretokenize", "SPEC", COMMON | BIT(OPTION_QUIET) | BIT(OPTION_PREFIX), verb_pretokenize,
     "Writes the tokens of a dataset's texts as Megatron-LM's files, read later without a "
     "tokenizer.",
     DAEMON_SERVICE},
    {"peek", "SPEC|NAME",
     COMMON | BIT(OPTION_WORLD) | BIT(OPTION_ONE_RANK) | BIT(OPTION_EPOCH) | BIT(OPTION_STEP) |
         BIT(OPTION_INDICES) | BIT(OPTION_VALUES) | LOOK | BIT(OPTION_TEXT) | BIT(OPTION_SAMPLE) |
         BIT(OPTION_DRAWS),
     verb_peek, "Shows the content of one batch, which the daemon loads only for this."},
    {"replay", "SPEC|NAME",
     COMMON | BIT(OPTION_WORLD) | BIT(OPTION_ONE_RANK) | BIT(OPTION_EPOCH) | BIT(OPTION_STEP) |
         BIT(OPTION_INDICES) | BIT(OPTION_BEHIND) | BIT(OPTION_SEED) | BIT(OPTION_ARCHIVE) | LOOK,
     verb_replay, "Recreates a batch as it was delivered, and writes it for numpy.load()."},
    {"status", NULL, VIEW, verb_status,
     "Shows the daemon as a whole, or each one if there are "
     "several.",
     DAEMON_ALL},
    {"loaders", NULL, VIEW, verb_view, "Lists the open loaders."},
    {"epochs", NULL, VIEW, verb_view, "Lists the epochs in progress, one line per rank."},
    {"mixtures", "[NAME]", VIEW, verb_view,
     "Lists the datasets of mixtures with their wanted and actual shares, of one loader or all."},
    {"workers", NULL, VIEW, verb_view, "Lists the worker processes."},
    {"ring", NULL, VIEW, verb_view, "Lists the shared-memory segments and their slots."},
    {"sessions", NULL, VIEW, verb_view, "Lists the connected clients."},
    {"users", NULL, VIEW, verb_view, "Lists how much each user uses of what has limits."},
    {"quarantine", "[NAME]", VIEW, verb_view,
     "Lists the bad samples that were left out or replaced, of one loader or all."},
    {"members", NULL, VIEW, verb_view,
     "Shows the nodes of the daemon's cluster, and their "
     "ranks."},
    {"spec", "NAME", COMMON, verb_spec,
     "Prints the spec of an open loader, which can be opened again."},
    {"times", "[NAME]", VIEW, verb_view,
     "Shows how long batches of one loader, or all, spend in each stage."},
    {"lately", "[NAME]", VIEW, verb_view,
     "Draws the last ten minutes: what a loader delivered, and how much each rank waited."},
    {"slow", "[NAME]", VIEW, verb_view,
     "Lists the samples of one loader, or all, that took longest to make.", .view = "slowest"},
    {"remote", NULL, VIEW, verb_view,
     "Shows what is asked of stores for remote files, how they answer, and what is held."},
    {"headspace", "NAME", COMMON | BIT(OPTION_MEASURED_STEPS), verb_headspace,
     "Measures how much faster a loader's trainers would be if loading cost nothing."},
    {"resize", "NAME", COMMON | BIT(OPTION_WORKERS), verb_resize,
     "Gives a running loader another number of workers; its batches stay the same."},
    {"why", "NAME", COMMON, verb_why,
     "Says what limits a loader's speed, and why it has as many workers as it has."},
    {"mix", "NAME DATASET=WEIGHT ...", COMMON | BIT(OPTION_AT) | BIT(OPTION_AT_EPOCH), verb_mix,
     "Changes the weights of a running mixture, for all ranks from a later step on."},
    {"weights", "NAME FILE", COMMON | BIT(OPTION_AT) | BIT(OPTION_AT_EPOCH), verb_weights,
     "Changes the sample weights of a running loader, for all ranks from a later step on."},
    {"trace", "[NAME]", COMMON | BIT(OPTION_OUTPUT), verb_trace,
     "Writes the last batches of one loader, or all, as a Chrome trace: a row for each worker and "
     "rank."},
    {"report", "NAME", COMMON | BIT(OPTION_OUTPUT) | BIT(OPTION_SPEC), verb_report,
     "Writes a report of one loader as an HTML page: speed over time, stages, slow batches, "
     "errors."},
    {"top", "[NAME]", COMMON | BIT(OPTION_INTERVAL) | BIT(OPTION_LOOKS), verb_top,
     "Shows a live view, full-screen on a terminal, otherwise as text."},
    {"metrics", NULL, COMMON, verb_metrics, "Prints all metrics, for Prometheus."},
    {"ready", NULL, COMMON, verb_ready,
     "Exits with 0 if the daemon serves clients and, in a cluster, its round is complete.",
     DAEMON_SERVICE},
    {"stop", NULL, COMMON, verb_control, "Stops the daemon now.", DAEMON_SERVICE},
    {"drain", NULL, COMMON, verb_control,
     "Stops the daemon after the epochs in progress; accepts nothing new meanwhile.",
     DAEMON_SERVICE},
    {"reload", NULL, COMMON, verb_control, "Makes the daemon reload its configuration.",
     DAEMON_SERVICE},
    {"close-run", NULL, COMMON, verb_close_run,
     "Closes the cluster's run on all nodes permanently: no node can join under its id again.",
     DAEMON_SERVICE},
    {"help", "[TOPIC]", COMMON, verb_help,
     "Prints a verb's purpose and options, or a manual: dlctl, dloader-spec, dlclient, dloaderd, "
     "dloaderd.conf or dloader-plugin.",
     DAEMON_NONE},
};

static void main_print_help(void)
{
    enum { LEFT = 20 };

    printf("Usage: dlctl VERB [options]\n\nInspects and controls dloaderd, and loads data "
           "without it.\n\nVerbs:\n");
    for (size_t i = 0; i < ARRAY_SIZE(VERBS); i++) {
        char left[32];

        snprintf(left, sizeof left, "%s%s%s", VERBS[i].name, VERBS[i].operand ? " " : "",
                 VERBS[i].operand ? VERBS[i].operand : "");
        printf("  %-*s ", LEFT - 3, left);
        text_wrap(stdout, VERBS[i].meaning, max_u64(LEFT, strlen(left) + 3), LEFT, TEXT_WIDTH);
    }
    printf("\n  --help, --version\n\nEvery verb has --socket PATH, --json and --help.\n"
           "Exit status: 0 done, 1 failed, 2 usage. See dlctl(1).\n");
}

static int main_no_such_verb(const char *name, struct dl_error *err)
{
    struct word_list verbs;

    if (*name == '-')
        return dl_error_set(err, EINVAL, name,
                            "options come after the verb: dlctl VERB [options]; see dlctl help");
    word_list_begin(&verbs, name);
    for (size_t i = 0; i < ARRAY_SIZE(VERBS); i++)
        word_list_add(&verbs, VERBS[i].name);
    if (verbs.best)
        return dl_error_set(err, EINVAL, name, "no such verb; did you mean %s?", verbs.best);
    return dl_error_set(err, EINVAL, name, "no such verb; verbs are %s", verbs.text);
}

static const struct verb *main_find_verb(const char *name, struct dl_error *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(VERBS); i++)
        if (strcmp(VERBS[i].name, name) == 0)
            return &VERBS[i];
    (void)main_no_such_verb(name, err);
    return NULL;
}

static int main_usage(const struct options *o, const struct dl_error *err)
{
    report_error(o, err);
    return STATUS_USAGE;
}

static const struct manual *main_find_manual(const char *name)
{
    const struct manual *manual = manuals;

    while (manual->name && strcmp(manual->name, name) != 0)
        manual++;
    return manual->name ? manual : NULL;
}

static int verb_help(const struct options *o)
{
    struct dl_error err = {0};
    const struct manual *manual = o->operand ? main_find_manual(o->operand) : NULL;
    const struct verb *verb = o->operand && !manual ? main_find_verb(o->operand, &err) : NULL;

    if (err.code)
        return main_usage(o, &err);
    if (manual)
        fputs(manual->text, stdout);
    else if (verb)
        options_help(verb);
    else
        main_print_help();
    return STATUS_DONE;
}

int main(int argc, char **argv)
{
    struct options o = {.json = options_want_json(argc, argv)};
    struct dl_error err = {0};
    const struct verb *verb;
    _cleanup_free_ char *socket = NULL;

    if (argc < 2) {
        dl_error_set(&err, EINVAL, "", "needs a verb: dlctl VERB [options]; see dlctl --help");
        return main_usage(&o, &err);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        main_print_help();
        return report_flush(&o, STATUS_DONE);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("dlctl %s\n", DLOADER_VERSION);
        return report_flush(&o, STATUS_DONE);
    }
    verb = main_find_verb(argv[1], &err);
    if (!verb || options_parse(verb, argc, argv, &o, &err) < 0)
        return main_usage(&o, &err);
    if (o.help) {
        options_help(verb);
        return report_flush(&o, STATUS_DONE);
    }
    if (verb->daemon != DAEMON_NONE && find_socket(&o, &socket, &err) < 0)
        return report_error(&o, &err);
    if (socket)
        o.socket = socket;
    return report_flush(&o, verb->run(&o));
}
