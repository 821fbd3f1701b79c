/* Which fields of a record a sample has, and other lists of names, kept beyond the spec's life. Not
 * thread-safe. */
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

struct field_names {
    char **names; /* owned, and each of them */
    uint32_t n;
};

/* Copies of `n` names. -ENOMEM names `place`. */
int _nodiscard_ field_names_copy(struct field_names *ret, char *const *names, uint32_t n,
                                 const char *place, struct dl_error *err);
bool field_names_have(const struct field_names *names, const char *name);
void field_names_deinit(struct field_names *names);

#endif
