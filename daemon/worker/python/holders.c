#include "daemon/worker/python/holders.h"

/* Of a tensor, of its memory, and of torch's object that stands for that; `theirs`: the memory may
 * be somebody else's, too. */
struct holders {
    long tensor, memory, object, weak;
    int theirs;
};

static struct holders_torch {
    PyObject *weak;       /* weakref.getweakrefcount */
    PyObject *of_storage; /* torch._C._storage_Use_Count */
    struct holders alone; /* a tensor that nobody else has */
    bool asked;
    bool known; /* this torch counts all that have one */
} holders_torch;

/* -1: an exception. Takes over `number`. */
static long holders_number(PyObject *number)
{
    long n = number ? PyLong_AsLong(number) : -1;

    Py_XDECREF(number);
    return n;
}

static bool holders_count(PyObject *tensor, struct holders *ret)
{
    const struct holders_torch *torch = &holders_torch;
    _cleanup_py_ PyObject *storage = PyObject_CallMethod(tensor, "untyped_storage", NULL);
    _cleanup_py_ PyObject *door = storage ? PyObject_GetAttrString(storage, "_cdata") : NULL;
    _cleanup_py_ PyObject *own = door ? PyObject_CallMethod(storage, "resizable", NULL) : NULL;

    if (!own)
        return false;
    *ret = (struct holders){
        .tensor = holders_number(PyObject_CallMethod(tensor, "_use_count", NULL)),
        .memory = holders_number(PyObject_CallFunctionObjArgs(torch->of_storage, door, NULL)),
        .object = (long)Py_REFCNT(storage),
        .weak = holders_number(PyObject_CallFunctionObjArgs(torch->weak, tensor, NULL)),
        .theirs = PyObject_Not(own)};
    return !PyErr_Occurred();
}

/* Whether a second tensor over the memory counts. */
static bool holders_learn(struct holders_torch *torch)
{
    _cleanup_py_ PyObject *weakref = PyImport_ImportModule("weakref");
    _cleanup_py_ PyObject *module = weakref ? PyImport_ImportModule("torch") : NULL;
    _cleanup_py_ PyObject *inner = module ? PyObject_GetAttrString(module, "_C") : NULL;
    _cleanup_py_ PyObject *tensor = inner ? PyObject_CallMethod(module, "empty", "i", 1) : NULL;
    struct holders shared;

    torch->weak = tensor ? PyObject_GetAttrString(weakref, "getweakrefcount") : NULL;
    torch->of_storage = torch->weak ? PyObject_GetAttrString(inner, "_storage_Use_Count") : NULL;
    if (!torch->of_storage || !holders_count(tensor, &torch->alone))
        return false;
    _cleanup_py_ PyObject *other = PyObject_CallMethod(tensor, "detach", NULL);
    return other && holders_count(tensor, &shared) && shared.memory > torch->alone.memory &&
           torch->alone.weak == 0 && !torch->alone.theirs;
}

bool holders_are_none(PyObject *tensor)
{
    struct holders_torch *torch = &holders_torch;
    struct holders found;

    if (!torch->asked) {
        torch->asked = true;
        torch->known = holders_learn(torch);
    }
    bool none = torch->known && Py_REFCNT(tensor) == 1 && holders_count(tensor, &found) &&
                found.tensor == torch->alone.tensor && found.memory == torch->alone.memory &&
                found.object == torch->alone.object && found.weak == 0 && !found.theirs;
    PyErr_Clear();
    return none;
}
