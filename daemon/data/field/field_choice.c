#include "daemon/data/field/field_choice.h"

#include <errno.h>

int field_choice_init(struct field_choice *choice, const struct spec_dataset *spec,
                      const char *place, struct dl_error *err)
{
    if (spec->n_fields == 0)
        return 0;
    choice->fields = calloc(spec->n_fields, sizeof *choice->fields);
    for (uint32_t i = 0; choice->fields && i < spec->n_fields; i++) {
        struct spec_field *field = &choice->fields[choice->n++];
        field->name = strdup(spec->fields[i].name);
        field->source = strdup(spec->fields[i].source);
        if (!field->name || !field->source)
            break;
        if (i + 1 == spec->n_fields)
            return 0;
    }
    return dl_error_set(err, ENOMEM, place, "out of memory");
}

void field_choice_deinit(struct field_choice *choice)
{
    for (uint32_t i = 0; i < choice->n; i++) {
        free(choice->fields[i].name);
        free(choice->fields[i].source);
    }
    free(choice->fields);
    *choice = (struct field_choice){0};
}

int field_names_copy(struct field_names *ret, char *const *names, uint32_t n, const char *place,
                     struct dl_error *err)
{
    if (n == 0)
        return 0;
    ret->names = calloc(n, sizeof *ret->names);
    while (ret->names && ret->n < n && (ret->names[ret->n] = strdup(names[ret->n])))
        ret->n++;
    return ret->n == n ? 0 : dl_error_set(err, ENOMEM, place, "out of memory");
}

bool field_names_have(const struct field_names *names, const char *name)
{
    uint32_t i = 0;

    while (i < names->n && strcmp(names->names[i], name) != 0)
        i++;
    return i < names->n;
}

void field_names_deinit(struct field_names *names)
{
    for (uint32_t i = 0; i < names->n; i++)
        free(names->names[i]);
    free(names->names);
    *names = (struct field_names){0};
}
