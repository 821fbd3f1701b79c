/*
 * The pre-tokenizer patterns that most tokenizers use, without a regular expression: what each
 * would match, by one look at each character. scan_find() knows their texts (they are published in
 * those tokenizers' files: GPT-2's by openai/gpt-2, src/encoder.py; Llama 3's and Qwen's differ
 * from OpenAI's cl100k_base in how many digits stand together). Pure; thread-safe.
 */
#ifndef DL_DATA_TOKENIZER_SCAN_H
#define DL_DATA_TOKENIZER_SCAN_H

#include "proto/common/base.h"

enum scan { SCAN_NONE, SCAN_GPT2, SCAN_LLAMA3, SCAN_QWEN };

#define SCAN_GPT2_PATTERN \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Of cl100k_base, with its own pattern of numbers. */
#define SCAN_LIKE_CL100K(numbers)                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The pattern that a text is; SCAN_NONE: another one. */
enum scan scan_find(const char *pattern, size_t n);

/* Where the match ends that begins at `at` < n of valid UTF-8: there is always one. */
size_t scan_next(enum scan scan, const uint8_t *text, size_t n, size_t at);

#endif
