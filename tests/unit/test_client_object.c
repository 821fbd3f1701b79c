/*
 * What Python's client needs of libdlclient: objects received, reports of failed steps, steps of
 * keys, and batches that leave their slot when too many are held.
 */
#include "tests/unit/fake_daemon.h"

/* The first fields of what dl_batch_dlpack() gives. */
struct managed {
    const uint8_t *data;
    uint8_t rest[40];
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
};

static struct managed *managed_of(struct DLManagedTensor *tensor)
{
    struct managed *managed;

    memcpy(&managed, &tensor, sizeof managed);
    return managed;
}

static void drop(struct DLManagedTensor *tensor)
{
    managed_of(tensor)->deleter(tensor);
}

/* ---- reports ---- */

static void send_report(struct fake *f, uint64_t step, const char *detail)
{
    struct dl_message msg = {.number = DL_MSG_FAULT};

    msg.fault = (struct dl_msg_fault){
        .stream = FAKE_STREAM,
        .step = step,
        .code = EINVAL,
        .path = span_str("dataset"),
        .message = span_str("KeyError: 'x'"),
        .detail = span_str(detail),
    };
    fake_send(f, &msg);
}

TEST(test_detail)
{
    struct dl_batch *batch;
    struct fake f;

    fake_run(&f, 4, 10);
    assert_string_equal(dl_client_error_detail(f.client), "");
    fake_deliver(&f, 0, 1);
    send_report(&f, 1, "KeyError\nCaught\n\tat \x1b[1m\xc2\x9b\xc3\xa9\n");
    send_report(&f, 2, "");
    fake_deliver(&f, 3, 4);
    fake_next(&f, 0);
    assert_true(dl_epoch_failed_step(f.epoch) == DL_UNKNOWN);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EINVAL);
    assert_string_equal(dl_client_error(f.client), "dataset: KeyError: 'x'");
    assert_string_equal(dl_client_error_detail(f.client),
                        "KeyError\nCaught\n\tat ?[1m??\xc3\xa9\n");
    assert_int_equal(dl_epoch_failed_step(f.epoch), 1);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EINVAL);
    assert_string_equal(dl_client_error_detail(f.client), "");
    assert_int_equal(dl_epoch_failed_step(f.epoch), 2);
    fake_next(&f, 3);
    assert_true(dl_epoch_failed_step(f.epoch) == DL_UNKNOWN);
    send_report(&f, 4, "last"); /* never asked for: freed with the epoch */
    assert_int_equal(dl_client_dispatch(f.client), 0);
    fake_end(&f);
}

/* Reports wait in bounded memory: of the rest the gist is left. */
TEST(test_detail_bound)
{
    static char detail[65001];
    struct dl_batch *batch;
    uint64_t kept = 0;
    struct fake f;

    memset(detail, 'x', sizeof detail - 1);
    fake_run(&f, 128, 1000);
    for (uint64_t step = 0; step < 100; step++) {
        send_report(&f, step, detail);
        assert_int_equal(dl_client_dispatch(f.client), 0);
    }
    for (uint64_t step = 0; step < 100; step++) {
        assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EINVAL);
        kept += strlen(dl_client_error_detail(f.client)) == sizeof detail - 1;
    }
    assert_int_equal(kept, EPOCH_DETAIL_MAX / (sizeof detail - 1));
    send_report(&f, 100, detail); /* there is room again */
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EINVAL);
    assert_int_equal(strlen(dl_client_error_detail(f.client)), sizeof detail - 1);
    fake_end(&f);
}

/* ---- objects in trees ---- */

