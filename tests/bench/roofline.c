/*
 * The roofline: what one thread reaches that does nothing but the loader's copies. It maps the
 * same .npy file, takes the same rows in the same order (the loader's own plan), and copies each
 * into a batch buffer; the buffers are a ring of as many slots of pre-faulted memfd memory as the
 * loader has, because copies to memory that is in no cache are slower than to one buffer again and
 * again (--slots 1 shows how much). It touches each batch as the trainer does.
 *
 * With --window L the file is a flat array of uint16, a row is a window of L tokens, and what is
 * copied are L tokens from its start and the L from its second one on, each widened to int64.
 *
 * The order is computed and every page mapped before the clock starts: this is an upper bound for
 * one core, not a loader.
 */
#include "daemon/plan/plan.h"
#include "tests/bench/bench.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct options {
    const char *npy;
    uint64_t rows;
    uint64_t window; /* tokens; 0: rows are copied as they are */
    uint64_t batch;
    uint64_t slots;
    uint64_t seed;
    uint64_t epoch;
    uint64_t batches; /* stop after so many; 0: by time alone */
    double seconds;
    unsigned touch; /* an enum touch */
    bool serve;
};

struct roofline {
    struct options opt;
    const char *rows;      /* borrowed from the mapping, which lives as long as the process */
    uint64_t row_bytes;    /* in the file */
    uint64_t sample_bytes; /* in the batch */
    char *ring;            /* likewise */
    uint64_t slot_bytes;
    uint64_t *order; /* owned; steps × batch row numbers */
    uint64_t steps;
};

static int fail(const char *what, const char *path, int r)
{
    fprintf(stderr, "roofline: %s: cannot %s: %s\n", path, what, strerror(-r));
    return r;
}

/* Where the rows begin: magic, two bytes of version, a length of 2 or 4 bytes, the header. */
static bool npy_data_offset(const unsigned char *file, uint64_t size, uint64_t *ret)
{
    uint64_t prefix, offset;

    if (size < 12 || memcmp(file, "\x93NUMPY", 6) != 0 || file[6] < 1 || file[6] > 3)
        return false;
    offset = file[8] | (uint64_t)file[9] << 8;
    prefix = 10;
    if (file[6] > 1) {
        offset |= (uint64_t)file[10] << 16 | (uint64_t)file[11] << 24;
        prefix = 12;
    }
    if (offset > size - prefix)
        return false;
    *ret = prefix + offset;
    return true;
}

static int map_rows(struct roofline *rl)
{
    _cleanup_fd_ int fd = open(rl->opt.npy, O_RDONLY | O_CLOEXEC);
    struct stat st;
    uint64_t offset, bytes;

    if (fd < 0 || fstat(fd, &st) < 0)
        return fail("open it", rl->opt.npy, -errno);
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (map == MAP_FAILED)
        return fail("map it", rl->opt.npy, -errno);
    if (!npy_data_offset(map, (uint64_t)st.st_size, &offset))
        return fail("find rows in it: not an .npy file", rl->opt.npy, -EINVAL);
    bytes = (uint64_t)st.st_size - offset;
    if (rl->opt.window > 0)
        bytes -= min_u64(bytes, sizeof(uint16_t)); /* the last target's */
    if (bytes == 0 || bytes % rl->opt.rows != 0)
        return fail("cut it into the --rows given", rl->opt.npy, -EINVAL);
    rl->rows = (const char *)map + offset;
    rl->row_bytes = rl->sample_bytes = bytes / rl->opt.rows;
    if (rl->opt.window == 0)
        return 0;
    if (rl->row_bytes != rl->opt.window * sizeof(uint16_t))
        return fail("cut it into windows of --window", rl->opt.npy, -EINVAL);
    rl->sample_bytes = 2 * rl->opt.window * sizeof(int64_t);
    return 0;
}

static int map_ring(struct roofline *rl)
{
    enum { PAGE = 4096 };
    _cleanup_fd_ int fd = memfd_create("roofline", MFD_CLOEXEC);
    uint64_t bytes;

    if (fd < 0)
        return fail("create it", "memfd", -errno);
    if (mul_overflows(rl->sample_bytes, rl->opt.batch, &bytes) || bytes > (uint64_t)1 << 40 ||
        mul_overflows(align_up(bytes, PAGE), rl->opt.slots, &bytes) || bytes > (uint64_t)1 << 40)
        return fail("hold so many slots of --batch rows", "memfd", -EFBIG);
    rl->slot_bytes = bytes / rl->opt.slots;
    int r = posix_fallocate(fd, 0, (off_t)bytes);
    /* A file system without the call returns EINVAL too; memfd has it, so this is memory. */
    if (r != 0)
        return fail("allocate its slots", "memfd", -r);
    rl->ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (rl->ring == MAP_FAILED)
        return fail("map its slots", "memfd", -errno);
    return 0;
}

