#include "daemon/worker/python/picture_draws.h"

#include <math.h>

enum {
    CALL_UNIFORM,
    CALL_INTEGER,
    CALL_PERMUTATION,
    CALL_NORMALS,
    CALL_CHOICE,
    CALL_CHOSEN,
    CALL_SHUFFLED,
    CALL_PERSPECTIVE,
};

void picture_draws_release(struct picture_draws *draws)
{
    draws->released = PyEval_SaveThread();
}

void picture_draws_take_back(struct picture_draws *draws)
{
    PyEval_RestoreThread(steal_ptr(draws->released));
}

/* With the GIL, until picture_draws_end(). Takes over `args`. NULL: it failed, now or before. */
static PyObject *picture_draws_call(struct picture_draws *p, unsigned call, PyObject *args)
{
    PyObject *result = NULL;

    if (args && !p->failed)
        result = PyObject_CallObject(PyTuple_GetItem(p->calls, call), args);
    Py_XDECREF(args);
    p->failed = p->failed || !result;
    return result;
}

static struct picture_draws *picture_draws_begin(struct draws *d)
{
    struct picture_draws *p = container_of(d, struct picture_draws, base);

    picture_draws_take_back(p);
    return p;
}

static void picture_draws_end(struct picture_draws *p, PyObject *result)
{
    Py_XDECREF(result);
    p->failed = p->failed || PyErr_Occurred();
    picture_draws_release(p);
}

static float picture_draws_uniform(struct draws *d, double low, double high)
{
    struct picture_draws *p = picture_draws_begin(d);
    PyObject *result = picture_draws_call(p, CALL_UNIFORM, Py_BuildValue("(dd)", low, high));
    double n = result ? PyFloat_AsDouble(result) : low;

    picture_draws_end(p, result);
    return n >= low && n <= high ? (float)n : (float)low;
}

static int64_t picture_draws_integer(struct draws *d, int64_t low, int64_t high)
{
    struct picture_draws *p = picture_draws_begin(d);
    PyObject *result =
        picture_draws_call(p, CALL_INTEGER, Py_BuildValue("(LL)", (long long)low, (long long)high));
    int64_t n = result ? PyLong_AsLongLong(result) : low;

    picture_draws_end(p, result);
    return n >= low && n < high ? n : low;
}

static void picture_draws_order(struct draws *d, unsigned call, uint32_t n, uint32_t *ret)
{
    struct picture_draws *p = picture_draws_begin(d);
    PyObject *result = picture_draws_call(p, call, Py_BuildValue("(I)", n));
    bool whole = result && PyList_CheckExact(result) && PyList_Size(result) == (Py_ssize_t)n;

    for (uint32_t i = 0; i < n; i++) {
        long at = whole ? PyLong_AsLong(PyList_GetItem(result, (Py_ssize_t)i)) : -1;
        ret[i] = at >= 0 && at < (long)n ? (uint32_t)at : i;
    }
    picture_draws_end(p, result);
}

static void picture_draws_permutation(struct draws *d, uint32_t n, uint32_t *ret)
{
    picture_draws_order(d, CALL_PERMUTATION, n, ret);
}

static void picture_draws_shuffled(struct draws *d, uint32_t n, uint32_t *ret)
{
    picture_draws_order(d, CALL_SHUFFLED, n, ret);
}

static void picture_draws_normals(struct draws *d, size_t n, float *ret)
{
    struct picture_draws *p = picture_draws_begin(d);
    PyObject *result = picture_draws_call(p, CALL_NORMALS, Py_BuildValue("(n)", (Py_ssize_t)n));

    if (result && PyBytes_CheckExact(result) && (size_t)PyBytes_Size(result) == n * sizeof *ret)
        memcpy(ret, PyBytes_AsString(result), n * sizeof *ret);
    else
        memset(ret, 0, n * sizeof *ret);
    picture_draws_end(p, result);
}

