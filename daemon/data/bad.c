#include "daemon/data/bad.h"

#include <errno.h>

bool bad_is_sample(const struct dl_error *err)
{
    switch (err->code) {
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ECANCELED: /* the dataset ends its process */
        return false;
    default:
        return true;
    }
}

int bad_nothing_left(const struct bad_list *list, struct dl_error *err)
{
    char words[DL_ERROR_MESSAGE_MAX - 128];

    bad_list_words(list, words, sizeof words);
    return dl_error_set(err, (int)list->items[0].code, "",
                        "nothing is left of this batch: all that could be in it is bad (%s)",
                        words);
}
