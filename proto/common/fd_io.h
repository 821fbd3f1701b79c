/*
 * read(), write(), pread() and pwrite() of all the bytes, where these may do a part: a signal
 * interrupts them, and no call moves more than 2 GiB. For files, memfds and pipes that block.
 * Reentrant.
 */
#ifndef DL_FD_IO_H
#define DL_FD_IO_H

#include "proto/common/base.h"

/* How many bytes were read: `len`, or fewer at the end of the file. Or a negative errno. */
int64_t _nodiscard_ fd_read_all(int fd, void *to, uint64_t len);

/* The same from byte `at` on; the descriptor's offset stays where it is. */
int64_t _nodiscard_ fd_pread_all(int fd, void *to, uint64_t len, uint64_t at);

/* 0, or a negative errno: a part may be written. -ENOSPC, too, where write() takes nothing. */
int _nodiscard_ fd_write_all(int fd, const void *from, uint64_t len);

/* The same from byte `at` on; the descriptor's offset stays where it is. */
int _nodiscard_ fd_pwrite_all(int fd, const void *from, uint64_t len, uint64_t at);

#endif
