/*
 * Softmax regression on images, trained from dloaderd: how a program in plain C uses libdlclient.
 *
 *   cc -O2 -ftree-vectorize softmax.c $(pkg-config --cflags --libs dlclient) -lm -o softmax
 *   softmax [--epochs N] [--socket PATH] fashion.yaml fashion-test.yaml
 *
 * Every batch is read in place, in the daemon's shared memory: `image` is uint8 [n, ...], `label`
 * is uint8 [n]. Minibatch gradient descent in float32, with a bias for each class; libm is the only
 * other library. Exit status: 0 trained, 1 failed or the accuracy is below 0.80, 2 usage.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime(), isatty() under -std=c11 */

#include <dlclient.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CLASSES = 10, DEFAULT_EPOCHS = 12, BAR_WIDTH = 24 };

static const double ENOUGH = 0.80;
static const float RATE = 0.1f;

struct model {
    size_t pixels;
    float *weights;  /* [CLASSES][pixels], then the biases */
    float *gradient; /* as the weights */
    float *x;        /* one image, scaled to 0..1 */
};

struct options {
    unsigned epochs;
    const char *socket, *train, *test;
};

/* The figures of one epoch, as the terminal shows them. */
struct progress {
    unsigned epoch, epochs;
    uint64_t steps, done, samples;
    double loss; /* sum over the samples */
    double begin, drawn;
    int terminal;
};

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- the model ----------------------------------------------------------------------------- */

static int model_init(struct model *model, size_t pixels)
{
    size_t n = CLASSES * (pixels + 1);

    model->pixels = pixels;
    model->weights = calloc(n, sizeof(float));
    model->gradient = calloc(n, sizeof(float));
    model->x = calloc(pixels, sizeof(float));
    return model->weights && model->gradient && model->x ? 0 : -ENOMEM;
}

static void model_free(struct model *model)
{
    free(model->weights);
    free(model->gradient);
    free(model->x);
}

/* Eight parallel sums: the compiler may not reorder a single one, and so could not vectorise it. */
static float dot(const float *restrict a, const float *restrict b, size_t n)
{
    float sums[8] = {0}, sum = 0;
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++)
            sums[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        sum += a[i] * b[i];
    for (size_t j = 0; j < 8; j++)
        sum += sums[j];
    return sum;
}

static void add_scaled(float *restrict to, const float *restrict from, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += scale * from[i];
}

/* Probabilities of the classes for one image, which is left in model->x. */
static void predict(struct model *model, const uint8_t *image, float p[CLASSES])
{
    const float *biases = model->weights + CLASSES * model->pixels;
    float most = -INFINITY, sum = 0;

    for (size_t i = 0; i < model->pixels; i++)
        model->x[i] = (float)image[i] * (1.0f / 255.0f);
    for (int k = 0; k < CLASSES; k++) {
        p[k] = dot(model->weights + (size_t)k * model->pixels, model->x, model->pixels) + biases[k];
        most = fmaxf(most, p[k]);
    }
    for (int k = 0; k < CLASSES; k++)
        sum += p[k] = expf(p[k] - most);
    for (int k = 0; k < CLASSES; k++)
        p[k] /= sum;
}

/* One step of gradient descent; returns the sum of the losses. */
static double train_batch(struct model *model, const uint8_t *images, const uint8_t *labels,
                          size_t n)
{
    size_t parameters = CLASSES * (model->pixels + 1);
    float *biases = model->gradient + CLASSES * model->pixels;
    float p[CLASSES];
    double loss = 0;

    memset(model->gradient, 0, parameters * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        predict(model, images + i * model->pixels, p);
        loss -= logf(fmaxf(p[labels[i]], 1e-20f));
        p[labels[i]] -= 1.0f;
        for (int k = 0; k < CLASSES; k++) {
            add_scaled(model->gradient + (size_t)k * model->pixels, model->x, p[k], model->pixels);
            biases[k] += p[k];
        }
    }
    add_scaled(model->weights, model->gradient, -RATE / (float)n, parameters);
    return loss;
}

