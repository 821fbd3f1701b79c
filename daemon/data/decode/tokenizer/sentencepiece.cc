#include "daemon/data/decode/tokenizer/sentencepiece.h"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <exception>
#include <new>
#include <sentencepiece_processor.h>
#include <string_view>
#include <vector>

struct spm_model {
    sentencepiece::SentencePieceProcessor processor;
    std::vector<int> ids; /* of the last text */
};

/* C code calls us: whatever is thrown must end here. 0, or a negative errno with `why`. */
template <typename Action> static int guarded(char *why, const Action &action) noexcept
{
    try {
        const sentencepiece::util::Status status = action();
        if (status.ok())
            return 0;
        snprintf(why, SPM_WHY_MAX, "%s", status.error_message());
        return -EINVAL;
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    } catch (const std::exception &e) {
        snprintf(why, SPM_WHY_MAX, "%s", e.what());
    } catch (...) {
        snprintf(why, SPM_WHY_MAX, "an exception without words");
    }
    return -EINVAL;
}

static std::string_view view_of(const void *bytes, size_t n)
{
    return {static_cast<const char *>(bytes), n};
}

bool spm_is_built(void)
{
    return true;
}

int spm_load(const void *bytes, size_t n, struct spm_model **ret, char *why)
{
    struct spm_model *model = nullptr;

    int r = guarded(why, [&] {
        model = new spm_model;
        return model->processor.LoadFromSerializedProto(view_of(bytes, n));
    });
    if (r < 0) {
        spm_free(model);
        return r;
    }
    *ret = model;
    return 0;
}

int spm_encode(struct spm_model *model, const void *text, size_t n, const int **ret, size_t *ret_n,
               char *why)
{
    /* The library counts bytes in int. */
    if (n > INT_MAX) {
        snprintf(why, SPM_WHY_MAX, "%zu bytes are more than a text may have, %d", n, INT_MAX);
        return -EINVAL;
    }
    int r = guarded(why, [&] { return model->processor.Encode(view_of(text, n), &model->ids); });
    if (r < 0)
        return r;
    *ret = model->ids.data();
    *ret_n = model->ids.size();
    return 0;
}

void spm_free(struct spm_model *model)
{
    delete model;
}
