/* Meshes of ranks: which ranks read the same batches, and which of them are on this node. */
#include "client/epoch_options.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS_MAX = 8, MESH_NAME_MAX = 16, DIGITS_MAX = 7 };

struct mesh_dim {
    char name[MESH_NAME_MAX + 1];
    uint64_t size;
    uint64_t stride; /* in ranks */
    bool shares;     /* its ranks read the same batches */
};

struct mesh {
    struct mesh_dim dims[DIMS_MAX];
    uint32_t n;
    uint64_t ranks;
};

/* As torchtitan, Megatron and DeepSpeed name them: data parallel dimensions divide the samples. */
static bool mesh_knows(const char *name, bool *ret_shares)
{
    static const char *const data[] = {"dp", "dp_replicate", "dp_shard", "ddp", "fsdp", "data"};
    static const char *const shared[] = {"tp", "pp", "cp", "sp"};

    for (size_t i = 0; i < ARRAY_SIZE(data); i++)
        if (strcmp(name, data[i]) == 0) {
            *ret_shares = false;
            return true;
        }
    for (size_t i = 0; i < ARRAY_SIZE(shared); i++)
        if (strcmp(name, shared[i]) == 0) {
            *ret_shares = true;
            return true;
        }
    return false;
}

static const char *mesh_skip_spaces(const char *text)
{
    return text + strspn(text, " ");
}

/* Reads a dimension's name and size, as in "tp=2". Returns the rest of the text; NULL if it is
 * malformed. */
static const char *mesh_scan_dim(const char *text, struct mesh_dim *ret)
{
    const char *name = mesh_skip_spaces(text);
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz_");
    const char *equals = mesh_skip_spaces(name + n);

    if (n == 0 || n > MESH_NAME_MAX || *equals != '=')
        return NULL;
    memcpy(ret->name, name, n);
    ret->name[n] = '\0';
    const char *size = mesh_skip_spaces(equals + 1);
    n = strspn(size, "0123456789");
    if (n == 0 || n > DIGITS_MAX)
        return NULL;
    ret->size = strtoull(size, NULL, 10);
    return mesh_skip_spaces(size + n);
}

/* Reads "tp=2" at *text and the separator behind it, if any (*ret_more). */
static int mesh_read_dim(const char **text, struct mesh *mesh, bool *ret_more,
                         const struct why *why)
{
    struct mesh_dim dim = {0};

    if (mesh->n == DIMS_MAX)
        return options_refuse(why, "mesh: more than %d dimensions", DIMS_MAX);
    const char *rest = mesh_scan_dim(*text, &dim);
    if (!rest)
        return options_refuse(why,
                              "mesh: \"%.64s\" is not a dimension, such as dp=4; write them with "
                              "commas between, as dp=4,tp=2",
                              *text);
    *text = rest;
    *ret_more = **text == ',';
    if (*ret_more)
        ++*text;
    else if (**text)
        return options_refuse(why, "mesh: \"%.64s\" follows %s=%llu; write a comma between", *text,
                              dim.name, (ull)dim.size);
    if (!mesh_knows(dim.name, &dim.shares))
        return options_refuse(why,
                              "mesh: \"%s\" is not one of dp, dp_replicate, dp_shard, ddp, fsdp, "
                              "data, which divide the samples, nor of tp, pp, cp, sp, which share "
                              "them",
                              dim.name);
    for (uint32_t i = 0; i < mesh->n; i++)
        if (strcmp(mesh->dims[i].name, dim.name) == 0)
            return options_refuse(why, "mesh: %s occurs twice", dim.name);
    if (dim.size == 0 || dim.size > DL_MAX_WORLD_SIZE / mesh->ranks)
        return options_refuse(why, "mesh: %s=%llu is not from 1 to %llu ranks in all", dim.name,
                              (ull)dim.size, (ull)DL_MAX_WORLD_SIZE);
    mesh->ranks *= dim.size;
    mesh->dims[mesh->n++] = dim;
    return 0;
}

