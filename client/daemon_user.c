/*
 * The users that may run the daemon. A client gives the daemon code and Python hosts and reads its
 * memory, so it asks the kernel for the listener's user, whatever the path.
 *
 *   this user         its own service, or the private daemon of one of its programs
 *   root              a service of the system, and any socket that systemd listens at for one
 *   dloaderd          the user of the system's service, as its package makes it
 *   $DLOADER_DAEMON_USER   another one, by its name or its number
 */
#include "client/daemon_user.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define DAEMON_USER_SERVICE  "dloaderd"
#define DAEMON_USER_VARIABLE "DLOADER_DAEMON_USER"

static bool daemon_user_has_name(uid_t uid, const char *name)
{
    struct passwd entry, *found = NULL;
    char buf[4096];

    return getpwnam_r(name, &entry, buf, sizeof buf, &found) == 0 && found && entry.pw_uid == uid;
}

static bool daemon_user_is_named(uid_t uid, const char *name)
{
    char *end;
    unsigned long number = strtoul(name, &end, 10);

    return *name >= '0' && *name <= '9' && *end == '\0' ? number == uid
                                                        : daemon_user_has_name(uid, name);
}

int daemon_user_check(int sock, struct dl_error *err)
{
    const char *named = getenv(DAEMON_USER_VARIABLE);
    struct ucred peer;
    socklen_t len = sizeof peer;

    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return dl_error_set(err, errno, "", "who listens there: %s", strerror(errno));
    if (peer.uid == geteuid() || peer.uid == 0 ||
        daemon_user_has_name(peer.uid, DAEMON_USER_SERVICE) ||
        (named && daemon_user_is_named(peer.uid, named)))
        return 0;
    return dl_error_set(
        err, EPERM, "",
        "user %u listens there, who is not this one (%u), root or " DAEMON_USER_SERVICE
        "; to use that user's daemon, set " DAEMON_USER_VARIABLE "=%u",
        (unsigned)peer.uid, (unsigned)geteuid(), (unsigned)peer.uid);
}

const char *daemon_user_runtime_dir(struct dl_error *why_not)
{
    const char *dir = getenv("XDG_RUNTIME_DIR");
    struct stat st;

    if (!dir || !dir[0] || stat(dir, &st) < 0)
        return NULL;
    if (st.st_uid == geteuid())
        return dir;
    (void)!dl_error_set(why_not, EPERM, dir,
                        "belongs to user %u, and is not used for user %u, as after su: unset "
                        "XDG_RUNTIME_DIR, or log in as that user",
                        (unsigned)st.st_uid, (unsigned)geteuid());
    return NULL;
}
