/* The arena: alignment, growth, what a clear keeps, and sizes that no memory has. */
#include "daemon/data/base/arena.h"
#include "tests/lib/harness.h"

/* Makes the next `fail_in`th chunk fail, and those that are larger than `largest`. */
static int fail_in = -1;
static size_t largest = SIZE_MAX;
static int chunks;

void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    if (size > largest || (fail_in >= 0 && fail_in-- == 0))
        return NULL;
    chunks++;
    return __real_aligned_alloc(align, size);
}

static void *must_alloc(struct arena *arena, size_t bytes)
{
    void *memory = arena_alloc(arena, bytes);

    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % 64, 0);
    return memory;
}

TEST(test_blocks_are_apart)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 65536, 1, 70000, 0, 300000, 64};
    struct arena arena = {0};
    char *blocks[ARRAY_SIZE(sizes)];

    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
            blocks[i] = must_alloc(&arena, sizes[i]);
            memset(blocks[i], (int)i, sizes[i]);
        }
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
            for (size_t b = 0; b < sizes[i]; b++)
                assert_int_equal(blocks[i][b], (char)i);
        arena_clear(&arena);
    }
    arena_deinit(&arena);
    assert_null(arena.chunks);
}

/* After a few batches of one size, the next takes no memory from the system. */
TEST(test_steady_state)
{
    struct arena arena = {0};
    int before = 0;

    for (int batch = 0; batch < 20; batch++) {
        if (batch == 10)
            before = chunks;
        for (int i = 0; i < 100; i++)
            must_alloc(&arena, 12345);
        arena_clear(&arena);
    }
    assert_int_equal(chunks, before);
    arena_deinit(&arena);
}

/* A size near SIZE_MAX once came back as a small chunk, when its header had been added to it. */
TEST(test_sizes_beyond_memory)
{
    struct arena arena = {0};

    must_alloc(&arena, 1);
    largest = (size_t)1 << 40; /* as the system would say; ASan ends the program */
    for (size_t less = 0; less < 512; less++) {
        assert_null(arena_alloc(&arena, SIZE_MAX - less));
        assert_null(arena_alloc(&arena, (size_t)PTRDIFF_MAX - less));
    }
    largest = SIZE_MAX;
    must_alloc(&arena, 1);
    arena_deinit(&arena);
}

TEST(test_no_memory)
{
    struct arena arena = {0};
    char *a;

    largest = 0;
    assert_null(arena_alloc(&arena, 1));
    largest = SIZE_MAX;
    a = must_alloc(&arena, 60000);
    memset(a, 7, 60000);
    /* Twice as much is not to be had, but what is needed is. */
    largest = 80000;
    memset(must_alloc(&arena, 70000), 8, 70000);
    /* Not even that; what there is stays as it is. */
    assert_null(arena_alloc(&arena, 90000));
    assert_int_equal(a[59999], 7);
    largest = SIZE_MAX;
    must_alloc(&arena, 90000);
    arena_clear(&arena);
    arena_clear(&arena);
    arena_deinit(&arena);
    arena_deinit(&arena);
}
