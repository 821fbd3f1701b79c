/* The verb that measures how much faster a loader's trainers could be. */
#include "client/dlctl/ask.h"
#include "client/dlctl/options.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "proto/common/figures.h"
#include "proto/shared/words.h"

#include <stdio.h>
#include <unistd.h>

enum { STEPS_DEFAULT = 50 };

static double headspace_real(const struct value *map, const char *key)
{
    return value_real(value_get(map, key));
}

static unsigned long long headspace_whole(const struct value *map, const char *key)
{
    return (ull)value_count(value_get(map, key));
}

static void headspace_print_steps(const char *what, const struct value *view, const char *key,
                                  unsigned long long steps)
{
    const struct value *spread = value_get(view, key);
    char mean[UNITS_MAX], from[UNITS_MAX], to[UNITS_MAX];

    format_seconds(headspace_real(spread, "mean_s"), mean, sizeof mean);
    format_seconds(headspace_real(spread, "quarter_s"), from, sizeof from);
    format_seconds(headspace_real(spread, "three_quarters_s"), to, sizeof to);
    printf("%-14s %s a step, half of them %s to %s (%llu steps)\n", what, mean, from, to, steps);
}

static void headspace_print_text(const struct value *view)
{
    const struct value *words = value_get(view, "headspace");
    unsigned long long ranks = headspace_whole(view, "ranks");
    char times[16], ahead[UNITS_MAX];

    printf("%s\n", words && words->type == VALUE_STRING ? words->string : "");
    headspace_print_steps("as it is", view, "as_is", headspace_whole(view, "watched_steps"));
    headspace_print_steps("at its best", view, "perfect", headspace_whole(view, "steps"));
    format_count(headspace_real(view, "ahead"), ahead, sizeof ahead);
    printf("%-14s %llu bursts of %s batches, %llu rank%s\n", "measured in",
           headspace_whole(view, "bursts"), ahead, ranks, ranks == 1 ? "" : "s");
    words_times(headspace_real(view, "by_waiting"), times, sizeof times);
    printf("%-14s %s times as fast, if all waiting for batches were left out\n", "from waits",
           times);
}

int verb_headspace(const struct options *o)
{
    _cleanup_(ask_end) struct dl_client *client = NULL;
    uint32_t steps = o->steps == UINT64_MAX ? STEPS_DEFAULT : (uint32_t)o->steps;
    const void *data = NULL;
    size_t len = 0;
    int r = ask_connect(o, &client);

    if (r == 0 && !o->json && isatty(STDERR_FILENO))
        fprintf(stderr,
                "measuring %u steps, and as many with batches that come in bursts; ^C ends it\n",
                steps);
    if (r == 0)
        r = dl_client_headspace(client, o->operand, steps, &data, &len);
    return ask_show(o, client, r, (struct dl_span){data, len}, headspace_print_text);
}
