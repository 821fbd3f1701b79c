/* libdlclient for Python: dloader._client. */
#include <Python.h>

static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_client", .m_size = 0};

PyMODINIT_FUNC PyInit__client(void);
PyMODINIT_FUNC PyInit__client(void)
{
    return PyModuleDef_Init(&module);
}