static size_t count_correct(struct model *model, const uint8_t *images, const uint8_t *labels,
                            size_t n)
{
    float p[CLASSES];
    size_t correct = 0;

    for (size_t i = 0; i < n; i++) {
        int best = 0;

        predict(model, images + i * model->pixels, p);
        for (int k = 1; k < CLASSES; k++)
            if (p[k] > p[best])
                best = k;
        correct += best == labels[i];
    }
    return correct;
}

/* ---- batches ------------------------------------------------------------------------------- */

/* Reports a failure that is not the library's; main() adds nothing to it. */
static int fail(const char *what)
{
    fprintf(stderr, "softmax: %s\n", what);
    return -ECANCELED;
}

/* Images and labels of a batch, in place. Sets up the model at the first one. */
static int view_batch(struct model *model, struct dl_batch *batch, const uint8_t **images,
                      const uint8_t **labels, size_t *n)
{
    struct dl_tensor image, label;
    size_t pixels;
    int r;

    if ((r = dl_batch_tensor(batch, "image", &image)) < 0 ||
        (r = dl_batch_tensor(batch, "label", &label)) < 0)
        return r;
    if (image.dtype != DL_UINT8 || label.dtype != DL_UINT8 || image.ndim < 2 || label.ndim != 1 ||
        image.shape[0] != label.shape[0] || label.shape[0] == 0)
        return fail("image must be uint8 [n, ...] and label uint8 [n]");
    pixels = image.nbytes / image.shape[0];
    if (!model->weights && (r = model_init(model, pixels)) < 0)
        return r;
    if (pixels != model->pixels)
        return fail("the images of both datasets must have one size");
    *images = image.data;
    *labels = label.data;
    *n = label.shape[0];
    for (size_t i = 0; i < *n; i++)
        if ((*labels)[i] >= CLASSES)
            return fail("a label is not one of 0 to 9");
    return 0;
}

/* ---- progress ------------------------------------------------------------------------------ */

static void draw(struct progress *progress, double wait)
{
    double now = seconds(), spent = now - progress->begin + 1e-9;
    int last = progress->done == progress->steps;
    char bar[BAR_WIDTH + 1];
    int full;

    if (!last && (!progress->terminal || now - progress->drawn < 0.1))
        return;
    progress->drawn = now;
    if (progress->terminal) {
        full = progress->steps ? (int)(progress->done * BAR_WIDTH / progress->steps) : BAR_WIDTH;
        memset(bar, '.', BAR_WIDTH);
        memset(bar, '#', (size_t)full);
        bar[BAR_WIDTH] = '\0';
        printf("\r\033[Kepoch %2u/%u [%s]", progress->epoch + 1, progress->epochs, bar);
    } else {
        printf("epoch %2u/%u", progress->epoch + 1, progress->epochs);
    }
    printf("  %7.0f images/s  loss %.4f  wait %4.1f %%%s", (double)progress->samples / spent,
           progress->loss / (double)(progress->samples ? progress->samples : 1), 100 * wait / spent,
           last ? "\n" : "");
    fflush(stdout);
}

static int train_epoch(struct dl_loader *loader, struct model *model, unsigned number,
                       unsigned epochs)
{
    struct dl_epoch_options options = {.size = sizeof options, .epoch = number};
    struct progress progress = {.epoch = number, .epochs = epochs, .terminal = isatty(1)};
    const uint8_t *images, *labels;
    struct dl_batch *batch;
    struct dl_epoch *epoch;
    size_t n;
    int r = dl_epoch_start(loader, &options, &epoch);

    if (r < 0)
        return r;
    progress.steps = dl_epoch_steps(epoch);
    progress.begin = seconds();
    while ((r = dl_epoch_next(epoch, -1, &batch)) == 0) {
        r = view_batch(model, batch, &images, &labels, &n);
        if (r < 0)
            break;
        progress.loss += train_batch(model, images, labels, n);
        progress.samples += n;
        progress.done++;
        draw(&progress, (double)dl_epoch_wait_ns(epoch) / 1e9);
    }
    if (progress.terminal && r < 0)
        printf("\n");
    dl_epoch_end(epoch);
    return r == DL_END ? 0 : r;
}

