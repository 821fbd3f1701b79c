/*
 * The roofline of images: what one thread reaches that does nothing but decode. The files are in
 * memory before the clock starts, one libjpeg object does them all, and around its calls is no
 * more than the same random crops, resampled to the same pixels, ask for.
 *
 * --decoder takes the daemon's own decoder instead: the price of its checks, by itself. Before
 * either, one batch is made by both, and compared.
 */
#include "daemon/data/decode/image/image.h"
#include "daemon/data/decode/image/image_files.h"
#include "daemon/data/decode/image/pixel_rows.h"
#include "daemon/plan/plan.h"
#include "tests/bench/bench.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <jpeglib.h>

/* Rows that are aligned libjpeg-turbo writes past the cache. */
enum { MARGIN = 4, OFF_ALIGNMENT = 8, PIXEL = PICTURE_PIXEL };

struct options {
    const char *images;
    uint64_t batch;
    uint64_t slots; /* batches of memory that are filled in turn */
    uint64_t seed;
    uint64_t epoch;
    uint64_t batches; /* stop after so many; 0: by time alone */
    double seconds;
    unsigned touch; /* an enum touch */
    bool decoder;
    bool serve;
};

struct loop {
    struct options opt;
    struct image_file *files; /* mapped as long as the process lives */
    uint64_t n;
    uint64_t *order; /* owned; steps × batch */
    uint64_t steps;
    uint64_t epoch;      /* of `order` */
    uint8_t *out;        /* owned; opt.slots batches */
    uint8_t *row_memory; /* owned */
    uint8_t *row;
    size_t row_room;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors; /* a file it cannot read ends the program */
    struct resizer resizer;
    struct picture whole; /* where rows are not resized as they come */
    struct picture made;
    struct image_decoder *decoder; /* owned */
};

static const struct spec_image spec = {
    .transform = TRANSFORM_RANDOM_CROP,
    .layout = LAYOUT_HWC,
    .height = 224,
    .width = 224,
    .flip = 0.5,
    .scale = {0.08, 1},
    .aspect = {0.75, 1.3333333333333333},
};
static const size_t image_bytes = (size_t)224 * 224 * 3;

static int fail(const char *what, const char *path)
{
    fprintf(stderr, "image_loop: %s: cannot %s\n", path, what);
    return -1;
}

static int map_files(struct loop *loop)
{
    struct class_list list = {0};
    struct dl_error err = {0};

    if (class_list_make(loop->opt.images, &image_files, &(struct data_env){0}, &list, &err) < 0) {
        fprintf(stderr, "image_loop: %s: %s\n", err.path, err.message);
        return -1;
    }
    loop->n = list.n;
    loop->files = calloc(list.n, sizeof *loop->files);
    for (uint64_t i = 0; loop->files && i < list.n; i++) {
        char path[4096];
        struct stat st;
        size_t len;
        (void)class_list_get(&list, i, path, sizeof path, &len);
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
            return fail("open it", path);
        void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
        if (map == MAP_FAILED)
            return fail("map it", path);
        loop->files[i] =
            (struct image_file){.data = map, .bytes = (size_t)st.st_size, .path = "a file"};
    }
    class_list_deinit(&list);
    return loop->files ? 0 : fail("list it: no memory", loop->opt.images);
}

static int make_order(struct loop *loop, uint64_t epoch)
{
    _cleanup_(plan_freep) struct plan *plan = NULL;

    if (plan_new(&(struct plan_params){.length = loop->n,
                                       .order = PLAN_TORCH,
                                       .seed = loop->opt.seed,
                                       .epoch = epoch,
                                       .world = 1,
                                       .batch_size = loop->opt.batch,
                                       .drop_last = true,
                                       .even = true},
                 &plan) < 0)
        return fail("plan an epoch", loop->opt.images);
    loop->epoch = epoch;
    loop->steps = plan_steps(plan, 0);
    if (loop->steps == 0)
        return fail("make one whole batch of its images", loop->opt.images);
    if (!loop->order)
        loop->order = calloc(loop->steps * loop->opt.batch, sizeof *loop->order);
    for (uint64_t k = 0; loop->order && k < loop->steps; k++)
        (void)plan_step(plan, 0, k, loop->order + k * loop->opt.batch);
    return loop->order ? 0 : fail("plan an epoch", loop->opt.images);
}

/* One direction of a box, reduced by the inverse DCT: its first input, and how many they are. */
struct span {
    uint32_t low, n;
};

static struct span span_of(uint32_t first, uint32_t n, unsigned reduce)
{
    uint32_t low = first / reduce;

