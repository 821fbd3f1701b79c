/*
 * Does what transforms_torchvision.py asks for, so that it can compare. Standard input has a line
 * for each picture, fields separated by tabs: OUT PATH LAYOUT DRAWS TRANSFORMS TRANSFORMS is the
 * list as JSON. DRAWS are the numbers that torchvision drew, in its order, each with the call and
 * its arguments: "u LOW HIGH x" uniform, "i LOW HIGH n" integer, "p N n ..." permutation, "n N x
 * ..." normals, "c N n" choice, "d N ALPHA x ..." shares; "-": the sample's own, of seed 1, epoch
 * 2, sample 3. The result goes to OUT; printed is "DTYPE C H W", of a stack "DTYPE N C H W", or
 * "error: PATH: TEXT". A draw that is not the one that torchvision made is an error, and so is one
 * that is left.
 */
#include "daemon/data/collate/batch_mix.h"
#include "daemon/data/decode/transform/transforms.h"
#include "proto/dtype.h"
#include "proto/yaml.h"
#include "tests/lib/read_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

struct script {
    struct draws base;
    char *at;
    bool failed;
};

/* The next word as a number; NAN: there is none. */
static double next_number(struct script *s)
{
    char *end = s->at;
    double n = strtod(s->at, &end);

    if (end == s->at) {
        s->failed = true;
        return NAN;
    }
    s->at = end;
    return n;
}

/* Whether the next draw is of this kind, and has this argument. */
static void expect(struct script *s, char kind, double argument)
{
    while (*s->at == ' ')
        s->at++;
    if (*s->at != kind) {
        s->failed = true;
        return;
    }
    s->at++;
    /* Python has the limits of some calls in float32. */
    double n = next_number(s);
    if (!(fabs(n - argument) <= 1e-6 * fabs(argument)))
        s->failed = true;
}

static void expect_second(struct script *s, double argument)
{
    double n = next_number(s);

    if (!(fabs(n - argument) <= 1e-6 * fabs(argument)))
        s->failed = true;
}

static float script_uniform(struct draws *d, double low, double high)
{
    struct script *s = container_of(d, struct script, base);

    expect(s, 'u', low);
    expect_second(s, high);
    return (float)next_number(s);
}

static int64_t script_integer(struct draws *d, int64_t low, int64_t high)
{
    struct script *s = container_of(d, struct script, base);

    expect(s, 'i', (double)low);
    expect_second(s, (double)high);
    double n = next_number(s);
    return s->failed ? low : (int64_t)n;
}

static void script_permutation(struct draws *d, uint32_t n, uint32_t *ret)
{
    struct script *s = container_of(d, struct script, base);

    expect(s, 'p', n);
    for (uint32_t i = 0; i < n; i++) {
        ret[i] = (uint32_t)next_number(s);
        if (s->failed)
            ret[i] = i;
    }
}

static void script_normals(struct draws *d, size_t n, float *ret)
{
    struct script *s = container_of(d, struct script, base);

    expect(s, 'n', (double)n);
    for (size_t i = 0; i < n; i++)
        ret[i] = (float)next_number(s);
}

static uint32_t script_choice(struct draws *d, uint32_t n, const float *weights)
{
    struct script *s = container_of(d, struct script, base);

    expect(s, 'c', n);
    double chosen = next_number(s);
    return s->failed || weights[(uint32_t)chosen] <= 0 ? 0 : (uint32_t)chosen;
}

static void script_dirichlet(struct draws *d, uint32_t n, double alpha, float *ret)
{
    struct script *s = container_of(d, struct script, base);

    expect(s, 'd', n);
    expect_second(s, alpha);
    for (uint32_t i = 0; i < n; i++)
        ret[i] = (float)next_number(s);
}

static const struct draws_ops script_ops = {
    .uniform = script_uniform,
    .integer = script_integer,
    .permutation = script_permutation,
    .normals = script_normals,
    .choice = script_choice,
    .dirichlet = script_dirichlet,
};

struct tool {
    struct image_decoder *decoder;
    struct transforms_runner *run;
    struct transforms *transforms;
};

static int write_out(const struct tool *tool, const struct transforms_shape *shape, bool planar,
                     const char *path, struct dl_error *err)
{
    size_t bytes = transforms_bytes(shape);
    /* Exactly as much: the sanitizer sees what is written behind it. */
    _cleanup_free_ uint8_t *result = malloc(bytes > 0 ? bytes : 1);
    FILE *to = fopen(path, "wb");

    transforms_write(tool->run, planar ? TRANSFORMS_PLANAR : TRANSFORMS_AWAY, result);
    if (!to || fwrite(result, 1, bytes, to) != bytes || fclose(to) != 0)
        return dl_error_set(err, EIO, path, "cannot be written");
    return 0;
}

static int check_draws(const struct script *script, bool keyed, struct dl_error *err)
{
    const char *rest = script->at + strspn(script->at, " ");

    if (keyed || (!script->failed && !*rest))
        return 0;
    return dl_error_set(err, EPROTO, "draws",
                        script->failed ? "other draws were made than torchvision's"
                                       : "torchvision makes more draws: %.80s",
                        rest);
}