static int test(struct dl_loader *loader, struct model *model, double *accuracy)
{
    const uint8_t *images, *labels;
    size_t n, seen = 0, correct = 0;
    struct dl_batch *batch;
    struct dl_epoch *epoch;
    int r = dl_epoch_start(loader, NULL, &epoch);

    if (r < 0)
        return r;
    while ((r = dl_epoch_next(epoch, -1, &batch)) == 0) {
        r = view_batch(model, batch, &images, &labels, &n);
        if (r < 0)
            break;
        correct += count_correct(model, images, labels, n);
        seen += n;
    }
    dl_epoch_end(epoch);
    if (r < 0)
        return r;
    *accuracy = seen ? (double)correct / (double)seen : 0;
    printf("accuracy %.4f on %zu test images\n", *accuracy, seen);
    return 0;
}

/* ---- the program --------------------------------------------------------------------------- */

static int usage(void)
{
    fprintf(stderr, "usage: softmax [--epochs N] [--socket PATH] TRAIN.yaml TEST.yaml\n");
    return 2;
}

static int parse(int argc, char **argv, struct options *options)
{
    int i = 1;

    *options = (struct options){.epochs = DEFAULT_EPOCHS};
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        char *end;
        unsigned long n;

        if (strcmp(argv[i], "--socket") == 0) {
            options->socket = argv[i + 1];
            continue;
        }
        n = strtoul(argv[i + 1], &end, 10);
        if (strcmp(argv[i], "--epochs") != 0 || argv[i + 1][0] < '0' || argv[i + 1][0] > '9' ||
            *end != '\0' || n < 1 || n > 10000)
            return -EINVAL;
        options->epochs = (unsigned)n;
    }
    if (argc - i != 2 || argv[i][0] == '-')
        return -EINVAL;
    options->train = argv[i];
    options->test = argv[i + 1];
    return 0;
}

static int run(struct dl_client *client, const struct options *options, struct model *model,
               double *accuracy)
{
    struct dl_loader *train, *check;
    int r = dl_loader_open_file(client, options->train, &train);

    if (r < 0)
        return r;
    printf("%s: %llu images, batches of %llu\n", dl_loader_name(train),
           (unsigned long long)dl_loader_length(train),
           (unsigned long long)dl_loader_batch_size(train));
    for (unsigned epoch = 0; epoch < options->epochs && r == 0; epoch++)
        r = train_epoch(train, model, epoch, options->epochs);
    if (r == 0)
        r = dl_loader_open_file(client, options->test, &check);
    if (r == 0)
        r = test(check, model, accuracy);
    return r;
}

int main(int argc, char **argv)
{
    struct options options;
    struct dl_client *client;
    struct model model = {0};
    double accuracy = 0;
    int r;

    if (parse(argc, argv, &options) < 0)
        return usage();
    r = dl_client_connect(&client, options.socket, "softmax");
    if (r == 0)
        r = run(client, &options, &model, &accuracy);
    if (r < 0 && r != -ECANCELED) {
        const char *why = dl_client_error(client);
        fprintf(stderr, "softmax: %s\n", why[0] ? why : strerror(-r));
    } else if (r == 0 && accuracy < ENOUGH) {
        fprintf(stderr, "softmax: the accuracy %.4f is below %.2f\n", accuracy, ENOUGH);
        r = -EDOM;
    }
    model_free(&model);
    dl_client_close(client);
    return r < 0 ? 1 : 0;
}
