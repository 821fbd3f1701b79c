/*
 * A worker that misbehaves on purpose: the real worker, linked with `fetcher_fill` and
 * `fetcher_slot_bytes` wrapped. What it does is in the name it is started by (the daemon's
 * configuration names a link to it): MODE-always-N or MODE-once-N does MODE at the N-th task (from
 * 1) of each life, or of the first life only (a file NAME.done beside the link remembers);
 * MODE-random-N at one task of N, whichever it happens to be.
 *
 *   exit      exits with status 0          exit3    with status 3 and some last words
 *   abort     aborts                       segv     writes to address 0
 *   hang      never comes back             stop     stops itself (SIGSTOP)
 *   slow      takes 50 ms for every task from the N-th on
 *   busy      computes for 10 ms at every task from the N-th on
 *   fail      the dataset reports an error for sample 7
 *   socket    writes garbage to its socket
 *   queue     advances the completion queue by records it never wrote
 *   oversize  says that the batch is larger than its slot
 *   list      says that there are bad samples, in a list beyond its slot
 *   repeats   says that more samples are repeated than the batch has
 *   torn      fills its slot, spoils all of it, and is killed (SIGKILL)
 *   small     asks for slots that are too small (from the start; N is ignored)
 *   mute      never says that it is ready (N is ignored)
 *   any       one of exit, exit3, abort, segv, hang, stop, socket, queue, oversize, list and
 *             torn, and another one each time
 */
#include "daemon/data/fetch.h"
#include "daemon/worker/worker_socket.h"
#include "proto/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

int __real_fetcher_fill(struct fetcher *fetcher, void *slot, uint64_t slot_bytes,
                        uint64_t *ret_used, struct dl_error *err);
uint64_t __real_fetcher_slot_bytes(const struct fetcher *fetcher);
int __wrap_fetcher_fill(struct fetcher *fetcher, void *slot, uint64_t slot_bytes,
                        uint64_t *ret_used, struct dl_error *err);
uint64_t __wrap_fetcher_slot_bytes(const struct fetcher *fetcher);

static struct {
    char mode[32];
    const char *mood; /* what `any` is at this task */
    bool once;
    bool random;
    unsigned long at;
    char marker[4096];
} plan;

static void read_plan(void)
{
    char name[4096] = "";
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);

    if (plan.mode[0] || fd < 0 || read(fd, name, sizeof name - 1) <= 0)
        return;
    close(fd);
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    char when[16] = "";
    if (sscanf(base, "%31[a-z0-9]-%15[a-z]-%lu", plan.mode, when, &plan.at) != 3) {
        fprintf(stderr, "bad_worker: \"%s\" names no misbehaviour\n", base);
        _exit(2);
    }
    plan.once = strcmp(when, "once") == 0;
    plan.random = strcmp(when, "random") == 0;
    snprintf(plan.marker, sizeof plan.marker, "%.*s.done", (int)sizeof plan.marker - 8, name);
}

static unsigned long draw(unsigned long below)
{
    unsigned long number = 0;

    (void)!getrandom(&number, sizeof number, 0);
    return below ? number % below : 0;
}

/* True when it is time; in a `once` plan for the first worker that gets there only. */
static bool is_time(unsigned long task)
{
    if (plan.random)
        return draw(plan.at) == 0;
    if (task != plan.at)
        return false;
    if (!plan.once)
        return true;
    int fd = open(plan.marker, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool is_mode(const char *mode)
{
    return strcmp(plan.mood ? plan.mood : plan.mode, mode) == 0;
}

static void choose_mood(void)
{
    static const char *const moods[] = {"exit",   "exit3", "abort",    "segv", "hang", "stop",
                                        "socket", "queue", "oversize", "list", "torn"};

    if (strcmp(plan.mode, "any") == 0)
        plan.mood = moods[draw(ARRAY_SIZE(moods))];
}

static void sleep_ms(long ms)
{
    struct timespec ts = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&ts, NULL);
}

static void damage_queue(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned long long begin;

    while (maps && fgets(line, sizeof line, maps)) {
        if (strstr(line, "dloader-queues") && sscanf(line, "%llx-", &begin) == 1) {
            struct worker_queues *queues = (struct worker_queues *)(uintptr_t)begin;
            atomic_fetch_add(&queues->done.tail, 3);
            break;
        }
    }
    if (maps)
        fclose(maps);
}

static void misbehave(void)
{
    if (is_mode("exit"))
        _exit(0);
    if (is_mode("exit3")) {
        fprintf(stderr, "out of cheese\n");
        _exit(3);
    }
    if (is_mode("abort"))
        abort();
    if (is_mode("segv")) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer would turn it into an exit */
        raise(SIGSEGV);
    }
    while (is_mode("hang"))
        sleep_ms(1000);
    if (is_mode("stop"))
        raise(SIGSTOP);
    if (is_mode("socket"))
        (void)!write(WORKER_SOCKET, "\377\377\377\377garbage", 11);
    if (is_mode("queue"))
        damage_queue();
}

/* By the clock of the process, which stands still while it has no processor. */
static void compute_ms(long ms)
{
    struct timespec now, end;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    end.tv_nsec += ms * 1000000;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    do {
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}

int __wrap_fetcher_fill(struct fetcher *fetcher, void *slot, uint64_t slot_bytes,
                        uint64_t *ret_used, struct dl_error *err)
{
    static unsigned long task;

    read_plan();
    task++;
    if (is_mode("slow") && task >= plan.at)
        sleep_ms(50);
    if (is_mode("busy") && task >= plan.at)
        compute_ms(10);
    bool now = is_time(task);
    if (now) {
        choose_mood();
        misbehave();
        if (is_mode("fail")) {
            struct slot_header *header = slot;
            static const char text[] = "sample 7: cannot be read: the moon is full";
            header->error_code = EIO;
            header->error_off = slot_bytes - sizeof text;
            header->error_len = sizeof text - 1;
            memcpy((char *)slot + header->error_off, text, sizeof text);
            return dl_error_set(err, EIO, "dataset", "%s", text);
        }
        if (is_mode("oversize")) {
            *ret_used = slot_bytes * 1000;
            return 0;
        }
    }
    int r = __real_fetcher_fill(fetcher, slot, slot_bytes, ret_used, err);
    if (now && r == 0 && is_mode("repeats"))
        slot_put_repeated(slot, ((struct slot_header *)slot)->samples + 1);
    if (now && is_mode("list")) {
        struct slot_header *header = slot;
        header->bad_off = slot_bytes - 64;
        header->bad_count = 1;
    }
    if (now && is_mode("torn")) {
        memset(slot, 0xa5, *ret_used);
        raise(SIGKILL);
    }
    return r;
}

uint64_t __wrap_fetcher_slot_bytes(const struct fetcher *fetcher)
{
    uint64_t bytes = __real_fetcher_slot_bytes(fetcher);

    read_plan();
    while (is_mode("mute"))
        sleep_ms(1000);
    /* Room for header and indices, but hardly for a tensor. */
    return is_mode("small") ? SLOT_ALIGN : bytes;
}