static int run_line(struct tool *tool, char *fields[5], struct transforms_shape *ret,
                    struct dl_error *err)
{
    size_t bytes = 0;
    _cleanup_free_ uint8_t *data = read_file(fields[1], &bytes);
    struct image_file file = {.data = data, .bytes = bytes, .path = fields[1]};
    struct script script = {.base.ops = &script_ops, .at = fields[3]};
    bool keyed = strcmp(fields[3], "-") == 0;
    struct draws_keyed own;
    struct value list = {0};
    struct image_size size;
    int r = yaml_parse(fields[4], strlen(fields[4]), "transforms", &list, err);

    draws_keyed_init(&own, 1, 2, 3);
    if (r == 0)
        r = transforms_read(&list, "transforms", &tool->transforms, err);
    value_deinit(&list);
    if (r < 0 || (r = image_open(tool->decoder, &file, &size, err)) < 0 ||
        (r = transforms_run(tool->transforms, tool->run, tool->decoder,
                            keyed ? &own.base : &script.base, fields[1], ret, err)) < 0 ||
        (r = check_draws(&script, keyed, err)) < 0)
        return r;
    return write_out(tool, ret, strcmp(fields[2], "chw") == 0, fields[0], err);
}

/*
 * With LAYOUT "mix", a batch: PATH has images, float32 [n, c, h, w], and then labels, int64 [n],
 * and TRANSFORMS is {mixup: alpha, cutmix: alpha, classes: n, shape: [n, c, h, w]}. OUT becomes the
 * images and the labels, float32 [n, classes].
 */
static uint64_t mix_shape(const struct value *spec, uint64_t ret[static 4])
{
    const struct value *shape = value_get(spec, "shape");
    uint64_t n = 1;

    for (unsigned i = 0; i < 4; i++)
        n *= ret[i] = value_count(&shape->items[i]);
    return n;
}

static int mix_schema(const uint64_t shape[static 4], struct tree *ret)
{
    int r = tree_add(ret, TREE_LIST, NULL, 2);

    if (r == 0)
        r = tree_add_tensor(ret, NULL, DL_DTYPE_FLOAT32, 3, shape + 1);
    return r < 0 ? r : tree_add_tensor(ret, NULL, DL_DTYPE_INT64, 0, NULL);
}

static int mix_line(char *fields[5], struct dl_error *err)
{
    struct script script = {.base.ops = &script_ops, .at = fields[3]};
    struct batch_mix *mix = NULL;
    struct value spec = {0};
    struct tree schema = {0};
    uint64_t shape[4];
    size_t bytes = 0, bad;
    int r = yaml_parse(fields[4], strlen(fields[4]), "mix", &spec, err);
    if (r < 0)
        return r;
    struct spec_collate collate = {.mixup = value_real(value_get(&spec, "mixup")),
                                   .cutmix = value_real(value_get(&spec, "cutmix")),
                                   .classes = value_count(value_get(&spec, "classes"))};
    uint64_t elements = mix_shape(&spec, shape);
    _cleanup_free_ uint8_t *data = read_file(fields[1], &bytes);
    _cleanup_free_ float *soft = calloc(shape[0] * collate.classes, sizeof *soft);
    void *leaves[] = {data, soft};
    struct batch_mix_rows rows = {
        .leaves = leaves, .labels = data + elements * sizeof(float), .n = shape[0]};

    r = mix_schema(shape, &schema);
    if (r == 0 && (r = batch_mix_new(&collate, &schema, &mix, err)) == 0 &&
        (r = batch_mix_run(mix, &script.base, &rows, &bad, err)) == 0)
        r = check_draws(&script, false, err);
    FILE *to = fopen(fields[0], "wb");
    if (to) {
        fwrite(data, sizeof(float), elements, to);
        fwrite(soft, sizeof(float), shape[0] * collate.classes, to);
        fclose(to);
    }
    batch_mix_free(mix);
    tree_deinit(&schema);
    value_deinit(&spec);
    return r;
}

static bool split(char *line, char *fields[5])
{
    for (int i = 0; i < 5; i++) {
        fields[i] = strsep(&line, "\t");
        if (!fields[i])
            return false;
    }
    return true;
}

static void print_shape(const struct transforms_shape *shape)
{
    printf("%s ", dtype_name(shape->dtype));
    if (shape->stack)
        printf("%u ", shape->stack);
    printf("%u %u %u\n", shape->channels, shape->size.height, shape->size.width);
}

int main(void)
{
    struct tool tool = {0};
    struct dl_error err = {0};
    char *line = NULL, *fields[5];
    size_t room = 0;
    ssize_t len;

    if (image_decoder_new(&tool.decoder, &err) < 0 || transforms_runner_new(&tool.run, &err) < 0)
        return 1;
    while ((len = getline(&line, &room, stdin)) > 0) {
        struct transforms_shape shape;
        line[len - 1] = '\0';
        if (!split(line, fields))
            return 2;
        bool mixes = strcmp(fields[2], "mix") == 0;
        if ((mixes ? mix_line(fields, &err) : run_line(&tool, fields, &shape, &err)) < 0)
            printf("error: %s: %s\n", err.path, err.message);
        else if (mixes)
            printf("float32\n");
        else
            print_shape(&shape);
        fflush(stdout);
        tool.transforms = transforms_free(tool.transforms);
    }
    free(line);
    transforms_runner_free(tool.run);
    image_decoder_free(tool.decoder);
    return 0;
}