/* {"o": object(pickle "PKL", uint8[4]), "z": uint8[2]} in the slot of step 0. */
static void fill_object(struct fake *f)
{
    uint8_t *slot = fake_slot(f, 0);
    struct slot_header *header = (struct slot_header *)(void *)slot;
    struct tree tree = {0};

    fake_fill(f, 0, 1);
    assert_int_equal(tree_add(&tree, TREE_DICT, NULL, 2), 0);
    assert_int_equal(tree_add(&tree, TREE_OBJECT, "o", 2), 0);
    assert_int_equal(tree_add_text(&tree, TREE_BYTES, NULL, 3), 0);
    assert_int_equal(tree_add_tensor(&tree, NULL, DL_DTYPE_UINT8, 1, (const uint64_t[]){4}), 0);
    assert_int_equal(tree_add_tensor(&tree, "z", DL_DTYPE_UINT8, 1, (const uint64_t[]){2}), 0);
    for (uint32_t i = 2; i < 5; i++)
        tree.nodes[i].offset = FAKE_DATA_AT + i * 64;
    header->tree_len = (uint32_t)tree_encoded_bytes(&tree);
    header->tree_count = tree.count;
    tree_encode(&tree, slot + FAKE_TREE_AT);
    tree_deinit(&tree);
    memcpy(slot + FAKE_DATA_AT + 2 * 64, "PKL", 3);
    memcpy(slot + FAKE_DATA_AT + 3 * 64, "1234", 4);
    memcpy(slot + FAKE_DATA_AT + 4 * 64, "zz", 2);
}

static struct dl_batch *deliver_object(struct fake *f)
{
    struct dl_descriptor d = fake_descriptor(0, 1);
    struct dl_batch *batch = NULL;

    fake_run(f, 4, 10);
    fill_object(f);
    fake_send_descriptors(f, FAKE_STREAM, &d, 1);
    assert_int_equal(dl_epoch_next(f->epoch, 0, &batch), 0);
    return batch;
}

TEST(test_object_nodes)
{
    struct dl_tensor tensor;
    struct dl_node node;
    const char *text;
    uint64_t count;
    size_t len;
    struct fake f;
    struct dl_batch *batch = deliver_object(&f);

    assert_int_equal(dl_batch_node(batch, 1, &node), 0);
    assert_int_equal(node.kind, DL_NODE_OBJECT);
    assert_int_equal(node.children, 2);
    assert_int_equal(dl_batch_node_text(batch, 2, 0, &text, &len), 0);
    assert_memory_equal(text, "PKL", 3);
    assert_int_equal(len, 3);

    /* It has a path, what is in it has none. */
    assert_int_equal(dl_batch_tensor(batch, "o", &tensor), -EINVAL);
    assert_non_null(strstr(dl_client_error(f.client), "o: it is a pickled Python object"));
    assert_int_equal(dl_batch_text_count(batch, "o", &count), -EINVAL);
    assert_non_null(strstr(dl_client_error(f.client), "o: it is a pickled Python object"));
    assert_int_equal(dl_batch_tensor(batch, "o.1", &tensor), -ENOENT);
    assert_int_equal(dl_batch_text(batch, "o.0", 0, &text, &len), -ENOENT);
    assert_int_equal(dl_batch_tensor(batch, "o.", &tensor), -ENOENT);
    assert_int_equal(dl_batch_tensor(batch, "z", &tensor), 0);
    fake_end(&f);
}

TEST(test_node_dlpack)
{
    struct DLManagedTensor *tensor = NULL;
    struct fake f;
    struct dl_batch *batch = deliver_object(&f);

    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(dl_batch_node_dlpack(batch, i, &tensor), -EINVAL);
    assert_int_equal(dl_batch_node_dlpack(batch, 5, &tensor), -EINVAL);
    assert_null(tensor);
    assert_int_equal(dl_batch_node_dlpack(batch, 3, &tensor), 0);
    assert_memory_equal(managed_of(tensor)->data, "1234", 4);
    f.client = dl_client_close(f.client);
    assert_memory_equal(managed_of(tensor)->data, "1234", 4);
    drop(tensor);
    fake_end(&f);
}

/* ---- what is held ---- */

TEST(test_held_bytes)
{
    struct DLManagedTensor *tensors[3];
    struct dl_batch *batch, *pinned;
    struct fake f;

    fake_run(&f, 8, 10);
    fake_deliver(&f, 0, 4);
    for (uint64_t i = 0; i < 3; i++) {
        batch = fake_next(&f, i);
        assert_int_equal(dl_batch_node_dlpack(batch, 1, &tensors[i]), 0);
        assert_int_equal(dl_epoch_held_bytes(f.epoch), i * FAKE_SLOT_BYTES);
    }
    pinned = fake_next(&f, 3);
    assert_int_equal(dl_batch_pin(pinned), 0);
    assert_int_equal(dl_epoch_held_bytes(f.epoch), 4 * FAKE_SLOT_BYTES);
    for (uint64_t i = 0; i < 3; i++) {
        drop(tensors[i]);
        assert_int_equal(dl_epoch_held_bytes(f.epoch), (3 - i) * FAKE_SLOT_BYTES);
    }
    dl_batch_release(pinned);
    assert_int_equal(dl_epoch_held_bytes(f.epoch), 0);
    fake_end(&f);
}

