/* Without libsndfile: nothing is opened, and why not is said in words. */
#include "daemon/data/decode/audio/audio_file.h"
#include "tests/lib/harness.h"

#include <errno.h>

TEST(test_nothing_is_opened)
{
    struct audio_file *file = NULL;
    struct dl_error err = {0};

    assert_non_null(audio_file_missing());
    assert_non_null(strstr(audio_file_missing(), "libsndfile"));
    assert_int_equal(audio_file_new("dataset", &file, &err), -ENOTSUP);
    assert_null(file);
    assert_string_equal(err.path, "dataset");
    assert_non_null(strstr(err.message, audio_file_missing()));
    assert_null(audio_file_free(NULL));
}
