/*
 * ROW(...): a row of a table, as `{...}` is one. clang-format fills its lines, where it gives each
 * part of a row that has braces itself a line of its own.
 */
#ifndef DL_TEST_ROW_H
#define DL_TEST_ROW_H

#define ROW(...)    \
    {               \
        __VA_ARGS__ \
    }

#endif