/* Of credits 8 the fifth that is kept is one too many; and so is the last slot of a segment. */
TEST(test_may_keep)
{
    struct DLManagedTensor *tensors[5];
    struct fake f;

    fake_run(&f, 8, 10);
    fake_deliver(&f, 0, 6);
    for (uint64_t i = 0; i < 5; i++) {
        struct dl_batch *batch = fake_next(&f, i);

        assert_int_equal(dl_batch_may_keep(batch), i < 4);
        assert_int_equal(dl_batch_node_dlpack(batch, 1, &tensors[i]), 0);
    }
    for (uint64_t i = 0; i < 5; i++)
        drop(tensors[i]);
    f.client->segments[0]->slots = 2; /* as if the segment had no more */
    assert_int_equal(dl_batch_may_keep(fake_next(&f, 5)), 1);
    f.client->segments[0]->slots = 1;
    assert_int_equal(dl_batch_may_keep(f.epoch->current), 0);
    fake_end(&f);
}

static void assert_lengths(const struct dl_batch *batch, uint64_t want_padded)
{
    const uint32_t *lengths = NULL;
    uint64_t padded = 0;
    size_t n = 0;

    assert_int_equal(dl_batch_lengths(batch, &lengths, &n, &padded), 0);
    assert_int_equal(n, FAKE_ROWS);
    assert_int_equal(padded, want_padded);
    for (uint32_t i = 0; i < FAKE_ROWS; i++)
        assert_int_equal(lengths[i], 10 + i);
}

/* Batches of tokens say the lengths that were planned; a copy has them too; others have none. */
TEST(test_lengths)
{
    const uint32_t *lengths = NULL;
    uint64_t padded = 7;
    size_t n = 7;
    struct fake f;

    fake_run(&f, 3, 10);
    fake_deliver(&f, 0, 2);
    fake_plan(&f, 1, 52);
    assert_int_equal(dl_batch_lengths(fake_next(&f, 0), &lengths, &n, &padded), -ENODATA);
    assert_null(lengths);
    assert_int_equal(n, 7);
    assert_int_equal(padded, 7);
    fake_next(&f, 1);
    assert_lengths(f.epoch->current, 52);
    assert_int_equal(dl_batch_detach(f.epoch->current), 0);
    memset(f.base + SEGMENT_HEADER_BYTES, 0xAA, 2 * FAKE_SLOT_BYTES);
    assert_lengths(f.epoch->current, 52);
    fake_end(&f);
}

TEST(test_detach)
{
    struct DLManagedTensor *tensor;
    struct dl_tensor image, moved;
    const uint64_t *indices;
    struct dl_batch *batch;
    size_t n;
    struct fake f;

    fake_run(&f, 1, 10);
    fake_deliver(&f, 3 - 3, 1);
    batch = fake_next(&f, 0);
    assert_int_equal(dl_batch_is_writable(batch), 0);
    assert_int_equal(dl_batch_tensor(batch, "image", &image), 0);
    assert_int_equal(dl_batch_detach(batch), 0);
    expect_steps(&f, DL_MSG_RELEASE, 0); /* its lease has ended: at once */
    assert_int_equal(dl_batch_detach(batch), 0);
    assert_int_equal(dl_batch_is_writable(batch), 1);
    assert_int_equal(dl_batch_may_keep(batch), 1);
    assert_int_equal(dl_batch_tensor(batch, "image", &moved), 0);
    assert_ptr_not_equal(moved.data, image.data);
    assert_int_equal((uintptr_t)moved.data % 64, 0);
    assert_memory_equal(moved.data, image.data, image.nbytes);
    indices = dl_batch_indices(batch, &n);
    assert_int_equal(n, FAKE_ROWS);
    assert_int_equal(indices[n - 1], FAKE_ROWS - 1);

    /* Held by a tensor it takes nothing, is not pinned, and outlives everything. */
    assert_int_equal(dl_batch_node_dlpack(batch, 1, &tensor), 0);
    memset(f.base + SEGMENT_HEADER_BYTES, 0xAA, FAKE_SLOT_BYTES);
    fake_deliver(&f, 1, 2);
    fake_next(&f, 1);
    fake_expect_silence(&f);
    assert_int_equal(dl_epoch_held_bytes(f.epoch), 0);
    f.client = dl_client_close(f.client);
    for (int i = 0; i < FAKE_ROWS * FAKE_ROW_BYTES; i++)
        assert_int_equal(managed_of(tensor)->data[i], 0);
    fake_expect(&f, DL_MSG_RELEASE);
    fake_expect(&f, DL_MSG_STOP);
    fake_expect(&f, DL_MSG_CLOSE);
    fake_expect_end(&f); /* though the tensor lives: it needs no session */
    drop(tensor);
    fake_end(&f);
}

