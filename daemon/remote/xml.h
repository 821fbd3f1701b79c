/*
 * XML as S3's answers have it, taken piece by piece: elements and text. Untrusted: without
 * recursion, without allocation, at most XML_DEPTH_MAX deep, and refused where it has a document
 * type or entities of its own. Attributes and name spaces are passed over. Pure; any thread.
 */
#ifndef DL_REMOTE_XML_H
#define DL_REMOTE_XML_H

#include "daemon/remote/text.h"

enum { XML_DEPTH_MAX = 16 };

struct xml {
    struct dl_span left; /* borrowed */
    struct dl_span
        open[XML_DEPTH_MAX]; /* names of the elements around this place, outermost first */
    uint32_t depth;
    bool has_root;
    bool closes;     /* the last event opened an element <like-this/> */
    bool was_closed; /* the last event closed the innermost element */
};
void xml_init(struct xml *xml, struct dl_span document);

enum xml_event {
    XML_BAD,   /* it is no XML, or cut off */
    XML_DONE,  /* the root element is closed, and nothing follows */
    XML_OPEN,  /* depth counts the new element, open[depth - 1] is its name */
    XML_CLOSE, /* as XML_OPEN: the element still counts until the next event */
    XML_TEXT,  /* one piece of an element's text */
};

/* The next event; of XML_TEXT *ret_text is its bytes, *ret_is_raw that of CDATA, in which nothing
 * is decoded. */
enum xml_event xml_next(struct xml *xml, struct dl_span *ret_text, bool *ret_is_raw);

/* Whether the element at that depth (1: the root) has that name. */
bool xml_is(const struct xml *xml, uint32_t depth, const char *name);

/* Text with its entities decoded: the five that XML has, and characters by number, but 0. False: it
 * has another. */
bool xml_decode(struct text *to, struct dl_span text);

#endif
