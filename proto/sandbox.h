/*
 * How tightly workers are confined: the daemon asks in W_OPEN, the worker answers in W_READY. The
 * values are on the wire.
 */
#ifndef DL_SANDBOX_WORDS_H
#define DL_SANDBOX_WORDS_H

enum sandbox_level {
    SANDBOX_OFF,   /* no more than any worker's rlimits and no_new_privs */
    SANDBOX_LIGHT, /* no calls that attack the kernel or other processes */
    SANDBOX_FULL,  /* it reads its data, writes its slots, and can do nothing else */
};

/* What of a level the kernel and the build really keep. */
enum sandbox_part {
    SANDBOX_CALLS = 1 << 0,   /* system calls that it does not need fail */
    SANDBOX_FILES = 1 << 1,   /* only permitted files can be read, and nothing can be written */
    SANDBOX_NETWORK = 1 << 2, /* TCP ports are neither bound nor connected to */
    SANDBOX_SIGNALS = 1 << 3, /* signals and abstract sockets end at the worker's border */
};

#endif
