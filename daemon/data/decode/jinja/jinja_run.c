#include "daemon/data/decode/jinja/jinja_tree.h"

#include "proto/common/array.h"

#include <stdarg.h>
#include <stdio.h>

/* What a statement says about those behind it. */
enum jinja_flow { JINJA_ERROR = -1, JINJA_GO_ON, JINJA_LEAVE, JINJA_NEXT };

static enum jinja_flow jinja_do(struct jinja_run *run, const struct jinja_node *node);

/* ---- errors and memory ---------------------------------------------------------------------- */

json_t *jinja_fail(struct jinja_run *run, const struct jinja_node *node, const char *fmt, ...)
{
    char words[JINJA_WHY_MAX];
    va_list args;

    if (run->error)
        return NULL;
    va_start(args, fmt);
    vsnprintf(words, sizeof words, fmt, args);
    va_end(args);
    run->error = -EINVAL;
    if (node)
        snprintf(run->why, JINJA_WHY_MAX, "line %u of the template: %.*s", node->line,
                 JINJA_WHY_MAX - 40, words);
    else
        snprintf(run->why, JINJA_WHY_MAX, "%s", words);
    return NULL;
}

json_t *jinja_give_up(struct jinja_run *run, int error)
{
    if (!run->error)
        run->error = error;
    return NULL;
}

json_t *jinja_keep(struct jinja_run *run, json_t *value)
{
    if (!value || !array_reserve(run->kept, run->kept_room, run->kept_n + 1)) {
        json_decref(value);
        return jinja_give_up(run, -ENOMEM);
    }
    run->kept[run->kept_n++] = value;
    return run->bytes > JINJA_BYTES_MAX ? jinja_give_up(run, -E2BIG) : value;
}

bool jinja_is_not_safe(struct jinja_run *run, const struct jinja_node *node, const json_t *value)
{
    for (size_t i = 0; i < run->safe_n; i++)
        if (run->safe[i] == value)
            return jinja_fail(run, node,
                              "a text of the filter safe is supported where it is written, tested "
                              "or joined alone") != NULL;
    return true;
}

json_t *jinja_text(struct jinja_run *run, const char *text, size_t n)
{
    run->bytes += n;
    return jinja_keep(run, json_stringn_nocheck(n > 0 ? text : "", n));
}

json_t *jinja_take(struct jinja_run *run, struct growing_bytes *bytes)
{
    json_t *ret =
        run->error ? NULL : jinja_text(run, bytes->data ? (char *)bytes->data : "", bytes->n);

    free(bytes->data);
    *bytes = (struct growing_bytes){0};
    return ret;
}

bool jinja_append(struct jinja_run *run, json_t *list, json_t *value)
{
    if (!value)
        return false;
    if (++run->steps > JINJA_STEPS_MAX)
        return jinja_give_up(run, -ELOOP) != NULL;
    if (json_array_append(list, value) < 0)
        return jinja_give_up(run, -ENOMEM) != NULL;
    return true;
}

bool jinja_enter(struct jinja_run *run, const struct jinja_node *node)
{
    if (run->error)
        return false;
    if (++run->steps > JINJA_STEPS_MAX || run->bytes > JINJA_BYTES_MAX)
        return jinja_give_up(run, run->bytes > JINJA_BYTES_MAX ? -E2BIG : -ELOOP) != NULL;
    if (run->depth >= JINJA_DEPTH_MAX)
        return jinja_fail(run, node, "it is nested too deep, or a macro calls itself without end");
    run->depth++;
    return true;
}

/* ---- names ---------------------------------------------------------------------------------- */

static struct jinja_binding *jinja_find_in(const struct jinja_run *run, const char *name,
                                           size_t from, size_t to)
{
    for (size_t i = to; i > from; i--)
        if (run->bindings[i - 1].name == name)
            return &run->bindings[i - 1];
    return NULL;
}

struct jinja_binding *jinja_find(const struct jinja_run *run, const char *name)
{
    struct jinja_binding *found = jinja_find_in(run, name, run->base, run->n);

    return found || run->base == 0 ? found : jinja_find_in(run, name, 0, run->top);
}

bool jinja_bind(struct jinja_run *run, const struct jinja_binding *binding)
{
    struct jinja_binding *found = jinja_find_in(run, binding->name, run->frame, run->n);

    if (found) {
        *found = *binding;
        return true;
    }
    if (!array_reserve(run->bindings, run->room, run->n + 1))
        return jinja_give_up(run, -ENOMEM) != NULL;
    run->bindings[run->n++] = *binding;
    if (run->frame == 0)
        run->top = run->n;
    return true;
}

