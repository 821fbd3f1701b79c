/*
 * What the codec asks of the allocator, counted over the whole process with all its libraries:
 * nothing to decode, nothing to encode into a warm buffer, and little for a decode bomb.
 */
#include "tests/lib/harness.h"

#include "proto/codec.h"
#include "proto/frame.h"
#include "proto/value.h"
#include <errno.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WITH_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WITH_SANITIZER 1
#endif
#endif

static volatile size_t allocated; /* volatile: compilers know that malloc() changes no static */
static volatile bool counting;

#ifdef WITH_SANITIZER
/* From sanitizer/allocator_interface.h, which gcc does not always install. */
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));

static void on_malloc(const volatile void *at, size_t size)
{
    (void)at;
    if (counting)
        allocated += size;
}

static void on_free(const volatile void *at)
{
    (void)at;
}

static void install_counter(void)
{
    assert_true(__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) > 0);
}
#else
/* The whole process's allocator, shared libraries' calls included. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);

__attribute__((visibility("default"))) void *malloc(size_t size)
{
    allocated += counting ? size : 0;
    return __libc_malloc(size);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
    allocated += counting ? n * size : 0;
    return __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *old, size_t size)
{
    allocated += counting ? size : 0;
    return __libc_realloc(old, size);
}

static void install_counter(void)
{
}
#endif

static void count_begin(void)
{
    allocated = 0;
    counting = true;
}

static size_t count_end(void)
{
    counting = false;
    return allocated;
}

/* Once the buffer is warm, a message is sent and read without the allocator. */
TEST(test_hot_path_does_not_allocate)
{
    uint8_t records[480] = {0};
    struct dl_message msg = {.number = DL_MSG_DELIVER};
    struct dl_buffer out = {0};

    msg.deliver.descriptors = (struct dl_span){records, sizeof records};
    assert_int_equal(message_encode(&msg, &out), 0);
    count_begin();
    for (int i = 0; i < 100; i++) {
        out.len = 0;
        if (message_encode(&msg, &out) < 0)
            break;
    }
    assert_int_equal(count_end(), 0);
    assert_int_equal(out.len, FRAME_HEADER_BYTES + 3 + 3 + sizeof records);

    struct dl_message back;
    int r = 0;
    count_begin();
    for (int i = 0; i < 100 && r == 0; i++)
        r = message_decode(out.data + FRAME_HEADER_BYTES, out.len - FRAME_HEADER_BYTES, FROM_DAEMON,
                           &back, NULL);
    assert_int_equal(count_end(), 0);
    assert_int_equal(r, 0);
    buffer_deinit(&out);
}

/* Five bytes for which msgpack-c asks for 137 GB, and five for which it gets 17. */
TEST(test_bombs)
{
    static const uint8_t bombs[][5] = {{0xDD, 0xFF, 0, 0, 0},
                                       {0xDF, 0x0F, 0xFF, 0xFF, 0xFF},
                                       {0xDF, 0xFF, 0xFF, 0xFF, 0xFF},
                                       {0xDB, 0xFF, 0xFF, 0xFF, 0xFF},
                                       {0xC9, 0xFF, 0xFF, 0xFF, 0xFF}};
    static const uint8_t open_head[] = {0x94, 0x02, 0x01, 0xA0};
    struct dl_message msg;

    for (size_t i = 0; i < ARRAY_SIZE(bombs); i++) {
        uint8_t nested[sizeof open_head + 5];
        size_t len;
        int r[3];

        memcpy(nested, open_head, sizeof open_head);
        memcpy(nested + sizeof open_head, bombs[i], 5);
        count_begin();
        r[0] = message_decode(bombs[i], 5, UINT32_MAX, &msg, NULL);
        r[1] = message_decode(nested, sizeof nested, UINT32_MAX, &msg, NULL);
        r[2] = value_scan(bombs[i], 5, &len);
        assert_true(count_end() < 65536);
        for (int k = 0; k < 3; k++)
            assert_true(r[k] == -EMSGSIZE || r[k] == -EBADMSG);
    }
}

/* Else the other tests would prove nothing. */
TEST(test_counter_counts)
{
    count_begin();
    void *volatile some = malloc(100000);
    free(some);
    assert_true(count_end() >= 100000);
}

BEFORE_TESTS
{
    install_counter();
}
