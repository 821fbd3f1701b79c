#include "daemon/data/field/field_choice.h"

#include <errno.h>

int field_choice_init(struct field_choice *choice, const struct spec_dataset *spec,
                      const char *place, struct dl_error *err)
{
    if (!spec->fields)
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
