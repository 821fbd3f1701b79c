/*
 * How dlctl tells the outcome: results on standard output, one line on standard error for a
 * failure, both as JSON when asked; below it the report of Python code that failed, where there is
 * one. Nothing else in dlctl prints errors.
 */
#ifndef DLCTL_REPORT_H
#define DLCTL_REPORT_H

#include "client/dlctl/options.h"
#include <jansson.h>
#include <stdio.h>

struct dl_client;

/* Print one line, report_client() the client's report as well; return STATUS_FAILED. `code` is a
 * negative errno. */
int report_error(const struct options *o, const struct dl_error *err);
int report_client(const struct options *o, const struct dl_client *client, int code);
int report_errno(const struct options *o, int code, const char *path);

/* Something to know of, on standard error; nothing fails by it. */
void report_warning(const struct options *o, const char *message);

/* Prints and frees `json` (NULL: memory ran out) as one line. Returns an exit status. */
int report_json(const struct options *o, json_t *json);

/* Turns a status of 0 into a failure when standard output could not be written. */
int report_flush(const struct options *o, int status);

/* Of any file: 0, or a negative errno that says why not all that was written to it arrived. */
int report_flush_file(FILE *file);

/* A drawn seed, told on standard error: without it the output can't be repeated. */
void report_seed(const struct options *o, uint64_t seed);

#endif
