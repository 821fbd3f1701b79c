#include "daemon/data/kinds/kind_lacks.h"

#include "daemon/data/decode/audio/audio_file.h"
#include "daemon/data/decode/image/image_codec.h"
#include "daemon/data/decode/tokenizer/sentencepiece.h"
#include "daemon/data/decode/tokenizer/tokenizer.h"
#include "daemon/data/files/unpack.h"
#include "daemon/data/kinds/hdf5/hdf5_library.h"
#include "daemon/data/kinds/parquet/codec.h"

#include <stdio.h>
#include <string.h>

static bool kind_lacks_have_zstd(void)
{
    return compression_is_built_in(COMPRESSION_ZSTD);
}

static bool kind_lacks_have_brotli(void)
{
    return parquet_codec_is_built_in(PARQUET_BROTLI);
}

static const struct {
    enum kind_part part;
    bool (*is_there)(void);
    const char *lacks;
} kind_lacks_parts[] = {
    {PART_SENTENCEPIECE, spm_is_built,
     "without the tokenizer sentencepiece, as this build has no libsentencepiece"},
    {PART_TOKENS, tokenizer_is_built,
     "without tokenizer.json, as this build has no libpcre2-8 and libutf8proc"},
    {PART_ZSTD, kind_lacks_have_zstd, "not by zstd, as this build has no libzstd"},
    {PART_PICTURES, image_webp_is_built, "without WebP, as this build has no libwebp"},
    {PART_BROTLI, kind_lacks_have_brotli, "not by brotli, as this build has no libbrotlidec"},
};

static void kind_lacks_say(struct kind_lacks *lacks, const char *before, const char *what)
{
    size_t at = strlen(lacks->text);

    (void)snprintf(lacks->text + at, sizeof lacks->text - at, "%s%s%s", at > 0 ? "; " : "", before,
                   what);
}

bool data_kind_lacks(enum dataset_kind kind, struct kind_lacks *ret)
{
    const struct kind_entry *entry = kind_entry(kind);
    unsigned parts = entry ? entry->parts : 0;
    const bool has_sounds = parts & (PART_SOUNDS | PART_SOUND_ALONE);
    const char *no_sound = has_sounds ? audio_file_missing() : NULL;
    const char *no_mp3 = has_sounds && !no_sound ? audio_file_missing_mp3() : NULL;
    const char *no_tiff = parts & PART_PICTURES ? image_tiff_missing() : NULL;
    const char *no_hdf5 = parts & PART_HDF5 ? hdf5_library_missing() : NULL;

    ret->text[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(kind_lacks_parts); i++) {
        if (parts & kind_lacks_parts[i].part && !kind_lacks_parts[i].is_there())
            kind_lacks_say(ret, "", kind_lacks_parts[i].lacks);
    }
    if (no_tiff)
        kind_lacks_say(ret, "without TIFF, as ", no_tiff);
    if (no_hdf5)
        kind_lacks_say(ret, "but what dloaderd reads itself, as ", no_hdf5);
    if (no_sound)
        kind_lacks_say(ret, parts & PART_SOUNDS ? "without sound, as " : "", no_sound);
    if (no_mp3)
        kind_lacks_say(ret, "without MP3, as ", no_mp3);
    return ret->text[0] != '\0';
}
