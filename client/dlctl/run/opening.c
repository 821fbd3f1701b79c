#include "client/dlctl/run/opening.h"

#include <stdio.h>
#include <string.h>

static void opening_tell(void *data, uint64_t done, uint64_t all, const char *what)
{
    struct opening *opening = data;

    if (strcmp(opening->what, what) != 0) {
        progress_end(&opening->shown);
        progress_begin(&opening->shown, all, opening->quiet);
        snprintf(opening->what, sizeof opening->what, "%s", what);
    }
    if (progress_due(&opening->shown))
        progress_draw_count(&opening->shown, opening->what, done);
}

void opening_begin(struct opening *opening, struct dl_client *client, const struct options *o)
{
    *opening = (struct opening){.quiet = o->quiet || o->json};
    dl_client_set_progress(client, opening_tell, opening);
}

void opening_end(struct opening *opening)
{
    progress_end(&opening->shown);
}