bool jinja_bind_value(struct jinja_run *run, const char *name, json_t *value)
{
    return value && jinja_bind(run, &(struct jinja_binding){
                                        .name = name, .kind = JINJA_IS_VALUE, .value = value});
}

/* One value for one name; for several names, the items of a list. */
bool jinja_bind_targets(struct jinja_run *run, const struct jinja_node *targets, json_t *value)
{
    size_t n = 0, i = 0;

    if (!targets->next)
        return jinja_bind_value(run, targets->name, value);
    for (const struct jinja_node *name = targets; name; name = name->next)
        n++;
    if (!json_is_array(value) || json_array_size(value) != n)
        return jinja_fail(run, targets, "there are not %zu values for as many names", n) != NULL;
    for (const struct jinja_node *name = targets; name; name = name->next)
        if (!jinja_bind_value(run, name->name, json_array_get(value, i++)))
            return false;
    return true;
}

/* ---- statements ----------------------------------------------------------------------------- */

json_t *jinja_capture(struct jinja_run *run, const struct jinja_node *body)
{
    struct growing_bytes text = {0}, *to = run->to;

    run->to = &text;
    (void)jinja_do(run, body);
    run->to = to;
    return jinja_take(run, &text);
}

/* What was written to the text itself since `from`, not inside a macro or a block of set. */
static bool jinja_note(struct jinja_run *run, struct jinja_spans *spans, size_t from, size_t item)
{
    if (run->to != &run->render->text)
        return true;
    if (!array_reserve(spans->list, spans->room, spans->n + 1))
        return jinja_give_up(run, -ENOMEM) != NULL;
    spans->list[spans->n++] = (struct jinja_span){from, run->to->n, item};
    return true;
}

static bool jinja_note_item(struct jinja_run *run, const json_t *item, size_t from)
{
    const json_t *watch = run->render->watch;

    for (size_t i = 0; run->to->n > from && i < json_array_size(watch); i++)
        if (json_array_get(watch, i) == item)
            return jinja_note(run, &run->render->items, from, i);
    return true;
}

/* The items for which the condition of a loop holds. */
static json_t *jinja_where(struct jinja_run *run, const struct jinja_node *node, json_t *items)
{
    json_t *ret = jinja_keep(run, json_array()), *value;
    size_t n = run->n, frame = run->frame;

    for (size_t i = 0; ret && i < json_array_size(items); i++) {
        json_t *item = json_array_get(items, i);
        run->frame = n;
        bool good = jinja_bind_targets(run, node->list, item) &&
                    (value = jinja_evaluate(run, node->d)) &&
                    (!jinja_is_true(value) || jinja_append(run, ret, item));
        run->n = n;
        run->frame = frame;
        if (!good)
            return NULL;
    }
    return ret;
}

/* *ret_whole: whether one of them came to its end, without break or continue. */
static enum jinja_flow jinja_loop_turns(struct jinja_run *run, const struct jinja_node *node,
                                        struct jinja_loop *loop, const char *name, bool *ret_whole)
{
    size_t n = run->n, frame = run->frame, size = json_array_size(loop->items);
    enum jinja_flow flow = JINJA_GO_ON;

    for (loop->i = 0; loop->i < size && flow != JINJA_LEAVE && flow != JINJA_ERROR; loop->i++) {
        json_t *item = json_array_get(loop->items, loop->i);
        const struct jinja_binding binding = {.name = name, .kind = JINJA_IS_LOOP, .loop = loop};
        size_t from = run->to->n;
        run->frame = n;
        flow = (!name || jinja_bind(run, &binding)) && jinja_bind_targets(run, node->list, item)
                   ? jinja_do(run, node->b)
                   : JINJA_ERROR;
        *ret_whole = *ret_whole || flow == JINJA_GO_ON;
        if (flow != JINJA_ERROR && !jinja_note_item(run, item, from))
            flow = JINJA_ERROR;
        run->n = n;
        run->frame = frame;
    }
    return flow == JINJA_ERROR ? flow : JINJA_GO_ON;
}

/* The name "loop", if the template has it. */
static const char *jinja_loop_name(const struct jinja *jinja)
{
    for (const struct jinja_name *name = jinja->names; name; name = name->next)
        if (strcmp(name->text, "loop") == 0)
            return name->text;
    return NULL;
}

static enum jinja_flow jinja_do_for(struct jinja_run *run, const struct jinja_node *node)
{
    json_t *over = jinja_evaluate(run, node->a);
    struct jinja_loop loop = {.items = over ? jinja_iterate(run, node, over) : NULL};
    enum jinja_flow flow;
    bool whole = false;

