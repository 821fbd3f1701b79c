/* SPEC or NAME: see open.h. */
#include "client/dlctl/open.h"

#include "client/dlclient.h"
#include <jansson.h>

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

int open_name(struct dl_client *client, const char *name, struct dl_loader **ret)
{
    json_t *json = json_string(name);
    _cleanup_free_ char *text = json ? json_dumps(json, JSON_ENCODE_ANY) : NULL;
    const char *said = text ? text : name;

    json_decref(json);
    return dl_loader_open(client, said, strlen(said), NULL, ret);
}

int open_operand(struct dl_client *client, const char *operand, struct dl_loader **ret)
{
    if (operand_is_file(operand))
        return dl_loader_open_file(client, operand, ret);
    return open_name(client, operand, ret);
}
