#include "daemon/worker/packed.h"

#include <errno.h>

int packed_spec_read(struct dl_span packed, struct dl_spec *ret, struct dl_error *err)
{
    _cleanup_(value_deinit) struct value value = {0};
    int r = value_unpack(packed.data, packed.len, &value, err);

    if (r == 0)
        r = spec_from_former(&value);
    return r < 0 ? r : spec_from_value(&value, NULL, ret, err);
}

int packed_strings_read(struct dl_span packed, struct value *ret, char ***ret_strings,
                        uint32_t *ret_n, struct dl_error *err)
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
    *ret_n = ret->count;
    return 0;
}

int packed_roots_read(struct dl_span roots, struct dl_span seen_as, struct value *ret_roots,
                      struct value *ret_seen_as, struct data_env *env, struct dl_error *err)
{
    uint32_t n = 0;
    int r = packed_strings_read(roots, ret_roots, &env->roots, &env->n_roots, err);

    if (r == 0)
        r = packed_strings_read(seen_as, ret_seen_as, &env->seen_as, &n, err);
    return r == 0 && n != 0 && n != env->n_roots ? -EPROTO : r;
}

int packed_env_read(struct packed_env *ret, struct dl_span roots, struct dl_span seen_as,
                    struct dl_error *err)
{
    return packed_roots_read(roots, seen_as, &ret->roots, &ret->seen_as, &ret->env, err);
}

void packed_env_deinit(struct packed_env *env)
{
    free(env->env.roots);
    free(env->env.seen_as);
    value_deinit(&env->roots);
    value_deinit(&env->seen_as);
}
