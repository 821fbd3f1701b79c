/*
 * Lists that are too long for one message travel as pages: arrays of some of their rows, in order.
 * A page has at most PAGE_BYTES, so that it cannot have more nodes than a value may have; a larger
 * row gets a page of its own. Pure.
 */
#ifndef DL_PAGES_H
#define DL_PAGES_H

#include "proto/value.h"

enum { PAGE_BYTES = 32768 };

/*
 * Appends the page that begins with row `row` of the list to `out`; *ret_next is the row after it,
 * or 0 after the last page. A value that is not a list is one page. -ENOMEM, or -EMSGSIZE if a row
 * has more nodes or levels than a value may have.
 */
int _nodiscard_ pages_pack(const struct value *list, uint32_t row, struct dl_buffer *out,
                           uint32_t *ret_next);

/* Appends a page's rows to `whole`, which starts empty and becomes a list of all pages' rows.
 * -EBADMSG if the page is not an array; -ENOMEM. */
int _nodiscard_ pages_join(struct dl_buffer *whole, const uint8_t *page, size_t len);

/* As value_unpack(); of a list only each row has to be within the limits of a value. */
int _nodiscard_ pages_unpack(const uint8_t *data, size_t len, struct value *ret,
                             struct dl_error *err);

#endif
