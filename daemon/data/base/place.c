#include "daemon/data/base/place.h"

#include <stdio.h>

void place_key(char ret[static DL_ERROR_PATH_MAX], const char *place, const char *key)
{
    (void)snprintf(ret, DL_ERROR_PATH_MAX, "%s.%s", place, key);
}

void place_item(char ret[static DL_ERROR_PATH_MAX], const char *place, const char *key, uint32_t i)
{
    (void)snprintf(ret, DL_ERROR_PATH_MAX, "%s.%s.%u", place, key, i);
}