    return (struct span){low, (first + n + reduce - 1) / reduce - low};
}

/* The rows of the box, at that scale; returns the first pixel of those that come. */
static JDIMENSION start(struct loop *loop, unsigned reduce, struct span across, struct span down)
{
    struct jpeg_decompress_struct *jpeg = &loop->jpeg;
    JDIMENSION left = across.low > MARGIN ? across.low - MARGIN : 0, width;

    jpeg->out_color_space = JCS_EXT_RGBX;
    jpeg->scale_num = 1;
    jpeg->scale_denom = reduce;
    (void)jpeg_start_decompress(jpeg);
    width = (JDIMENSION)min_u64(across.low + across.n + MARGIN, jpeg->output_width) - left;
    jpeg_crop_scanline(jpeg, &left, &width);
    if (down.low > MARGIN)
        (void)jpeg_skip_scanlines(jpeg, down.low - MARGIN);
    size_t room = (size_t)jpeg->output_width * PIXEL + PICTURE_SLACK;
    if (room > loop->row_room) {
        free(loop->row_memory);
        loop->row_memory = calloc(1, room + OFF_ALIGNMENT);
        loop->row = loop->row_memory + OFF_ALIGNMENT;
        loop->row_room = room;
    }
    return left;
}

static unsigned choose_reduction(const struct image_crop *crop)
{
    unsigned reduce = 8;

    while (reduce > 1 && (crop->box.height < 1.5 * reduce * crop->size.height ||
                          crop->box.width < 1.5 * reduce * crop->size.width))
        reduce /= 2;
    return reduce;
}

static void put(const struct picture *made, bool mirror, uint8_t *out)
{
    uint32_t w = made->size.width;

    for (uint32_t y = 0; y < made->size.height; y++, out += (size_t)w * 3) {
        const uint8_t *row = picture_row(made, y);
        if (!mirror)
            pixel_rows_narrow(row, w, out);
        for (uint32_t x = 0; mirror && x < w; x++)
            memcpy(out + (size_t)x * 3, row + (size_t)(w - 1 - x) * PIXEL, 3);
    }
}

static void decode_bare(struct loop *loop, const struct image_file *file, struct rng *rng,
                        uint8_t *out)
{
    struct jpeg_decompress_struct *jpeg = &loop->jpeg;
    struct image_crop crop;

    jpeg_mem_src(jpeg, file->data, file->bytes);
    (void)jpeg_read_header(jpeg, TRUE);
    struct image_size size = {.height = jpeg->image_height, .width = jpeg->image_width};
    image_crop_choose(&spec, size, rng, &crop);
    unsigned reduce = choose_reduction(&crop);
    struct span across = span_of(crop.box_left, crop.box.width, reduce);
    struct span down = span_of(crop.box_top, crop.box.height, reduce);
    const struct image_size in = {down.n, across.n};
    const struct resize_source source = {.of = in,
                                         .in = in,
                                         .part = {(double)crop.box_top / reduce - down.low,
                                                  (double)crop.box_left / reduce - across.low,
                                                  (double)crop.box.height / reduce,
                                                  (double)crop.box.width / reduce}};
    const struct resize_goal goal = resize_goal_of(crop.size, RESIZE_BILINEAR);
    JDIMENSION origin = start(loop, reduce, across, down);
    int by_rows = resizer_begin(&loop->resizer, &source, &goal);
    if (by_rows < 0 || (by_rows == 0 && picture_set(&loop->whole, in, false) < 0))
        abort();
    for (uint32_t y = down.low > MARGIN ? down.low - MARGIN : 0; y < down.low + down.n; y++) {
        (void)jpeg_read_scanlines(jpeg, &loop->row, 1);
        const uint8_t *row = loop->row + (size_t)(across.low - origin) * PIXEL;
        if (y >= down.low && by_rows)
            resizer_row(&loop->resizer, row);
        else if (y >= down.low)
            memcpy(picture_row(&loop->whole, y - down.low), row, (size_t)in.width * PIXEL);
    }
    jpeg_abort_decompress(jpeg);
    if ((by_rows ? resizer_end(&loop->resizer, &loop->made)
                 : resizer_whole(&loop->resizer, &loop->whole, &loop->made)) < 0)
        abort();
    put(&loop->made, crop.mirror, out);
}

static void decode_ours(struct loop *loop, const struct image_file *file, struct rng *rng,
                        uint8_t *out)
{
    struct dl_error err = {0};
    struct image_size size;

    if (image_open(loop->decoder, file, &size, &err) < 0 ||
        image_decode(loop->decoder, &spec, rng, out, &err) < 0) {
        fprintf(stderr, "image_loop: %s\n", err.message);
        exit(1);
    }
}

