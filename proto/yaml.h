/*
 * YAML 1.1 core (and JSON, with its pairs of surrogates) text → value, by libyaml. Anchors,
 * aliases, tags, several documents and duplicate keys are refused; plain scalars resolve as
 * YAML 1.2's core schema: null/~, true, false, decimal and 0x/0o integers, floats with .inf and
 * .nan. Pure.
 */
#ifndef DL_YAML_H
#define DL_YAML_H

#include "proto/value.h"

/* `source` names the text in messages ("fashion.yaml"); err->path becomes "source:line". */
int _nodiscard_ yaml_parse(const char *text, size_t len, const char *source, struct value *ret,
                           struct dl_error *err);

#endif
