/* A module of another release: its table says so, and has nothing else. */
#include "client/local.h"

extern const struct local_table dlclient_local;
DL_API const struct local_table dlclient_local = {.version = DL_LOCAL_VERSION + 1};
