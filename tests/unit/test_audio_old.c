/* By a libsndfile that was built without MPEG, as all were before 1.1: MP3 is refused, in words. */
#include "daemon/data/decode/audio/audio_file.c"
#include "tests/unit/data_files.h"

static int command_of_old(SNDFILE *sound, int command, void *data, int bytes)
{
    assert_null(sound);
    if (command == SFC_GET_FORMAT_MAJOR_COUNT) {
        assert_int_equal(bytes, sizeof(int));
        *(int *)data = 1;
    } else {
        assert_int_equal(command, SFC_GET_FORMAT_MAJOR);
        assert_int_equal(bytes, sizeof(SF_FORMAT_INFO));
        assert_int_equal(((SF_FORMAT_INFO *)data)->format, 0);
        ((SF_FORMAT_INFO *)data)->format = SF_FORMAT_WAV;
    }
    return 0;
}

TEST(test_mp3_is_refused)
{
    /* Of MPEG-2.5, 8 kbit/s at 8000 Hz: 72 bytes. */
    static const uint8_t frame[72] = {0xFF, 0xE3, 0x18, 0xC4};
    const struct audio_source source = {
        .data = frame, .fd = -1, .bytes = sizeof frame, .path = "a.mp3"};
    struct audio_file *file = NULL;
    struct audio_info info;
    struct dl_error err = {0};

    sndfile_library.is_there = true;
    sndfile_library.command = command_of_old;
    assert_null(audio_file_missing());
    assert_non_null(audio_file_missing_mp3());
    assert_int_equal(audio_file_new("dataset", &file, &err), 0);
    assert_int_equal(audio_file_open(file, &source, &info, &err), -ENOTSUP);
    assert_error(&err, ENOTSUP, "a.mp3",
                 "is MP3, but this system's libsndfile decodes no MP3; install version 1.1 or "
                 "later, built with MPEG, such as Debian 12's");
    audio_file_free(file);
}
