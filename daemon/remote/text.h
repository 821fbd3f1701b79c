/*
 * Text that grows, and the percent encoding of URLs (RFC 3986, section 2.1). Where memory runs out
 * the text is lost, which text_take() says at the end, so that no single step has to be asked.
 * Pure; any thread.
 */
#ifndef DL_REMOTE_TEXT_H
#define DL_REMOTE_TEXT_H

#include "proto/common/bytes.h"

struct text {
    struct dl_buffer bytes; /* owned */
    bool is_lost;           /* out of memory */
};
void text_deinit(struct text *text); /* wipes the bytes first: some are secret */

void text_add(struct text *text, const char *more);
void text_add_bytes(struct text *text, const void *bytes, size_t len);
void text_print(struct text *text, const char *fmt, ...) _printf_(2, 3); /* 256 bytes at most */
/* All but A-Z a-z 0-9 - . _ ~ as %XX, in capitals; "/" stays where `keep_slash`. */
void text_encode(struct text *text, const char *bytes, bool keep_slash);
/* As a user may have written it: %XX and what a URL's path or query may have stay as they are, all
 * else becomes %XX, a % that begins no %XX included. */
void text_encode_lenient(struct text *text, const char *bytes, size_t len);

/* The text, owned by the caller, and `text` is empty again. NULL: out of memory. */
char *text_take(struct text *text);

/* Decodes %XX in place, and "+" as a space where `plus`; returns the new length. False: a % begins
 * no %XX, or %00 is in it; the bytes are then whatever was decoded so far. */
bool text_decode(char *bytes, size_t *len, bool plus);

/* strdup() that takes NULL. *is_lost becomes true where memory ran out. */
char *text_copy(const char *from, bool *is_lost);

void text_wipe(char **secret); /* overwritten, freed, and NULL; takes NULL */

struct dl_span text_trim(struct dl_span text); /* without the white space around it */

bool text_is_plain(const char *text); /* no control characters: it may stand in a header's line */

#endif
