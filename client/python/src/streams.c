/*
 * Standard streams of the static libraries in a wheel: build_wheel.py, which adds this to their
 * archives, says why they have other names there.
 */
#include <stdio.h>

extern FILE *dl_stdin, *dl_stdout, *dl_stderr;
FILE *dl_stdin, *dl_stdout, *dl_stderr;

__attribute__((constructor)) static void find_streams(void)
{
    dl_stdin = stdin;
    dl_stdout = stdout;
    dl_stderr = stderr;
}
