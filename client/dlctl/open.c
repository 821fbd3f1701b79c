/* SPEC or NAME: see open.h. */
#include "client/dlctl/open.h"

#include "client/dlclient.h"
static bool ends_in(const char *text, const char *tail)
{
    size_t len = strlen(text), n = strlen(tail);

    return len > n && strcmp(text + len - n, tail) == 0;
}

bool operand_is_file(const char *operand)
{
    return strchr(operand, '/') || access(operand, F_OK) == 0 || ends_in(operand, ".yaml") ||
           ends_in(operand, ".yml") || ends_in(operand, ".json");
}

int open_operand(struct dl_client *client, const char *operand, struct dl_loader **ret)
{
    if (operand_is_file(operand))
        return dl_loader_open_file(client, operand, ret);
    return dl_loader_open(client, operand, strlen(operand), NULL, ret);
}
