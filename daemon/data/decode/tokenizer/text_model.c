#include "daemon/data/decode/tokenizer/text_model.h"

#include "daemon/data/files/source.h"

#include <errno.h>
#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Models have some megabytes. What has more is another file, and is not read into memory. */
enum { MODEL_BYTES_MAX = 256 << 20 };

/* The library begins with where in its source it was; people want what comes behind that. */
static const char *text_model_words_of(const char *why)
{
    const char *end = strrchr(why, ']');

    if (!end)
        return why;
    return end + 1 + strspn(end + 1, " ");
}

static int text_model_load(const char *path, const uint8_t *data, uint64_t bytes,
                           struct spm_model **ret, struct dl_error *err)
{
    char why[SPM_WHY_MAX] = "";
    int r = spm_load(data, bytes, ret, why);

    if (r == -ENOMEM)
        return dl_error_set(err, ENOMEM, path, "out of memory for the model");
    if (r == 0)
        return 0;
    const char *words = text_model_words_of(why);
    return dl_error_set(err, -r, path,
                        "is not a SentencePiece model, or a damaged one%s%s%s; name the .model "
                        "file that spm_train wrote, or fetch it again",
                        words[0] ? " (" : "", words, words[0] ? ")" : "");
}

int text_model_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                    struct spm_model **ret, uint64_t *ret_content, struct dl_error *err)
{
    _cleanup_fd_ int fd = -1;
    _cleanup_free_ uint8_t *data = NULL;
    char tokenizer[DL_ERROR_PATH_MAX];
    uint64_t bytes;
    int r;

    if (!spm_is_built()) {
        snprintf(tokenizer, sizeof tokenizer, "%s.tokenizer", place);
        return dl_error_set(
            err, ENOTSUP, tokenizer,
            "this dloaderd, such as the wheel's, was built without SentencePiece: use Debian's "
            "package, build it with libsentencepiece-dev and a C++ compiler, or write "
            "tokenizer: bytes");
    }
    if ((r = source_open_file(spec->model, env, &fd, &bytes, err)) < 0)
        return r;
    /* The library takes a file of nothing for a message that leaves everything out. */
    if (bytes == 0 || bytes > MODEL_BYTES_MAX)
        return dl_error_set(err, EINVAL, spec->model,
                            "has %llu bytes and is not a SentencePiece model; name the .model "
                            "file that spm_train wrote",
                            (ull)bytes);
    data = malloc(bytes);
    if (!data)
        return dl_error_set(err, ENOMEM, spec->model, "out of memory for the model");
    if ((r = source_read_file(fd, spec->model, data, bytes, &bytes, err)) < 0)
        return r;
    *ret_content = XXH3_64bits(data, bytes);
    return text_model_load(spec->model, data, bytes, ret, err);
}
