#include "tests/lib/client_sim_weights.h"

#include "proto/value.h"

/* Positions in the order of an epoch of samples; and the most changes of a game. */
enum { POSITIONS = 1000, CHANGES_MAX = 50 };

static uint32_t sim_weights_count(const struct mix_changes *list)
{
    return list ? list->n_changes : 0;
}

static uint64_t sim_weights_last(const struct mix_changes *list)
{
    return list ? list->items[list->n_changes - 1].position : 0;
}

void sim_weights_forget(struct sim_weights *w)
{
    w->list = mix_changes_unref(w->list);
    w->told = mix_changes_unref(w->told);
    for (size_t i = 0; i < SIM_TABLES_MAX; i++)
        w->tables[i] = weight_table_unref(w->tables[i]);
}

static struct weight_table **find_table(struct sim_weights *w, uint64_t sum)
{
    for (size_t i = 0; i < SIM_TABLES_MAX; i++)
        if (!w->tables[i] || w->tables[i]->sum == sum)
            return &w->tables[i];
    abort(); /* the program has fewer */
}

static void say_changed(struct sim_weights *w, struct sim *sim, uint64_t loader, sim_say *say)
{
    struct dl_buffer bytes = {0};
    struct dl_message msg = {.number = DL_MSG_CHANGED};

    SIM_ASSERT(mix_changes_write(w->list, &bytes) == 0);
    msg.changed.loader = loader;
    msg.changed.changes = (struct dl_span){bytes.data, bytes.len};
    say(&msg);
    buffer_deinit(&bytes);
}

/* INFO with the place of the last change. */
static void say_place(struct sim_weights *w, struct sim *sim, uint64_t request, sim_say *say)
{
    struct value place = {.type = VALUE_MAP};
    struct dl_buffer bytes = {0};
    struct dl_message msg = {.number = DL_MSG_INFO};

    SIM_ASSERT(value_set_uint(&place, "epoch", sim_weights_last(w->list)) == 0 &&
               value_set_uint(&place, "step", 0) == 0 && value_pack(&place, &bytes) == 0);
    w->answered = sim_weights_count(w->list);
    msg.info.request = request;
    msg.info.value = (struct dl_span){bytes.data, bytes.len};
    say(&msg);
    value_deinit(&place);
    buffer_deinit(&bytes);
}

static void replace_list(struct sim_weights *w, struct mix_changes *list)
{
    mix_changes_unref(w->list);
    w->list = list;
    w->changed++;
}

void sim_weights_change(struct sim_weights *w, struct sim *sim, uint64_t loader, sim_say *say)
{
    double weights[2] = {1, (double)(1 + w->changed % 7)};
    struct mix_change change = {.position = sim_weights_last(w->list) + 1, .weights = weights};
    struct mix_changes *list;

    if (sim_weights_count(w->list) >= CHANGES_MAX)
        return;
    SIM_ASSERT(mix_changes_with(w->list, &change, 2, &list) == 0);
    replace_list(w, list);
    say_changed(w, sim, loader, say);
}

static void change_samples(struct sim_weights *w, struct sim *sim, const struct dl_msg_weights *msg,
                           uint64_t loader, uint64_t epoch, sim_say *say)
{
    struct weight_table *table = *find_table(w, msg->sum);
    struct mix_change change = {.position =
                                    max_u64(epoch * POSITIONS, sim_weights_last(w->list)) + 1,
                                .sum = msg->sum,
                                .table = table};
    struct mix_changes *list;

    SIM_ASSERT(table); /* TABLE has brought it */
    SIM_ASSERT(mix_changes_with_table(w->list, &change, POSITIONS, &list) == 0);
    replace_list(w, list);
    say_changed(w, sim, loader, say);
    say_place(w, sim, msg->request, say);
}

bool sim_weights_take(struct sim_weights *w, struct sim *sim, const struct dl_message *msg, int fd,
                      uint64_t loader, uint64_t epoch, sim_say *say)
{
    struct dl_error err = {0};
    struct weight_table *table;

    switch (msg->number) {
    case DL_MSG_CHANGES:
        mix_changes_unref(w->told);
        SIM_ASSERT(msg->changes.loader == loader &&
                   mix_changes_read(msg->changes.changes, &w->told) == 0);
        return true;
    case DL_MSG_MIX:
        sim_weights_change(w, sim, loader, say);
        say_place(w, sim, msg->mix.request, say);
        return true;
    case DL_MSG_TABLE:
        SIM_ASSERT(weight_table_map(fd, msg->table.samples, msg->table.sum, &table, &err) == 0);
        if (*find_table(w, table->sum))
            weight_table_unref(table);
        else
            *find_table(w, table->sum) = table;
        w->brought++;
        return true;
    case DL_MSG_WEIGHTS:
        change_samples(w, sim, &msg->weights, loader, epoch, say);
        return true;
    default:
        return false;
    }
}

void sim_weights_start(struct sim_weights *w, struct sim *sim, const struct dl_msg_start *start,
                       sim_say *say)
{
    uint32_t first = 0, end;

    SIM_ASSERT(start->told || !w->told);
    if (w->told && w->told->of_samples) {
        end = mix_changes_of_epoch(w->told, start->epoch, &first);
        for (uint32_t i = first; i < end; i++)
            SIM_ASSERT(*find_table(w, w->told->items[i].sum));
    }
    if (start->told && !w->list) { /* as another daemon knows nothing yet */
        w->again += w->told != NULL;
        w->list = mix_changes_ref(w->told);
    }
    SIM_ASSERT(sim_weights_count(w->list) >= w->known);
    if (!mix_changes_equal(w->told, w->list))
        say_changed(w, sim, start->loader, say);
    w->told = mix_changes_unref(w->told);
}