    if (loop.items && node->d)
        loop.items = jinja_where(run, node, loop.items);
    if (!loop.items)
        return JINJA_ERROR;
    loop.depth = ++run->loops;
    flow = jinja_loop_turns(run, node, &loop, jinja_loop_name(run->jinja), &whole);
    run->loops--;
    /* As jinja2 does it: also behind turns of which none came to its end. */
    return flow == JINJA_GO_ON && !whole ? jinja_do(run, node->c) : flow;
}

static bool jinja_do_set(struct jinja_run *run, const struct jinja_node *node)
{
    bool space = node->a && node->a->op == JINJA_CALL && !node->attribute &&
                 strcmp(node->a->name, "namespace") == 0;
    json_t *value = space     ? jinja_namespace(run, node->a)
                    : node->a ? jinja_evaluate(run, node->a)
                              : jinja_capture(run, node->b);
    struct jinja_binding *found;

    if (!value)
        return false;
    if (space)
        return jinja_bind(run, &(struct jinja_binding){.name = node->list->name,
                                                       .kind = JINJA_IS_NAMESPACE,
                                                       .value = value});
    if (!node->attribute)
        return jinja_bind_targets(run, node->list, value);
    found = jinja_find(run, node->list->name);
    if (!found || found->kind != JINJA_IS_NAMESPACE)
        return jinja_fail(run, node, "%s is not a namespace", node->list->name) != NULL;
    return json_object_set_nocheck(found->value, node->attribute, value) == 0 ||
           jinja_give_up(run, -ENOMEM);
}

static bool jinja_do_generation(struct jinja_run *run, const struct jinja_node *node)
{
    size_t from = run->to->n, n = run->n, frame = run->frame;
    bool good;

    run->frame = n; /* what is set in it is its own */
    good =
        jinja_do(run, node->b) != JINJA_ERROR && jinja_note(run, &run->render->generation, from, 0);
    run->n = n;
    run->frame = frame;
    return good;
}

static bool jinja_do_write(struct jinja_run *run, const struct jinja_node *node)
{
    json_t *value = jinja_evaluate(run, node->a);

    return value && jinja_write(run, node, run->to, value);
}

static enum jinja_flow jinja_do_one(struct jinja_run *run, const struct jinja_node *node)
{
    json_t *value;
    bool good;

    switch (node->op) {
    case JINJA_WRITE:
        good = jinja_do_write(run, node);
        break;
    case JINJA_IF:
        value = jinja_evaluate(run, node->a);
        return value ? jinja_do(run, jinja_is_true(value) ? node->b : node->c) : JINJA_ERROR;
    case JINJA_FOR:
        return jinja_do_for(run, node);
    case JINJA_SET:
        good = jinja_do_set(run, node);
        break;
    case JINJA_MACRO:
        good = jinja_bind(run, &(struct jinja_binding){
                                   .name = node->name, .kind = JINJA_IS_MACRO, .macro = node});
        break;
    case JINJA_GENERATION:
        good = jinja_do_generation(run, node);
        break;
    default:
        return node->op == JINJA_BREAK ? JINJA_LEAVE : JINJA_NEXT;
    }
    return good ? JINJA_GO_ON : JINJA_ERROR;
}

static enum jinja_flow jinja_do(struct jinja_run *run, const struct jinja_node *node)
{
    enum jinja_flow flow = JINJA_GO_ON;

    for (; node && flow == JINJA_GO_ON; node = node->next) {
        if (!jinja_enter(run, node))
            return JINJA_ERROR;
        flow = jinja_do_one(run, node);
        run->depth--;
    }
    return flow;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Variables that the template names. */
static bool jinja_bind_variables(struct jinja_run *run)
{
    for (const struct jinja_name *name = run->jinja->names; name; name = name->next) {
        json_t *value = json_object_get(run->render->variables, name->text);
        if (value && !jinja_bind_value(run, name->text, value))
            return false;
    }
    return true;
}

int jinja_render(const struct jinja *jinja, struct jinja_render *render, char *why)
{
    struct jinja_run run = {.jinja = jinja, .render = render, .to = &render->text};

    run.why = why;
    render->text.n = render->generation.n = render->items.n = 0;
    if (jinja->renderer)
        return jinja->renderer->render(jinja->renderer, render, why);
    if (jinja_bind_variables(&run))
        (void)jinja_do(&run, jinja->root);
    while (run.kept_n > 0)
        json_decref(run.kept[--run.kept_n]);
    free(run.kept);
    free(run.safe);
    free(run.bindings);
    return run.error;
}

bool jinja_lacks(const char *why)
{
    /* As all of them are worded; what a template itself raises has no line before it. */
    return strncmp(why, "line ", 5) == 0 && strstr(why, " support");
}

void jinja_render_deinit(struct jinja_render *render)
{
    free(render->text.data);
    free(render->generation.list);
    free(render->items.list);
}
