/*
 * Bytes and file descriptors over a Unix socket. Not through libuv pipes: uv_accept turns a
 * received memfd into a pipe handle.
 */
#ifndef DL_FDPASS_H
#define DL_FDPASS_H

#include "proto/frame.h"

/*
 * Reads once into `reader`, descriptors with CLOEXEC set. Returns bytes read, 0 at end of stream,
 * -EAGAIN when nothing is there, -EMFILE when descriptors were cut off or more wait unclaimed than
 * a reader queues (the peer is then to be dropped: its bytes are lost, its descriptors closed), or
 * another negative errno, as frame_reader_reserve() too. EINTR is retried. `flags` as recvmsg
 * (MSG_DONTWAIT).
 */
ssize_t _nodiscard_ fdpass_recv(int sock, struct frame_reader *reader, int flags);

/*
 * Sends up to `len` bytes, with `n_fds` descriptors attached to the first of them. Returns bytes
 * sent (the descriptors went if it is > 0), -EAGAIN, -EPIPE, -EINVAL for more than
 * DL_MAX_FRAME_FDS or for descriptors without a byte to go with, or another negative errno. Never
 * raises SIGPIPE. EINTR is retried. The caller keeps its descriptors.
 */
ssize_t _nodiscard_ fdpass_send(int sock, const void *data, size_t len, const int *fds,
                                uint32_t n_fds, int flags);

/*
 * A packet of a socket that keeps them apart, as far as there is room, and a descriptor that came
 * with it, the caller's; -1: none did. Returns as recvmsg(), or a negative errno. EINTR is retried.
 * Async-signal-safe.
 */
ssize_t _nodiscard_ fdpass_recv_packet(int sock, void *to, size_t room, int flags, int *ret_fd);

#endif
