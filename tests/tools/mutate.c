/*
 * Runs a test program's cases on mutants, for mutate.py, which links this with the program and with
 * the mutated files. $MUTATE_PLAN has lines `mutant case seconds`, 0 for the code as it is;
 * $MUTATE_RESULT gets one for each, with the exit status, 0 where the case has passed, and of
 * mutant 0 the time that it took and the mutants that it would notice. Each case runs in a process
 * of its own.
 */
#include "tests/lib/harness.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int mutant_now = -1;
unsigned char *mutant_seen;

int __real__cmocka_run_group_tests(const char *, const struct CMUnitTest *, size_t,
                                   CMFixtureFunction, CMFixtureFunction);
int __wrap__cmocka_run_group_tests(const char *, const struct CMUnitTest *, size_t,
                                   CMFixtureFunction, CMFixtureFunction);

static double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Of processor time a case has `limit` seconds, however loaded the machine is. It may also wait for
 * what never comes; and what it has begun may outlive it.
 */
static int wait_for(pid_t pid, double limit, double *ret_seconds)
{
    siginfo_t info = {0};
    struct rusage used;
    double end = seconds_now() + 5 + 20 * limit;
    int status = 0;

    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid == 0 &&
           seconds_now() < end)
        usleep(500);
    kill(-pid, SIGKILL);
    wait4(pid, &status, 0, &used);
    *ret_seconds = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                   (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    return status;
}

static int run_case(const char *name, const struct CMUnitTest *test, CMFixtureFunction setup,
                    CMFixtureFunction teardown, double limit)
{
    struct itimerval timer = {
        .it_value = {(time_t)limit, (suseconds_t)((limit - (time_t)limit) * 1e6)}};

    setpgid(0, 0);
    harness_begin();
    setitimer(ITIMER_PROF, &timer, NULL);
    return harness_end(name, __real__cmocka_run_group_tests(name, test, 1, setup, teardown));
}

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown)
{
    FILE *plan = fopen(getenv("MUTATE_PLAN"), "r"), *result = fopen(getenv("MUTATE_RESULT"), "w");
    size_t most = strtoul(getenv("MUTATE_MOST"), NULL, 10) + 1, number;
    unsigned enough = (unsigned)atoi(getenv("MUTATE_ENOUGH")), weight,
             *killed = calloc(most, sizeof *killed);
    double limit, took;
    int mutant, status;

    mutant_seen = mmap(NULL, most, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    alarm(0);
    for (size_t i = 0; i < n; i++)
        fprintf(result, "case %zu %s\n", i, tests[i].name);
    while (fscanf(plan, "%d %zu %lf %u", &mutant, &number, &limit, &weight) == 4) {
        if (number >= n || killed[mutant] >= enough)
            continue;
        memset(mutant_seen, 0, most);
        fflush(result);
        pid_t pid = fork();
        if (pid == 0) {
            fclose(plan), fclose(result);
            mutant_now = mutant > 0 ? mutant : -1; /* 0 stands for none */
            exit(run_case(name, &tests[number], setup, teardown, limit));
        }
        setpgid(pid, pid);
        status = wait_for(pid, limit, &took);
        killed[mutant] += status != 0 && mutant > 0 ? weight : 0;
        fprintf(result, "ran %d %zu %d %.3f", mutant, number, status, took);
        for (size_t i = 1; mutant == 0 && i < most; i++)
            if (mutant_seen[i])
                fprintf(result, " %zu", i);
        fprintf(result, "\n");
    }
    fclose(plan), fclose(result);
    _exit(0);
}
