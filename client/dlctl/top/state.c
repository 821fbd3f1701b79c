#include "client/dlctl/top/state.h"

void top_state_deinit(struct top_state *state)
{
    free(state->selected);
    free(state->picked);
    *state = (struct top_state){0};
}

int top_state_row(const struct top_state *state, const struct top_model *model)
{
    for (uint32_t i = 0; model && state->selected && i < model->n_loaders; i++)
        if (strcmp(model->loaders[i].at.loader, state->selected) == 0)
            return (int)i;
    return model && model->n_loaders > 0 ? 0 : -1;
}

/* Out of memory, all stays as it is: the key can be pressed again. */
static void take_name(char **to, const char *name)
{
    char *copy = strdup(name);

    if (!copy)
        return;
    free(*to);
    *to = copy;
}

static void move(struct top_state *state, const struct top_model *model, int by)
{
    int row = top_state_row(state, model) + by;

    if (model && !state->picked && row >= 0 && row < (int)model->n_loaders)
        take_name(&state->selected, model->loaders[row].at.loader);
}

static void pick(struct top_state *state, const struct top_model *model)
{
    int row = top_state_row(state, model);

    if (row >= 0 && !state->picked)
        take_name(&state->picked, model->loaders[row].at.loader);
}

static void escape(struct top_state *state)
{
    if (state->help)
        state->help = false;
    else
        freep(&state->picked);
}

/* The keys that sort by one figure. */
static bool sort_key(struct top_state *state, int key)
{
    static const char keys[TOP_SORTS + 1] = "nbwcme";
    const char *at = key > 0 && key < 0x80 ? strchr(keys, key) : NULL;

    if (!at)
        return false;
    state->sort = (enum top_sort)(at - keys);
    return true;
}

bool top_state_key(struct top_state *state, const struct top_model *model, int key)
{
    switch (key) {
    case 'q':
    case 'Q':
        state->quit = true;
        return true;
    case 'h':
    case '?':
        state->help = !state->help;
        return true;
    case 'p':
    case ' ':
        state->paused = !state->paused;
        return true;
    case 's':
        state->sort = (enum top_sort)((state->sort + 1) % TOP_SORTS);
        return true;
    case 'r':
        state->reverse = !state->reverse;
        return true;
    case TOP_KEY_UP:
    case 'k':
        move(state, model, -1);
        return true;
    case TOP_KEY_DOWN:
    case 'j':
        move(state, model, 1);
        return true;
    case TOP_KEY_ENTER:
        pick(state, model);
        return true;
    case TOP_KEY_ESCAPE:
        escape(state);
        return true;
    default:
        return sort_key(state, key);
    }
}
