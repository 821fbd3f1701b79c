/* `dlctl replay`: a batch that was delivered once, made again, into a file for numpy.load(). */
#include "client/dlctl/batch/again.h"
#include "client/dlctl/batch/archive.h"
#include "client/dlctl/batch/single.h"
#include "client/dlctl/open.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/state.h"
#include "client/dlctl/units.h"
#include "client/dlctl/verbs.h"
#include "proto/carried.h"
#include "proto/state_token.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

struct replay {
    struct options o; /* the user's, with what a state says beside them */
    struct single single;
    struct state_file state;
    uint8_t token[DL_STATE_MAX]; /* of another step of the state's epoch */
    char *place;                 /* of the file, behind all links; owned */
    json_t *about;
};

static void replay_deinit(struct replay *p)
{
    single_deinit(&p->single);
    state_file_deinit(&p->state);
    free(p->place);
    json_decref(p->about);
}

/* ---- where it is ---------------------------------------------------------------------------- */

/* What the state says that the options do not: the seed, and the world. */
static int read_state(struct replay *p, struct dl_error *err)
{
    struct state_token token;
    int r = state_file_read(p->o.state, &p->state, err);

    if (r < 0)
        return r;
    struct dl_span state = {p->state.bytes, p->state.len};
    (void)carried_split(&state);
    r = state_token_read(state.data, state.len, &token, err);
    if (r < 0)
        return dl_error_set(err, -r, p->o.state, "%s", err->message);
    if (p->o.world == 0)
        p->o.world = token.world;
    if (p->o.rank >= p->o.world)
        return dl_error_set(err, EINVAL, "--rank",
                            "%" PRIu64 " is not below the world size, %" PRIu64, p->o.rank,
                            p->o.world);
    if (!p->o.has_seed) {
        p->o.seed = token.of.seed;
        p->o.has_seed = operand_is_file(p->o.operand);
    }
    p->single.state = p->state.bytes;
    p->single.state_len = p->state.len;
    return 0;
}

/* Another step than the state's own, with the history that it has. */
static int move_state(struct replay *p)
{
    const struct dl_epoch_options to = {.world = (uint32_t)p->o.world,
                                        .rank = (uint32_t)p->o.rank,
                                        .step = p->o.step,
                                        .state = p->state.bytes,
                                        .state_len = p->state.len};
    size_t len = sizeof p->token;
    int r = dl_loader_state(p->single.loader, &to, p->token, &len);

    if (r < 0)
        return r;
    p->single.state = p->token;
    p->single.state_len = len;
    return 0;
}

/* Where the file is to be. A new one takes the place of what is there, which only a file may lose:
 * not a link, nor /dev/stdout. */
static int find_place(struct replay *p, struct dl_error *err)
{
    const char *path = p->o.output;
    struct stat st;

    p->place = realpath(path, NULL);
    if (p->place && stat(p->place, &st) == 0 && S_ISREG(st.st_mode))
        return 0;
    if (p->place || lstat(path, &st) == 0)
        return dl_error_set(err, EINVAL, path,
                            "is no file, and only a file is replaced by the batch; give the name "
                            "of a file: -o batch.npz");
    p->place = strdup(path);
    return p->place ? 0 : dl_error_set(err, ENOMEM, path, "%s", strerror(ENOMEM));
}

static int load(struct replay *p, struct dl_error *err)
{
    int r = dl_client_connect(&p->single.client, p->o.socket, "dlctl replay " DLOADER_VERSION);

    if (r == 0)
        r = open_again(p->single.client, p->o.operand, p->o.has_seed ? &p->o.seed : NULL,
                       &p->single.loader, err);
    if (r == 0 && p->o.state && p->o.step > 0)
        r = move_state(p);
    if (r == 0)
        r = single_load(&p->single);
    if (r == -ENODATA && p->single.epoch && !p->single.fed)
        dl_error_set(err, EINVAL, "sampler.kind",
                     "client: only a client knows this order; say which samples are in the batch: "
                     "--indices I,...");
    return r;
}

/* ---- telling -------------------------------------------------------------------------------- */

/* What is written beside the arrays, and printed. */
static int describe(struct replay *p)
{
    const struct single *one = &p->single;
    size_t samples = 0;

    dl_batch_indices(one->batch, &samples);
    p->about = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o}", "dlctl",
                         DLOADER_VERSION, "name", render_json_text(dl_loader_name(one->loader)),
                         "seed", render_json_u64(dl_loader_seed(one->loader)), "epoch",
                         render_json_u64(dl_epoch_number(one->epoch)), "step",
                         render_json_u64(dl_batch_step(one->batch)), "rank",
                         render_json_u64(dl_epoch_rank(one->epoch)), "world",
                         render_json_u64(dl_epoch_world(one->epoch)), "fed", one->fed, "samples",
                         render_json_u64(samples), "repeated",
                         render_json_u64(dl_batch_repeated(one->batch)));
    return p->about ? 0 : -ENOMEM;
}

static void print(const struct replay *p)
{
    const struct single *one = &p->single;
    char bytes[UNITS_MAX];
    size_t samples = 0;

    dl_batch_indices(one->batch, &samples);
    format_bytes((double)dl_batch_bytes(one->batch), bytes, sizeof bytes);
    printf("loader    %s, seed %" PRIu64 "\n", dl_loader_name(one->loader),
           dl_loader_seed(one->loader));
    printf("batch     epoch %" PRIu64 ", step %" PRIu64 ", rank %" PRIu32 " of %" PRIu32
           ": %zu samples, %s\n",
           dl_epoch_number(one->epoch), dl_batch_step(one->batch), dl_epoch_rank(one->epoch),
           dl_epoch_world(one->epoch), samples, bytes);
    printf("written   %s\n", p->o.output);
}

int verb_replay(const struct options *o)
{
    _cleanup_(replay_deinit)
    struct replay p = {.o = *o};
    struct dl_error err = {0};

    p.single.o = &p.o;
    if (find_place(&p, &err) < 0 || (o->state && read_state(&p, &err) < 0))
        return report_error(o, &err);
    int r = load(&p, &err);
    if (r == DL_END)
        return single_no_such_step(&p.single);
    if (r < 0)
        return err.code ? report_error(o, &err) : report_client(o, p.single.client, r);
    r = describe(&p);
    if (r < 0)
        return report_errno(o, r, "");
    if (archive_write(p.single.batch, p.place, p.about, &err) < 0)
        return report_error(o, &err);
    if (o->json)
        return report_json(o, json_incref(p.about));
    print(&p);
    return STATUS_DONE;
}
