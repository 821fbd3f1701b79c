#include "daemon/helper/packed.h"

#include <errno.h>

int packed_spec_read(struct dl_span packed, struct dl_spec *ret, struct dl_error *err)
{
    _cleanup_(value_deinit)
    struct value value = {0};
    int r = value_unpack(packed.data, packed.len, &value, err);

    if (r == 0)
        r = spec_from_former(&value);
    return r < 0 ? r : spec_from_value(&value, NULL, ret, err);
}

static int packed_read_list(struct dl_span packed, struct value *ret, char ***ret_strings,
                            struct dl_error *err)
{
    int r = value_unpack(packed.data, packed.len, ret, err);

    if (r < 0 || ret->count == 0)
        return r;
    *ret_strings = calloc(ret->count, sizeof(char *));
    if (!*ret_strings)
        return -ENOMEM;
    for (uint32_t i = 0; i < ret->count; i++) {
        if (ret->type != VALUE_ARRAY || ret->items[i].type != VALUE_STRING)
            return -EPROTO;
        (*ret_strings)[i] = ret->items[i].string;
    }
    return 0;
}

int packed_env_read(struct packed_env *ret, struct dl_span roots, struct dl_span seen_as,
                    struct dl_error *err)
{
    int r = packed_read_list(roots, &ret->roots, &ret->env.roots, err);

    ret->env.n_roots = ret->roots.count;
    if (r == 0)
        r = packed_read_list(seen_as, &ret->seen_as, &ret->env.seen_as, err);
    return r == 0 && ret->seen_as.count != 0 && ret->seen_as.count != ret->roots.count ? -EPROTO
                                                                                       : r;
}

void packed_env_deinit(struct packed_env *env)
{
    free(env->env.roots);
    free(env->env.seen_as);
    value_deinit(&env->roots);
    value_deinit(&env->seen_as);
}
