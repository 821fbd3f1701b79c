/*
 * The service manager: readiness, status, the sockets it passes. Without libsystemd, or when not
 * started by it, every call does nothing.
 */
#ifndef DL_NOTIFY_H
#define DL_NOTIFY_H

#include "proto/common/base.h"

void notify_ready(const char *status);
void notify_reloading(void);
void notify_stopping(void);
void notify_watchdog(void);

/* How often notify_watchdog() is due, in ms; 0 = never. */
uint64_t notify_watchdog_ms(void);

/* The one listening Unix socket that was passed (the caller owns it), -1 if nothing was passed, or
 * a negative errno if it was not one such socket. Clears the environment for children. */
int notify_listen_fd(void);

#endif
