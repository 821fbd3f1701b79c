/* The digest of batch contents: see digest.h. */
#include "client/dlctl/run/digest.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

struct digest {
    XXH3_state_t *state; /* owned */
};

int digest_new(struct digest **ret)
{
    struct digest *digest = calloc(1, sizeof *digest);

    if (!digest)
        return -ENOMEM;
    digest->state = XXH3_createState();
    if (!digest->state || XXH3_64bits_reset(digest->state) != XXH_OK) {
        digest_free(digest);
        return -ENOMEM;
    }
    *ret = digest;
    return 0;
}

struct digest *digest_free(struct digest *digest)
{
    if (digest)
        XXH3_freeState(digest->state);
    free(digest);
    return NULL;
}

static void digest_feed(struct digest *digest, const void *data, size_t len)
{
    /* Fails only for a null pointer with a length. */
    XXH_errorcode r = len ? XXH3_64bits_update(digest->state, data, len) : XXH_OK;

    assert(r == XXH_OK);
}

void digest_batch(struct digest *digest, uint64_t step, const uint64_t *indices, size_t samples,
                  uint64_t nodes)
{
    uint64_t head[2] = {step, samples};

    digest_feed(digest, head, sizeof head);
    digest_feed(digest, indices, samples * sizeof *indices);
    digest_feed(digest, &nodes, sizeof nodes);
}

void digest_node(struct digest *digest, const struct digest_node *node)
{
    uint32_t head[5] = {node->kind, node->children, node->key_len, node->dtype, node->ndim};

    assert(node->ndim <= DIGEST_DIMS);
    digest_feed(digest, head, sizeof head);
    digest_feed(digest, node->key, node->key_len);
    digest_feed(digest, node->shape, node->ndim * sizeof *node->shape);
    digest_feed(digest, &node->nbytes, sizeof node->nbytes);
    digest_feed(digest, node->data, node->nbytes);
}

void digest_text(const struct digest *digest, char ret[DIGEST_TEXT])
{
    snprintf(ret, DIGEST_TEXT, "%016" PRIx64, (uint64_t)XXH3_64bits_digest(digest->state));
}
