/* Elements as text and JSON: see element.h. */
#include "client/dlctl/batch/element.h"

#include "client/dlctl/render.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

double element_half(uint16_t bits)
{
    int exponent = bits >> 10 & 0x1f;
    double fraction = bits & 0x3ff;
    double magnitude = exponent == 0x1f ? (fraction != 0 ? NAN : INFINITY)
                       : exponent       ? ldexp(fraction + 1024, exponent - 25)
                                        : ldexp(fraction, -24);

    return bits >> 15 ? -magnitude : magnitude;
}

double element_bfloat(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float f;

    memcpy(&f, &wide, sizeof f);
    return f;
}

/* `field`: of struct element; `type`: of the element in memory; `convert`: to the field's. */
#define READ(kind_, field, type, convert)                                          \
    do {                                                                           \
        type element;                                                              \
        memcpy(&element, (const char *)data + i * sizeof element, sizeof element); \
        ret->kind = kind_;                                                         \
        ret->field = convert(element);                                             \
        return true;                                                               \
    } while (0)

static bool read_complex(bool wide, const void *data, uint64_t i, struct element *ret)
{
    float narrow[2];
    double pair[2];

    if (wide) {
        memcpy(pair, (const char *)data + i * sizeof pair, sizeof pair);
    } else {
        memcpy(narrow, (const char *)data + i * sizeof narrow, sizeof narrow);
        pair[0] = narrow[0];
        pair[1] = narrow[1];
    }
    *ret = (struct element){.kind = ELEMENT_COMPLEX, .real = pair[0], .imaginary = pair[1]};
    return true;
}

bool element_read(uint32_t dtype, const void *data, uint64_t i, struct element *ret)
{
    *ret = (struct element){0};
    switch (dtype) {
    case DL_DTYPE_BOOL:
        READ(ELEMENT_BOOL, uinteger, uint8_t, !!);
    case DL_DTYPE_UINT8:
        READ(ELEMENT_UINT, uinteger, uint8_t, );
    case DL_DTYPE_INT8:
        READ(ELEMENT_INT, integer, int8_t, (int64_t));
    case DL_DTYPE_UINT16:
        READ(ELEMENT_UINT, uinteger, uint16_t, );
    case DL_DTYPE_INT16:
        READ(ELEMENT_INT, integer, int16_t, );
    case DL_DTYPE_UINT32:
        READ(ELEMENT_UINT, uinteger, uint32_t, );
    case DL_DTYPE_INT32:
        READ(ELEMENT_INT, integer, int32_t, );
    case DL_DTYPE_UINT64:
        READ(ELEMENT_UINT, uinteger, uint64_t, );
    case DL_DTYPE_INT64:
        READ(ELEMENT_INT, integer, int64_t, );
    case DL_DTYPE_FLOAT16:
        READ(ELEMENT_REAL, real, uint16_t, element_half);
    case DL_DTYPE_BFLOAT16:
        READ(ELEMENT_REAL, real, uint16_t, element_bfloat);
    case DL_DTYPE_FLOAT32:
        READ(ELEMENT_REAL, real, float, (double));
    case DL_DTYPE_FLOAT64:
        READ(ELEMENT_REAL, real, double, );
    case DL_DTYPE_COMPLEX64:
    case DL_DTYPE_COMPLEX128:
        return read_complex(dtype == DL_DTYPE_COMPLEX128, data, i, ret);
    default:
        return false;
    }
}

void element_text(const struct element *e, char ret[ELEMENT_TEXT])
{
    switch (e->kind) {
    case ELEMENT_BOOL:
        snprintf(ret, ELEMENT_TEXT, "%s", e->uinteger ? "true" : "false");
        return;
    case ELEMENT_INT:
        snprintf(ret, ELEMENT_TEXT, "%" PRId64, e->integer);
        return;
    case ELEMENT_UINT:
        snprintf(ret, ELEMENT_TEXT, "%" PRIu64, e->uinteger);
        return;
    case ELEMENT_REAL:
        snprintf(ret, ELEMENT_TEXT, "%.6g", e->real);
        return;
    case ELEMENT_COMPLEX:
        snprintf(ret, ELEMENT_TEXT, "%.6g%+.6gj", e->real, e->imaginary);
        return;
    }
    ret[0] = '\0';
}

json_t *element_json(const struct element *e)
{
    switch (e->kind) {
    case ELEMENT_BOOL:
        return json_boolean(e->uinteger);
    case ELEMENT_INT:
        return json_integer(e->integer);
    case ELEMENT_UINT:
        return render_json_u64(e->uinteger);
    case ELEMENT_REAL:
        return render_json_real(e->real);
    case ELEMENT_COMPLEX:
        return json_pack("[o, o]", render_json_real(e->real), render_json_real(e->imaginary));
    }
    return NULL;
}
