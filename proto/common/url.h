/*
 * URLs in texts that people see: errors, logs, views. What may be a secret in them is not shown: a
 * user's name and password, and of http the query, in which a presigned URL has its signature.
 * Pure; any thread.
 */
#ifndef DL_URL_H
#define DL_URL_H

/*
 * In every URL of the text a star takes the place of what precedes the @ of the host, and of the
 * query; no text becomes longer. A URL ends at a blank, at '"', '<' or '>', and before punctuation
 * that ends a word or a sentence.
 */
void url_hide_secrets(char *text);

#endif
