/* Python datasets in workers: dloader._worker. */
#include <Python.h>

static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_worker", .m_size = 0};

PyMODINIT_FUNC PyInit__worker(void);
PyMODINIT_FUNC PyInit__worker(void)
{
    return PyModuleDef_Init(&module);
}
