/*
 * How far workers are closed in, as the daemon tells them (W_OPEN) and as they answer (W_READY).
 * Values are of the wire.
 */
#ifndef DL_SANDBOX_WORDS_H
#define DL_SANDBOX_WORDS_H

enum sandbox_level {
    SANDBOX_OFF,   /* no more than any worker's rlimits and no_new_privs */
    SANDBOX_LIGHT, /* no calls that attack the kernel or other processes */
    SANDBOX_FULL,  /* it reads its data, writes its slots, and gets nowhere else */
};

/* What of a level the kernel and the build really keep. */
enum sandbox_part {
    SANDBOX_CALLS = 1 << 0,   /* system calls that it has no use for fail */
    SANDBOX_FILES = 1 << 1,   /* files are read where it was said, and nothing is written */
    SANDBOX_NETWORK = 1 << 2, /* TCP ports are neither bound nor connected to */
    SANDBOX_SIGNALS = 1 << 3, /* signals and abstract sockets end at the worker's border */
};

#endif
