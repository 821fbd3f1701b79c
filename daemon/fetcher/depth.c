#include "daemon/fetcher/depth.h"

void depth_note_begin(struct depth *depth, uint64_t took_ns)
{
    if (depth->least_ns == 0 || took_ns < depth->least_ns)
        depth->least_ns = max_u64(took_ns, 1);
}

void depth_note_came(struct depth *depth, uint64_t now_ns, uint64_t bytes)
{
    uint64_t slice = now_ns / (DEPTH_SLICE_MS * 1000000ULL);

    for (uint64_t gone = min_u64(slice - depth->slice, DEPTH_SLICES); gone > 0; gone--)
        depth->bytes[(slice - gone + 1) % DEPTH_SLICES] = 0;
    depth->slice = slice;
    depth->bytes[slice % DEPTH_SLICES] += bytes;
}

void depth_note_whole(struct depth *depth, uint64_t bytes)
{
    if (bytes > 0) /* not of lists and refusals */
        depth->each = depth->each ? (7 * depth->each + bytes) / 8 : bytes;
}

static uint64_t depth_of(const struct depth *depth)
{
    uint64_t most = 0;

    for (unsigned i = 0; i < DEPTH_SLICES; i++)
        most = max_u64(most, depth->bytes[i]);
    return (uint64_t)(2.0 * (double)most * (double)depth->least_ns / (DEPTH_SLICE_MS * 1e6));
}

uint32_t depth_requests(const struct depth *depth)
{
    uint64_t wanted = 2 * depth_of(depth) / max_u64(depth->each, 1);

    return (uint32_t)min_u64(max_u64(wanted, DEPTH_REQUESTS), DEPTH_REQUESTS_MOST);
}

uint64_t depth_bytes(const struct depth *depth)
{
    return min_u64(max_u64(depth_of(depth), DEPTH_BYTES), DEPTH_BYTES_MOST);
}