static int make_order(struct roofline *rl, uint64_t epoch)
{
    _cleanup_(plan_freep) struct plan *plan = NULL;
    int r = plan_new(&(struct plan_params){.length = rl->opt.rows,
                                           .order = PLAN_TORCH,
                                           .seed = rl->opt.seed,
                                           .epoch = epoch,
                                           .world = 1,
                                           .batch_size = rl->opt.batch,
                                           .drop_last = true,
                                           .even = true},
                     &plan);
    if (r < 0)
        return fail("plan an epoch", rl->opt.npy, r);
    rl->steps = plan_steps(plan, 0);
    if (rl->steps == 0)
        return fail("make one whole batch of its rows", rl->opt.npy, -EINVAL);
    if (!rl->order)
        rl->order = calloc(rl->steps * rl->opt.batch, sizeof *rl->order);
    if (!rl->order)
        return fail("plan an epoch", rl->opt.npy, -ENOMEM);
    for (uint64_t k = 0; k < rl->steps; k++)
        (void)plan_step(plan, 0, k, rl->order + k * rl->opt.batch);
    return 0;
}

typedef uint16_t any_u16 __attribute__((aligned(1)));

static void widen(const any_u16 *restrict from, int64_t *restrict to, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = from[i];
}

static void copy_window(const struct roofline *rl, uint64_t row, int64_t *input, int64_t *target)
{
    const any_u16 *tokens = (const void *)(rl->rows + row * rl->row_bytes);

    widen(tokens, input, rl->opt.window);
    widen(tokens + 1, target, rl->opt.window);
}

static void copy_batch(const struct roofline *rl, uint64_t n)
{
    const uint64_t *order = rl->order + n % rl->steps * rl->opt.batch;
    char *slot = rl->ring + n % rl->opt.slots * rl->slot_bytes;
    uint64_t window = rl->opt.window;
    int64_t *inputs = (void *)slot, *targets = inputs + rl->opt.batch * window;

    for (uint64_t i = 0; i < rl->opt.batch; i++) {
        if (window > 0)
            copy_window(rl, order[i], inputs + i * window, targets + i * window);
        else
            memcpy(slot + i * rl->row_bytes, rl->rows + order[i] * rl->row_bytes, rl->row_bytes);
    }
    bench_touch(slot, rl->opt.batch * rl->sample_bytes, rl->opt.touch);
}

/* Looks at the clock so seldom that it does not count, even where a batch takes nanoseconds. */
static void run(const struct roofline *rl)
{
    unsigned long long batch_bytes = rl->sample_bytes * rl->opt.batch;
    uint64_t every = batch_bytes < 65536 ? 256 : 1;
    uint64_t most = rl->opt.batches ? rl->opt.batches : UINT64_MAX;
    double begun = bench_now_s(), elapsed = 0;
    uint64_t n = 0;

    do {
        for (uint64_t i = 0; i < every && n < most; i++)
            copy_batch(rl, n++);
        elapsed = bench_now_s() - begun;
    } while (n < most && elapsed < rl->opt.seconds);

    printf("{\"batches\": %llu, \"seconds\": %.9f, \"batches_per_s\": %.3f, \"slots\": %llu, "
           "\"batch_bytes\": %llu}\n",
           (unsigned long long)n, elapsed, (double)n / elapsed, (unsigned long long)rl->opt.slots,
           batch_bytes);
    fflush(stdout);
}

static int usage(void)
{
    fprintf(stderr, "usage: roofline --npy FILE --rows N --batch N [--window L] [--slots N]\n"
                    "                [--seconds S] [--batches N] [--seed N] [--epoch-offset N]\n"
                    "                [--touch none|first|all] [--serve]\n");
    return 2;
}

static bool parse_options(int argc, char **argv, struct options *opt)
{
    const struct bench_option options[] = {
        {"npy", .text = &opt->npy},
        {"rows", .number = &opt->rows, .max = INT64_MAX},
        {"window", .number = &opt->window, .max = INT32_MAX},
        {"batch", .number = &opt->batch, .max = INT32_MAX},
        {"slots", .number = &opt->slots, .max = INT32_MAX},
        {"seconds", .seconds = &opt->seconds},
        {"batches", .number = &opt->batches, .max = UINT64_MAX},
        {"seed", .number = &opt->seed, .max = UINT64_MAX},
        {"epoch-offset", .number = &opt->epoch, .max = UINT64_MAX},
        {"touch", .choice = &opt->touch, .names = bench_touches},
        {"serve", .flag = &opt->serve},
        {0},
    };

    return bench_parse(argc, argv, options) && opt->npy && opt->rows && opt->batch && opt->slots;
}

int main(int argc, char **argv)
{
    struct roofline rl = {
        .opt = {.slots = 1, .seconds = 0.5, .touch = TOUCH_FIRST},
    };

    if (!parse_options(argc, argv, &rl.opt))
        return usage();
    if (map_rows(&rl) < 0 || map_ring(&rl) < 0)
        return 1;
    for (uint64_t i = 0; bench_next_run(rl.opt.serve, i); i++) {
        if (make_order(&rl, rl.opt.epoch + i) < 0)
            return 1;
        run(&rl);
    }
    free(rl.order);
    return 0;
}