/* A job's trainer that dies with a copy in its hands gets it again. */
TEST(test_detached_in_a_job)
{
    struct DLManagedTensor *tensor;
    struct dl_batch *batch;
    struct fake f;

    fake_run(&f, 2, 10);
    free(f.epoch->job);
    f.epoch->job = strdup("j");
    fake_deliver(&f, 0, 2);
    batch = fake_next(&f, 0);
    assert_int_equal(dl_batch_detach(batch), 0);
    fake_expect_silence(&f);
    assert_int_equal(dl_batch_node_dlpack(batch, 1, &tensor), 0);
    batch = fake_next(&f, 1);
    expect_steps(&f, DL_MSG_RELEASE, 0); /* though its copy is held */
    drop(tensor);
    assert_int_equal(dl_batch_detach(batch), 0);
    assert_int_equal(dl_batch_pin(batch), 0); /* from here on it is in nobody's way */
    expect_steps(&f, DL_MSG_RELEASE, 1);
    dl_batch_release(batch);
    f.epoch = dl_epoch_end(f.epoch);
    fake_end(&f);
}

TEST(test_detach_pinned)
{
    struct DLManagedTensor *tensor;
    struct dl_batch *batch, *other;
    struct fake f;

    fake_run(&f, 4, 10);
    fake_deliver(&f, 0, 3);
    batch = fake_next(&f, 0);
    assert_int_equal(dl_batch_pin(batch), 0);
    assert_int_equal(dl_batch_detach(batch), 0);
    assert_int_equal(dl_epoch_held_bytes(f.epoch), 0);
    other = fake_next(&f, 1);
    assert_int_equal(dl_batch_detach(other), 0);
    assert_int_equal(dl_batch_pin(other), 0); /* kept like any pinned one, of no slot */
    assert_int_equal(dl_epoch_held_bytes(f.epoch), 0);
    assert_int_equal(dl_batch_node_dlpack(fake_next(&f, 2), 1, &tensor), 0);
    assert_int_equal(dl_batch_detach(f.epoch->current), -EBUSY);
    drop(tensor);
    assert_int_equal(dl_batch_detach(f.epoch->current), 0);
    f.epoch = dl_epoch_end(f.epoch);
    assert_int_equal(dl_batch_step(other), 1);
    dl_batch_release(other);
    assert_int_equal(dl_batch_step(batch), 0);
    f.loader = dl_loader_close(f.loader);
    fake_end(&f);
}

/* ---- steps of keys ---- */

TEST(test_feed_keys)
{
    uint64_t words[64] = {SLOT_KEYS_MARK, 490, 1, 2, 3};
    struct dl_epoch_options options = {.credits = 3};
    struct dl_message msg;
    struct fake f;

    fake_connect(&f);
    fake_open(&f); /* batches of 4 */
    f.loader->identity.order = STATE_CLIENT;
    msg = fake_started(&f, DL_UNKNOWN);
    fake_send(&f, &msg);
    assert_int_equal(dl_epoch_start(f.loader, &options, &f.epoch), 0);
    fake_expect(&f, DL_MSG_START);
    assert_int_equal(dl_epoch_feed_batch(f.epoch, words, 64), 0);
    msg = fake_expect(&f, DL_MSG_FEED);
    assert_int_equal(msg.feed.indices.len, sizeof words);
    assert_memory_equal(msg.feed.indices.data, words, sizeof words);
    assert_int_equal(dl_epoch_feed_batch(f.epoch, words + 1, 63), -EINVAL);
    assert_int_equal(dl_epoch_feed(f.epoch, words + 1, 4), 4);
    fake_expect(&f, DL_MSG_FEED);
    fake_end(&f);
}