/* Of float32, which a float64 of Python's holds exactly, or of float64. */
static PyObject *picture_draws_list(uint32_t n, const float *singles, const double *doubles)
{
    PyObject *list = PyList_New((Py_ssize_t)n);

    for (uint32_t i = 0; list && i < n; i++) {
        PyObject *number = PyFloat_FromDouble(singles ? (double)singles[i] : doubles[i]);
        if (!number || PyList_SetItem(list, (Py_ssize_t)i, number) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *picture_draws_weights(uint32_t n, const float *weights)
{
    PyObject *list = picture_draws_list(n, weights, NULL);

    return list ? Py_BuildValue("(N)", list) : NULL;
}

static uint32_t picture_draws_choice(struct draws *d, uint32_t n, const float *weights)
{
    struct picture_draws *p = picture_draws_begin(d);
    PyObject *result = picture_draws_call(p, CALL_CHOICE, picture_draws_weights(n, weights));
    long chosen = result ? PyLong_AsLong(result) : 0;

    picture_draws_end(p, result);
    return chosen >= 0 && chosen < (long)n ? (uint32_t)chosen : 0;
}

static uint32_t picture_draws_chosen(struct draws *d, uint32_t n, const double *weights)
{
    struct picture_draws *p = picture_draws_begin(d);
    PyObject *list = weights ? picture_draws_list(n, NULL, weights) : Py_None;

    if (!weights)
        Py_INCREF(list);
    PyObject *result =
        picture_draws_call(p, CALL_CHOSEN, list ? Py_BuildValue("(IN)", n, list) : NULL);
    long chosen = result ? PyLong_AsLong(result) : 0;
    picture_draws_end(p, result);
    return chosen >= 0 && chosen < (long)n ? (uint32_t)chosen : 0;
}

/* No transform that Python has C do draws so: AugMix works on tensors there. */
static void picture_draws_dirichlet(struct draws *d, uint32_t n, double alpha, float *ret)
{
    (void)d;
    (void)alpha;
    for (uint32_t i = 0; i < n; i++)
        ret[i] = 1.0F / (float)n;
}

/* Four corners as eight numbers: x, y, x, ... */
static bool picture_draws_perspective(struct draws *d, const double from[static 4][2],
                                      const double to[static 4][2], double ret[static 8])
{
    struct picture_draws *p = picture_draws_begin(d);
    PyObject *corners[2] = {picture_draws_list(8, NULL, from[0]),
                            picture_draws_list(8, NULL, to[0])};
    PyObject *args = PyTuple_Pack(2, corners[0], corners[1]);
    PyObject *result = picture_draws_call(p, CALL_PERSPECTIVE, args);
    bool whole = result && PyList_CheckExact(result) && PyList_Size(result) == 8;

    for (int i = 0; i < 8; i++)
        ret[i] = whole ? PyFloat_AsDouble(PyList_GetItem(result, i)) : 0;
    Py_XDECREF(corners[0]);
    Py_XDECREF(corners[1]);
    picture_draws_end(p, result);
    for (int i = 0; i < 8; i++)
        whole = whole && isfinite(ret[i]);
    return whole;
}

int picture_draws_init(struct picture_draws *draws, PyObject *calls)
{
    static const struct draws_ops ops = {
        .uniform = picture_draws_uniform,
        .integer = picture_draws_integer,
        .permutation = picture_draws_permutation,
        .normals = picture_draws_normals,
        .choice = picture_draws_choice,
        .dirichlet = picture_draws_dirichlet,
        .chosen = picture_draws_chosen,
        .shuffled = picture_draws_shuffled,
        .perspective = picture_draws_perspective,
    };

    if (!PyTuple_CheckExact(calls) || PyTuple_Size(calls) != PICTURE_DRAWS_CALLS) {
        PyErr_Format(PyExc_TypeError, "draws are a tuple of %d functions", PICTURE_DRAWS_CALLS);
        return -1;
    }
    *draws = (struct picture_draws){.base.ops = &ops, .calls = calls};
    return 0;
}