static int mesh_read(const char *text, struct mesh *mesh, const struct why *why)
{
    bool more = true;
    int r = 0;

    *mesh = (struct mesh){.ranks = 1};
    while (r == 0 && more)
        r = mesh_read_dim(&text, mesh, &more, why);
    uint64_t stride = 1;
    for (uint32_t i = mesh->n; i-- > 0; stride *= mesh->dims[i].size)
        mesh->dims[i].stride = stride;
    return r;
}

/* A rank's number among those of the dimensions that share batches, or of those that do not, and
 * the number of these ranks. */
static uint64_t mesh_place(const struct mesh *mesh, uint64_t rank, bool shares, uint64_t *ret_size)
{
    uint64_t place = 0, size = 1;

    for (uint32_t i = 0; i < mesh->n; i++) {
        const struct mesh_dim *dim = &mesh->dims[i];

        if (dim->shares != shares)
            continue;
        place = place * dim->size + rank / dim->stride % dim->size;
        size *= dim->size;
    }
    *ret_size = size;
    return place;
}

/* The rank that differs from `rank` in the dimensions that share only, where it has that place. */
static uint64_t mesh_member(const struct mesh *mesh, uint64_t rank, uint64_t place)
{
    for (uint32_t i = mesh->n; i-- > 0;) {
        const struct mesh_dim *dim = &mesh->dims[i];

        if (!dim->shares)
            continue;
        rank -= rank / dim->stride % dim->size * dim->stride;
        rank += place % dim->size * dim->stride;
        place /= dim->size;
    }
    return rank;
}

int dl_epoch_options_set_mesh(struct dl_epoch_options *options, const char *text, uint32_t rank,
                              uint32_t local_world, char *why_text, size_t why_size)
{
    struct why why = {.size = why_size};
    uint64_t members, world, here = 0, before = 0;
    struct dl_epoch_options o;
    struct mesh mesh;

    why.text = why_text;
    int r = epoch_options_read(options, &o);
    if (r < 0)
        return options_refuse(&why, "options: they %s", epoch_options_why(r));
    r = mesh_read(text, &mesh, &why);
    if (r < 0)
        return r;
    if (rank >= mesh.ranks)
        return options_refuse(&why, "mesh: it has %llu ranks, and this is rank %u", (ull)mesh.ranks,
                              rank);
    uint64_t node_size = local_world ? local_world : mesh.ranks;
    uint64_t data = mesh_place(&mesh, rank, false, &world);
    (void)mesh_place(&mesh, rank, true, &members);
    for (uint64_t i = 0; i < members; i++) {
        uint64_t member = mesh_member(&mesh, rank, i);

        if (member / node_size != rank / node_size)
            continue;
        here++;
        before += member < rank;
    }
    if (here > DL_MAX_REPLICAS)
        return options_refuse(
            &why, "mesh: %llu ranks of this node read the same batches; at most %llu can",
            (ull)here, (ull)DL_MAX_REPLICAS);
    o.rank = (uint32_t)data;
    o.world = (uint32_t)world;
    o.replica = (uint32_t)before;
    o.replicas = (uint32_t)here;
    epoch_options_write(&o, options);
    return 0;
}

int dl_sequence_part(uint64_t length, uint32_t part, uint32_t parts, enum dl_sequence how,
                     struct dl_stretch ret[2])
{
    bool zigzag = how == DL_SEQUENCE_ZIGZAG;
    uint64_t pieces = zigzag ? 2 * (uint64_t)parts : parts;

    if (part >= parts || length % pieces > 0 || (unsigned)how > DL_SEQUENCE_ZIGZAG)
        return -EINVAL;
    uint64_t count = length / pieces;
    ret[0] = (struct dl_stretch){part * count, count};
    if (zigzag)
        ret[1] = (struct dl_stretch){(pieces - 1 - part) * count, count};
    return zigzag ? 2 : 1;
}
