/* Built without ncurses: no terminal is good enough. */
#include "client/dlctl/top/session.h"

#include <errno.h>

int top_terminal(struct top_session *s)
{
    return -ENOTTY;
}
