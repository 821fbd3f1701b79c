/* One element of a tensor, for people and as JSON. Pure. */
#ifndef DLCTL_ELEMENT_H
#define DLCTL_ELEMENT_H

#include "proto/dtype.h"
#include <jansson.h>

enum element_kind { ELEMENT_BOOL = 1, ELEMENT_INT, ELEMENT_UINT, ELEMENT_REAL, ELEMENT_COMPLEX };
enum { ELEMENT_TEXT = 48 }; /* bytes of any of them as text, with the NUL */

struct element {
    enum element_kind kind;
    int64_t integer;
    uint64_t uinteger; /* and BOOL: 0 or 1 */
    double real;
    double imaginary;
};

/* IEEE 754 half precision, and the upper half of single precision. */
double element_half(uint16_t bits);
double element_bfloat(uint16_t bits);

/* Element `i` of those at `data`, which need not be aligned; false for a dtype unknown. */
bool element_read(uint32_t dtype, const void *data, uint64_t i, struct element *ret);

void element_text(const struct element *e, char ret[ELEMENT_TEXT]);

/* As render.h has numbers; a complex one is an array of two. NULL when out of memory. */
json_t *element_json(const struct element *e);

#endif
