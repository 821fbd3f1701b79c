/*
 * What transforms cost: one thread applies a list of them to one picture, again and again, with the
 * random numbers of one sample after the other.
 *
 *   transforms_loop PICTURE SECONDS LIST...
 *
 * prints for each list, which is YAML or JSON, the processor time of one picture in microseconds,
 * decoding included; the list [] is decoding alone.
 */
#include "daemon/data/decode/transform/transforms.h"
#include "proto/yaml.h"
#include "tests/lib/read_file.h"

#include <stdio.h>
#include <time.h>

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct loop {
    struct image_file file;
    struct image_decoder *decoder;
    struct transforms_runner *run;
    uint8_t *out;
    size_t room;
};

static int make_one(struct loop *loop, const struct transforms *transforms, uint64_t index,
                    struct dl_error *err)
{
    struct transforms_shape shape;
    struct draws_keyed draws;
    struct image_size size;
    int r;

    draws_keyed_init(&draws, 1, 0, index);
    if ((r = image_open(loop->decoder, &loop->file, &size, err)) < 0 ||
        (r = transforms_run(transforms, loop->run, loop->decoder, &draws.base, loop->file.path,
                            &shape, err)) < 0)
        return r;
    if (transforms_bytes(&shape) > loop->room) {
        free(loop->out);
        loop->room = transforms_bytes(&shape);
        loop->out = malloc(loop->room);
    }
    transforms_write(loop->run, TRANSFORMS_AWAY, loop->out);
    return 0;
}

static int time_list(struct loop *loop, const char *text, double seconds, struct dl_error *err)
{
    struct transforms *transforms = NULL;
    struct value list = {0};
    uint64_t n = 0;
    int r = yaml_parse(text, strlen(text), "list", &list, err);

    if (r == 0)
        r = transforms_read(&list, "list", &transforms, err);
    if (r == 0)
        r = make_one(loop, transforms, 0, err);
    double start = now();
    while (r == 0 && now() - start < seconds)
        r = make_one(loop, transforms, ++n, err);
    if (r == 0)
        printf("%10.1f  %s\n", (now() - start) / (double)n * 1e6, text);
    transforms_free(transforms);
    value_deinit(&list);
    return r;
}

int main(int argc, char **argv)
{
    struct loop loop = {0};
    struct dl_error err = {0};
    int r = 0;

    if (argc < 4) {
        fprintf(stderr, "usage: transforms_loop PICTURE SECONDS LIST...\n");
        return 2;
    }
    uint8_t *data = read_file(argv[1], &loop.file.bytes);
    loop.file.data = data;
    loop.file.path = argv[1];
    if (!data) {
        fprintf(stderr, "transforms_loop: %s: cannot be read\n", argv[1]);
        return 1;
    }
    if (image_decoder_new(&loop.decoder, &err) < 0 || transforms_runner_new(&loop.run, &err) < 0)
        r = -1;
    for (int i = 3; r == 0 && i < argc; i++)
        r = time_list(&loop, argv[i], strtod(argv[2], NULL), &err);
    if (r < 0)
        fprintf(stderr, "transforms_loop: %s: %s\n", err.path, err.message);
    transforms_runner_free(loop.run);
    image_decoder_free(loop.decoder);
    free(loop.out);
    free(data);
    return r < 0;
}
