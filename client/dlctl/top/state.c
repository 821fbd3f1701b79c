#include "client/dlctl/top/state.h"

void top_state_deinit(struct top_state *state)
{
    free(state->selected);
    free(state->picked);
    *state = (struct top_state){0};
}

bool top_state_shows(const struct top_state *state, const struct top_place *at)
{
    return !state->picked || (strcmp(at->loader, state->picked) == 0 &&
                              (!state->of_uid || at->uid == state->picked_uid));
}

int top_state_row(const struct top_state *state, const struct top_model *model)
{
    for (uint32_t i = 0; model && state->selected && i < model->n_loaders; i++)
        if (model->loaders[i].at.uid == state->selected_uid &&
            strcmp(model->loaders[i].at.loader, state->selected) == 0)
            return (int)i;
    return model && model->n_loaders > 0 ? 0 : -1;
}

/* Out of memory, all stays as it is: the key can be pressed again. */
static bool take_name(const struct top_place *at, char **to, uint64_t *to_uid)
{
    char *copy = strdup(at->loader);

    if (!copy)
        return false;
    free(*to);
    *to = copy;
    *to_uid = at->uid;
    return true;
}

static void move(struct top_state *state, const struct top_model *model, int by)
{
    int row = top_state_row(state, model) + by;

    if (model && !state->picked && row >= 0 && row < (int)model->n_loaders)
        (void)take_name(&model->loaders[row].at, &state->selected, &state->selected_uid);
}

static void pick(struct top_state *state, const struct top_model *model)
{
    int row = top_state_row(state, model);

    if (row >= 0 && !state->picked)
        state->of_uid = take_name(&model->loaders[row].at, &state->picked, &state->picked_uid);
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
