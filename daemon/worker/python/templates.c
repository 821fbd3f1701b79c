#include "daemon/worker/python/templates.h"

#include "daemon/data/decode/tokenizer/chat_file.h"
#include "daemon/worker/python/report.h"
#include "proto/common/array.h"
#include "proto/yaml.h"

#include <errno.h>
#include <stdio.h>

struct python_template {
    struct jinja_renderer base;
    PyObject *object; /* owned; a dloaderd._jinja2.Template */
};

/* What Python says, in `why`. */
static int templates_fail(char *why)
{
    struct report report;

    report_take(NULL, NULL, &report);
    int r = report.code == ENOMEM ? -ENOMEM : -EINVAL;
    snprintf(why, JINJA_WHY_MAX, "%s", report_brief(&report));
    report_deinit(&report);
    return r;
}

/* -1 with an exception. */
static int templates_read_spans(PyObject *list, struct jinja_spans *ret)
{
    Py_ssize_t n = PyList_Size(list);

    if (n < 0)
        return -1;
    if (!array_reserve(ret->list, ret->room, (size_t)n)) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_ssize_t from, to, item;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "nnn", &from, &to, &item))
            return -1;
        ret->list[i] = (struct jinja_span){(size_t)from, (size_t)to, (size_t)item};
    }
    ret->n = (size_t)n;
    return 0;
}

/* The same. */
static int templates_read(PyObject *made, struct jinja_render *render)
{
    PyObject *blocks, *items;
    const char *text;
    Py_ssize_t n;

    if (!PyArg_ParseTuple(made, "y#OO", &text, &n, &blocks, &items) ||
        templates_read_spans(blocks, &render->generation) < 0 ||
        templates_read_spans(items, &render->items) < 0)
        return -1;
    if (growing_bytes_add(&render->text, text, (size_t)n) == 0)
        return 0;
    PyErr_NoMemory();
    return -1;
}

static int templates_render(const struct jinja_renderer *base, struct jinja_render *render,
                            char *why)
{
    const struct python_template *t = container_of(base, struct python_template, base);
    _cleanup_free_ char *variables = json_dumps(render->variables, JSON_COMPACT);

    if (!variables)
        return -ENOMEM;
    _cleanup_py_ PyObject *made =
        PyObject_CallMethod(t->object, "render", "sz", variables, render->date);
    return made && templates_read(made, render) == 0 ? 0 : templates_fail(why);
}

static void templates_free(struct jinja_renderer *base)
{
    struct python_template *t = container_of(base, struct python_template, base);

    Py_DECREF(t->object);
    free(t);
}

int templates_open(const char *text, size_t n, struct jinja **ret, char *why)
{
    _cleanup_py_ PyObject *module = PyImport_ImportModule("dloaderd._jinja2");
    _cleanup_py_ PyObject *object =
        module ? PyObject_CallMethod(module, "Template", "s#", text, (Py_ssize_t)n) : NULL;
    _cleanup_py_ PyObject *generation =
        object ? PyObject_GetAttrString(object, "generation") : NULL;
    struct python_template *t;

    if (!generation)
        return templates_fail(why);
    if (!(t = calloc(1, sizeof *t)))
        return -ENOMEM;
    t->base = (struct jinja_renderer){
        .generation = generation == Py_True, .render = templates_render, .free = templates_free};
    t->object = Py_NewRef(object);
    return jinja_of(&t->base, ret);
}

/* ---- which are rendered so ------------------------------------------------------------------- */

const char templates_told_text[] = "chat_templates(text, base) -> [(file, why), ...] of a spec's "
                                   "chat templates; why: what of it C\n"
                                   "does not render, so that jinja2 does; None: C renders it. "
                                   "ValueError: no template, or no spec.";

/* -1 with an exception. */
static int templates_tell(const struct spec_dataset *dataset, PyObject *list)
{
    const struct data_env env = {0};
    struct dl_error err = {0};
    json_t *variables = NULL;
    struct jinja *jinja = NULL;

    for (uint32_t i = 0; i < dataset->n_datasets; i++)
        if (templates_tell(&dataset->datasets[i], list) < 0)
            return -1;
    if (!spec_chat_has_file(dataset->chat))
        return 0;
    if (chat_file_read(dataset, "dataset", &env, &jinja, &variables, &err) < 0 &&
        err.code != ENOSYS) {
        PyErr_Format(PyExc_ValueError, "%s: %s", err.path, err.message);
        return -1;
    }
    jinja_free(jinja);
    json_decref(variables);
    _cleanup_py_ PyObject *row =
        Py_BuildValue("(sz)", dataset->chat_template, err.code ? err.message : NULL);
    return row ? PyList_Append(list, row) : -1;
}

PyObject *templates_told(PyObject *module, PyObject *args)
{
    _cleanup_(value_deinit) struct value value = {0};
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    struct dl_error err = {0};
    const char *text, *base;
    Py_ssize_t len;

    if (!PyArg_ParseTuple(args, "s#s:chat_templates", &text, &len, &base))
        return NULL;
    if (yaml_parse(text, (size_t)len, "spec", &value, &err) < 0 ||
        spec_from_value(&value, base, &spec, &err) < 0)
        return PyErr_Format(PyExc_ValueError, "%s: %s", err.path, err.message);
    PyObject *list = PyList_New(0);
    if (list && templates_tell(&spec.dataset, list) < 0)
        Py_CLEAR(list);
    return list;
}