/* Batch `n` of epochs that are the same again and again, in the slot whose turn it is. */
static uint8_t *make_batch(struct loop *loop, uint64_t n, bool ours)
{
    uint8_t *slot = loop->out + n % loop->opt.slots * loop->opt.batch * image_bytes;

    for (uint64_t i = 0; i < loop->opt.batch; i++) {
        uint64_t index = loop->order[n % loop->steps * loop->opt.batch + i];
        uint8_t *out = slot + i * image_bytes;
        struct rng rng;
        rng_init(&rng, loop->opt.seed, loop->epoch, index);
        if (ours)
            decode_ours(loop, &loop->files[index], &rng, out);
        else
            decode_bare(loop, &loop->files[index], &rng, out);
    }
    return slot;
}

static int compare(struct loop *loop)
{
    _cleanup_free_ uint8_t *want = malloc(loop->opt.batch * image_bytes);

    if (!want)
        return -1;
    memcpy(want, make_batch(loop, 0, false), loop->opt.batch * image_bytes);
    (void)make_batch(loop, 0, true);
    if (memcmp(want, loop->out, loop->opt.batch * image_bytes) != 0)
        return fail("make the pixels of the daemon's decoder", loop->opt.images);
    return 0;
}

static void run(struct loop *loop)
{
    uint64_t most = loop->opt.batches ? loop->opt.batches : UINT64_MAX, n = 0;
    double begun = bench_now_s(), elapsed;

    do {
        const uint8_t *slot = make_batch(loop, n++, loop->opt.decoder);
        bench_touch(slot, loop->opt.batch * image_bytes, loop->opt.touch);
        elapsed = bench_now_s() - begun;
    } while (n < most && elapsed < loop->opt.seconds);
    printf("{\"batches\": %llu, \"seconds\": %.9f, \"batches_per_s\": %.3f, \"batch_bytes\": "
           "%llu}\n",
           (unsigned long long)n, elapsed, (double)n / elapsed,
           (unsigned long long)(loop->opt.batch * image_bytes));
    fflush(stdout);
}

static int usage(void)
{
    fprintf(stderr, "usage: image_loop --images DIR --batch N [--slots N] [--seconds S]\n"
                    "                  [--batches N] [--seed N] [--touch none|first|all] "
                    "[--decoder] [--serve]\n");
    return 2;
}

static bool parse_options(int argc, char **argv, struct options *opt)
{
    const struct bench_option options[] = {
        {"images", .text = &opt->images},
        {"batch", .number = &opt->batch, .max = 65536},
        {"slots", .number = &opt->slots, .max = 4096},
        {"seconds", .seconds = &opt->seconds},
        {"batches", .number = &opt->batches, .max = UINT64_MAX},
        {"seed", .number = &opt->seed, .max = UINT64_MAX},
        {"touch", .choice = &opt->touch, .names = bench_touches},
        {"decoder", .flag = &opt->decoder},
        {"serve", .flag = &opt->serve},
        {0},
    };

    return bench_parse(argc, argv, options) && opt->images && opt->batch && opt->slots;
}

static void loop_deinit(struct loop *loop)
{
    jpeg_destroy_decompress(&loop->jpeg);
    resizer_deinit(&loop->resizer);
    picture_deinit(&loop->whole);
    picture_deinit(&loop->made);
    image_decoder_free(loop->decoder);
    free(loop->files);
    free(loop->order);
    free(loop->row_memory);
    free(loop->out);
}

int main(int argc, char **argv)
{
    struct loop loop = {.opt = {.slots = 1, .touch = TOUCH_FIRST, .seconds = 0.5}};
    int r = -1;

    if (!parse_options(argc, argv, &loop.opt))
        return usage();
    loop.jpeg.err = jpeg_std_error(&loop.errors);
    jpeg_create_decompress(&loop.jpeg);
    loop.out = calloc(loop.opt.slots, loop.opt.batch * image_bytes);
    if (loop.out && image_decoder_new(&loop.decoder, NULL) == 0 && map_files(&loop) == 0 &&
        make_order(&loop, 0) == 0)
        r = compare(&loop);
    for (uint64_t i = 0; r == 0 && bench_next_run(loop.opt.serve, i); i++) {
        if ((r = make_order(&loop, i)) == 0)
            run(&loop);
    }
    loop_deinit(&loop);
    return r < 0;
}
