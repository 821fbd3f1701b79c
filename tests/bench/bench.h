/*
 * What the benchmark's programs share: a clock, the trainer's touch of a batch, option parsing and
 * the rhythm of runs. Single-threaded programs; no state.
 *
 * A program run with --serve waits for a line on standard input before each run and answers it
 * with one line of JSON, so that bench.py can interleave contenders that stay warm. End of input
 * ends it. Without --serve it runs once.
 */
#ifndef DL_BENCH_H
#define DL_BENCH_H

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <time.h>

#include "proto/common/base.h"

enum touch { TOUCH_NONE, TOUCH_FIRST, TOUCH_ALL };

static const char *const bench_touches[] = {"none", "first", "all", NULL};

static inline double bench_now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* A decimal number ≤ max; no sign, no space, nothing after it. */
static inline bool bench_parse_u64(const char *text, uint64_t max, uint64_t *ret)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || n > max)
        return false;
    *ret = n;
    return true;
}

static inline bool bench_parse_seconds(const char *text, double *ret)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    double s = strtod(text, &end);
    if (*end != '\0' || !(s <= 86400))
        return false;
    *ret = s;
    return true;
}

/* One of `names`, by its place among them. */
static inline bool bench_parse_choice(const char *text, const char *const *names, unsigned *ret)
{
    for (unsigned i = 0; names[i]; i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret = i;
            return true;
        }
    }
    return false;
}

/* --name VALUE, or --name alone for a flag; what is set is the one pointer that is not NULL. */
struct bench_option {
    const char *name;
    const char **text;
    uint64_t *number; /* at most `max` */
    uint64_t max;
    double *seconds;
    unsigned *choice; /* of `names` */
    const char *const *names;
    bool *flag;
};

static inline bool bench_take(const struct bench_option *option, const char *value)
{
    if (option->text)
        *option->text = value;
    else if (option->flag)
        *option->flag = true;
    else if (option->number)
        return bench_parse_u64(value, option->max, option->number);
    else if (option->seconds)
        return bench_parse_seconds(value, option->seconds);
    else
        return bench_parse_choice(value, option->names, option->choice);
    return true;
}

/* `options` end with one without a name. */
static inline bool bench_parse(int argc, char **argv, const struct bench_option *options)
{
    enum { MOST = 16 };
    struct option longs[MOST + 1] = {0};

    for (int i = 0; options[i].name; i++) {
        assert(i < MOST);
        longs[i].name = options[i].name;
        longs[i].has_arg = options[i].flag ? no_argument : required_argument;
    }
    for (int c, i; (c = getopt_long(argc, argv, "", longs, &i)) != -1;) {
        if (c != 0 || !bench_take(&options[i], optarg))
            return false;
    }
    return optind == argc;
}

/*
 * Reads what the trainer reads: the first 8 bytes, or one word of each cache line. The empty
 * instruction uses the sum, so that the compiler cannot leave the reads out.
 */
static inline void bench_touch(const void *data, uint64_t bytes, unsigned touch)
{
    enum { LINE = 64 };
    uint64_t end = touch == TOUCH_NONE ? 0 : touch == TOUCH_FIRST ? min_u64(bytes, 1) : bytes;
    uint64_t sum = 0;

    for (uint64_t at = 0; at < end; at += LINE) {
        uint64_t word = 0;
        memcpy(&word, (const char *)data + at, min_u64(sizeof word, bytes - at));
        sum += word;
    }
    __asm__ volatile("" : : "r"(sum));
}

/* As a trainer computes between two batches. */
static inline void bench_rest(double seconds)
{
    struct timespec ts = {.tv_sec = (time_t)seconds};

    ts.tv_nsec = (long)((seconds - (double)ts.tv_sec) * 1e9);
    nanosleep(&ts, NULL);
}

/* How long each batch of a run was waited for. */
struct bench_waits {
    double *seconds; /* owned */
    size_t n;
    size_t room;
};

static inline int bench_waits_add(struct bench_waits *waits, double seconds)
{
    if (waits->n == waits->room) {
        size_t room = waits->room ? 2 * waits->room : 1024;
        double *grown = realloc(waits->seconds, room * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        waits->seconds = grown;
        waits->room = room;
    }
    waits->seconds[waits->n++] = seconds;
    return 0;
}

static inline int bench_compare_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Members of an object in JSON, or nothing where nothing was waited for. Sorts the waits. */
static inline void bench_waits_print(struct bench_waits *waits)
{
    size_t last = waits->n - 1;

    if (waits->n == 0)
        return;
    qsort(waits->seconds, waits->n, sizeof *waits->seconds, bench_compare_seconds);
    printf("\"wait_p50_s\": %.9f, \"wait_p99_s\": %.9f, \"wait_most_s\": %.9f, ",
           waits->seconds[last / 2], waits->seconds[(size_t)((double)last * 0.99)],
           waits->seconds[last]);
}

/* True when another run is due: the next line of input, or once without --serve. */
static inline bool bench_next_run(bool serve, uint64_t runs_done)
{
    int c;

    if (!serve)
        return runs_done == 0;
    do
        c = getchar();
    while (c != '\n' && c != EOF);
    return c != EOF;
}

#endif
