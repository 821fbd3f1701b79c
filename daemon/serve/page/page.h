/* The live page: page.html, from which embed.py makes the array declared here, and its data. */
#ifndef DL_PAGE_H
#define DL_PAGE_H

#include "proto/common/error.h"
#include "proto/value.h"

/* Makes one of the daemon's views. */
typedef int (*page_view)(void *context, const char *name, struct value *ret, struct dl_error *err);

extern const unsigned char page_html[]; /* UTF-8, page_html_len bytes */
extern const size_t page_html_len;

/* Its Content-Security-Policy: the page's own script and style by their hashes, and nothing else.
 */
extern const char page_policy[];

#endif
