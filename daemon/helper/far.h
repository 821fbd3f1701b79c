/*
 * A helper's end of a connection: to a worker its daemon, whose tasks come from a stand-in on
 * another machine. See link.h. One thread; one worker.
 */
#ifndef DL_HELPER_FAR_H
#define DL_HELPER_FAR_H

/* `sock`: where W_LEND comes; `program`: what this one was started as. Runs until the stand-in
 * hangs up, or the worker ends. Returns the process's exit status; standard error has the reason.
 */
int far_run(int sock, const char *program);

#endif
