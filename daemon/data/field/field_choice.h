/* Which fields of a record a sample has, kept beyond the spec's life. Not thread-safe. */
#ifndef DL_DATA_FIELD_CHOICE_H
#define DL_DATA_FIELD_CHOICE_H

#include "proto/common/error.h"
#include "proto/spec.h"

struct field_choice {          /* all zero: all of them, as they are called */
    struct spec_field *fields; /* owned */
    uint32_t n;
};

/* Of `spec`, which is not needed any more. -ENOMEM names `place`. */
int _nodiscard_ field_choice_init(struct field_choice *choice, const struct spec_dataset *spec,
                                  const char *place, struct dl_error *err);
void field_choice_deinit(struct field_choice *choice);

#endif
