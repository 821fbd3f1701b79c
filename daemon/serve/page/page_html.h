/* The live page: page.html, from which embed.py makes what is declared here, for the daemon and for
 * the reports of dlctl. */
#ifndef DL_PAGE_HTML_H
#define DL_PAGE_HTML_H

#include <stddef.h>

extern const unsigned char page_html[]; /* UTF-8, page_html_len bytes */
extern const size_t page_html_len;

/* Its Content-Security-Policy: the page's own script and style by their hashes, and nothing else;
 * as a header, and as a page may have it in itself. */
extern const char page_policy[], page_own_policy[];

#endif
