"""The object that travels to the workers: dataset, collate_fn, worker_init_fn, in a sealed memfd.

Layout, all numbers u64 in the machine's byte order, parts aligned to 64 bytes:

    magic | bytes of meta | bytes of pickle | number of buffers | for each: offset, bytes
    meta: a pickle of {"main", "environ", "iterable"}, which is needed before the other can be read
    the pickle (protocol 5) of the object | its out-of-band buffers

Arrays and CPU tensors are buffers: a worker maps the file MAP_PRIVATE, and they are views of the
mapping, writable, and shared with all other workers until they are written. Long lists of plain
values become a PackedList. np.memmap arrays travel as the name of their file. Tensors over one
storage are over one storage again. Shared memory is not shared any further: a worker that writes to
a tensor after share_memory_() writes to its own copy.
"""

from __future__ import annotations

import fcntl
import io
import mmap
import os
import pickle
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

from ._errors import PayloadError
from ._packed import PACK_FROM, PackedList, pack

try:
    import cloudpickle
    _Base: Any = cloudpickle.Pickler
except ImportError:
    cloudpickle = None
    _Base = pickle.Pickler

MAGIC = b"DLOBJ\0\0\1"
ALIGN = 64
_LOCKS = {type(threading.Lock()): "Lock", type(threading.RLock()): "RLock"}


# ---- what is pickled in another way ------------------------------------------------------------

class _Storage:
    """The memory under one or more tensors, pickled once, as bytes."""

    def __init__(self, flat: Any) -> None:
        self.flat = flat

    def __reduce__(self) -> tuple:
        return _flat_tensor, (pickle.PickleBuffer(self.flat.numpy()),)


def _flat_tensor(buffer: Any) -> Any:
    import torch
    if memoryview(buffer).nbytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(buffer, dtype=torch.uint8)


def _tensor(flat: Any, dtype: Any, offset: int, size: tuple, stride: tuple, grad: bool) -> Any:
    typed = flat.view(dtype).as_strided(size, stride, offset)
    return typed.requires_grad_() if grad else typed


def _generator(state: bytes) -> Any:
    import torch
    generator = torch.Generator()
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return generator


def _mapped(name: str, dtype: Any, mode: str, offset: int, shape: tuple) -> Any:
    import numpy as np
    return np.memmap(name, dtype=dtype, mode=mode, offset=offset, shape=shape)


def _strided(buffer: Any, dtype: Any, offset: int, shape: tuple, strides: tuple) -> Any:
    import numpy as np
    return np.ndarray(shape, dtype, buffer=buffer, offset=offset, strides=strides)


def _lock(kind: str) -> Any:
    return getattr(threading, kind)()


def _reduce_memmap(array: Any, np: Any) -> tuple | None:
    """A contiguous view of a mapped file: which part of which file; None: no such thing."""
    base = array
    while base is not None and not isinstance(base, np.memmap):
        base = getattr(base, "base", None)
    if base is None or base._mmap is None or base.filename is None or array.size == 0:
        return None
    if base.mode == "c" or not array.flags.c_contiguous or array.dtype.hasobject:
        return None
    start = np.frombuffer(base._mmap, dtype=np.uint8)
    within = array.ctypes.data - start.ctypes.data
    if not 0 <= within <= start.nbytes - array.nbytes:
        return None
    # np.memmap maps from the page that its offset lies in, and hands its offset on to its views.
    offset = base.offset - base.offset % mmap.ALLOCATIONGRANULARITY + within
    mode = "r" if base.mode == "r" else "r+"
    return _mapped, (str(base.filename), array.dtype, mode, offset, array.shape)


def _reduce_strided(array: Any) -> tuple | None:
    """An array with gaps, or that runs backwards, stays so; None: pickle does as well."""
    if array.flags.contiguous or array.flags.f_contiguous or array.dtype.hasobject:
        return None
    if array.size == 0 or array.dtype.names is not None:
        return None
    reaches = [stride * (n - 1) for stride, n in zip(array.strides, array.shape)]
    before = -sum(reach for reach in reaches if reach < 0)
    size = sum(map(abs, reaches)) + array.itemsize
    if size > 4 * array.nbytes:
        return None
    import numpy as np
    # From its lowest byte on: a view that runs the other way wherever this one runs backwards.
    flipped = array[tuple(slice(None, None, -1 if s < 0 else 1) for s in array.strides)]
    raw = np.lib.stride_tricks.as_strided(flipped.view(np.ndarray), shape=(1,) * array.ndim)
    span = np.frombuffer(bytearray(_bytes_at(raw, size)), dtype=np.uint8)
    return _strided, (span, array.dtype, before, array.shape, array.strides)


def _bytes_at(array: Any, size: int) -> bytes:
    """`size` bytes from where `array` begins; the caller knows that they are there."""
    import ctypes
    return ctypes.string_at(array.ctypes.data, size)


def _reduce_tensor(tensor: Any, torch: Any, storages: dict) -> tuple | None:
    """A plain CPU tensor over its storage's bytes; None: pickle knows better."""
    if (type(tensor) is not torch.Tensor or tensor.device.type != "cpu"
            or tensor.layout != torch.strided or not tensor.is_leaf or tensor.is_quantized
            or tensor.is_conj() or tensor.is_neg() or tensor.__dict__):
        return None
    plain = tensor.detach()
    storage = plain.untyped_storage() if hasattr(plain, "untyped_storage") else plain.storage()
    n = storage.nbytes() // plain.element_size()
    key = (storage.data_ptr(), n * plain.element_size())
    if key not in storages:
        storages[key] = _Storage(plain.as_strided((n,), (1,), 0).view(torch.uint8))
    return _tensor, (storages[key], plain.dtype, plain.storage_offset(), tuple(plain.size()),
                     plain.stride(), tensor.requires_grad)


class _Pickler(_Base):
    def __init__(self, file: io.BytesIO, buffers: list) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self._lists: dict[int, tuple[list, tuple | None]] = {}
        self._storages: dict = {}

    def persistent_id(self, obj: Any) -> tuple | None:
        if type(obj) is not list or len(obj) < PACK_FROM:
            return None
        known = self._lists.get(id(obj))
        if known is None:
            column = pack(obj)
            known = obj, None if column is None else (len(obj), column)
            self._lists[id(obj)] = known
        return known[1]

    def reducer_override(self, obj: Any) -> Any:
        reduced = None
        torch, np = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None and isinstance(obj, torch.Tensor):
            reduced = _reduce_tensor(obj, torch, self._storages)
        elif np is not None and isinstance(obj, np.ndarray):
            if type(obj) in (np.ndarray, np.memmap):
                reduced = _reduce_memmap(obj, np) or _reduce_strided(obj)
        elif torch is not None and type(obj) is torch.Generator and obj.device.type == "cpu":
            reduced = _generator, (obj.get_state().numpy().tobytes(),)
        elif type(obj) in _LOCKS:
            reduced = _lock, (_LOCKS[type(obj)],)
        if reduced is not None:
            return reduced
        return super().reducer_override(obj) if cloudpickle is not None else NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, buffers: list) -> None:
        super().__init__(file, buffers=buffers)
        self._lists: dict[int, tuple[tuple, PackedList]] = {}

    def persistent_load(self, pid: tuple) -> PackedList:
        # The same tuple stands for the same list; it is kept, so that its id stays its own.
        if id(pid) not in self._lists:
            self._lists[id(pid)] = pid, PackedList(*pid)
        return self._lists[id(pid)][1]


# ---- what cannot be pickled --------------------------------------------------------------------

def _dumps(obj: Any) -> tuple[bytes, list]:
    file, buffers = io.BytesIO(), []
    _Pickler(file, buffers).dump(obj)
    return file.getbuffer(), buffers


def _parts(obj: Any) -> list[tuple[str, Any]]:
    if isinstance(obj, dict):
        return [(f"[{key!r}]", value) for key, value in list(obj.items())[:64]]
    if isinstance(obj, (list, tuple)):
        return [(f"[{at}]", value) for at, value in enumerate(obj[:64])]
    return [(f".{name}", value) for name, value in getattr(obj, "__dict__", {}).items()]


def _culprit(obj: Any, path: str, depth: int = 6) -> tuple[str, Any]:
    """Follows what cannot be pickled down to the smallest thing that has a name."""
    for name, value in _parts(obj) if depth else []:
        try:
            _dumps(value)
        except Exception:
            return _culprit(value, path + name, depth - 1)
    return path, obj


def _refusal(obj: dict, error: BaseException) -> PayloadError:
    for name in ("dataset", "collate_fn", "worker_init_fn", *obj):
        try:
            _dumps(obj.get(name))
        except Exception as part_error:
            path, value = _culprit(obj[name], name)
            error = part_error
            break
    else:
        path, value = "the dataset", obj
    remedy = "make it in __getitem__ or in worker_init_fn, or leave it out by __getstate__"
    if cloudpickle is None and (callable(value) or "<locals>" in str(error)):
        remedy = "install cloudpickle, which can, or define it at the top level of a module"
    return PayloadError(f"{path} ({type(value).__name__}) cannot be sent to the workers: "
                        f"{type(error).__name__}: {error}; {remedy}")


# ---- the user's main module --------------------------------------------------------------------

def _preparation(needs_main: bool) -> dict[str, Any]:
    """What multiprocessing.spawn.prepare() makes a process of the user's from."""
    data: dict[str, Any] = {"name": "DataLoader worker", "sys_path": list(sys.path),
                            "sys_argv": list(sys.argv)}
    if "" in data["sys_path"] or "." in data["sys_path"]:
        data["sys_path"] = [part if part not in ("", ".") else os.getcwd()
                            for part in data["sys_path"]]
    try:
        data["dir"] = os.getcwd()
    except OSError:
        pass
    if not needs_main:
        return data
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    path = getattr(main, "__file__", None)
    if name is not None:
        data["init_main_from_name"] = name
    elif path is not None:
        data["init_main_from_path"] = os.path.abspath(path)
    else:
        raise PayloadError("what is defined in an interactive session or by python -c cannot be "
                           "sent to the workers; install cloudpickle, which can, or move it to a "
                           "module")
    return data


# ---- the file ----------------------------------------------------------------------------------

def _aligned(offset: int) -> int:
    return (offset + ALIGN - 1) // ALIGN * ALIGN


def _write(fd: int, data: Any, offset: int) -> int:
    view = memoryview(data)
    done = 0
    while done < view.nbytes:
        done += os.pwrite(fd, view[done:], offset + done)
    return offset + done


def _fill(fd: int, meta: bytes, body: Any, buffers: list) -> None:
    raws = [buffer.raw() for buffer in buffers]
    header = len(MAGIC) + 24 + 16 * len(raws)
    at = _aligned(_aligned(header + len(meta)) + len(body))
    places = []
    for raw in raws:
        places += [at, raw.nbytes]
        at = _aligned(at + raw.nbytes)
    os.ftruncate(fd, max(at, 1))
    numbers = struct.pack(f"={3 + len(places)}Q", len(meta), len(body), len(raws), *places)
    end = _write(fd, MAGIC + numbers + meta, 0)
    _write(fd, body, _aligned(end))
    for raw, offset in zip(raws, places[::2]):
        _write(fd, raw, offset)


def dump(obj: dict[str, Any], iterable: bool = False) -> int:
    """Puts {"dataset", "collate_fn", "worker_init_fn"} into a sealed memfd, and returns that.

    The descriptor is the caller's, close-on-exec. PayloadError: something in it cannot be pickled;
    the text says where it is and what helps. OSError: no memory.
    """
    try:
        body, buffers = _dumps(obj)
    except (KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:
        raise _refusal(obj, error) from error
    needs_main = b"__main__" in bytes(body) if cloudpickle is None else False
    meta = pickle.dumps({"main": _preparation(needs_main), "environ": dict(os.environ),
                         "iterable": iterable}, protocol=5)
    fd = os.memfd_create("dloader-object", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        _fill(fd, meta, body, buffers)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
                    | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _sections(memory: memoryview) -> tuple[memoryview, memoryview, list[memoryview]]:
    def part(offset: int, size: int) -> memoryview:
        if offset + size > memory.nbytes:
            raise PayloadError("the object is cut short: it was not made by this version of dloader")
        return memory[offset:offset + size]

    if memory[:len(MAGIC)] != MAGIC:
        raise PayloadError("the object does not begin as one of this version of dloader")
    meta, body, n = struct.unpack_from("=3Q", part(len(MAGIC), 24))
    table = len(MAGIC) + 24
    places = struct.unpack(f"={2 * n}Q", part(table, 16 * n))
    at = table + 16 * n
    pickled = part(_aligned(at + meta), body)
    buffers = [part(offset, size) for offset, size in zip(places[::2], places[1::2])]
    return part(at, meta), pickled, buffers


def load(fd: int, prepare: Callable[[dict], None] | None = None) -> dict[str, Any]:
    """What dump() was given, with "main", "environ" and "iterable" besides.

    prepare: called with these three before the rest is unpickled, which may need them. The fd stays
    the caller's, and is not needed any more; the arrays hold the mapping.
    """
    size = os.fstat(fd).st_size
    if size < len(MAGIC) + 24:
        raise PayloadError(f"an object of {size} bytes is none")
    memory = memoryview(mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE,
                                  prot=mmap.PROT_READ | mmap.PROT_WRITE))
    meta_part, body, buffers = _sections(memory)
    meta = pickle.loads(meta_part)
    if prepare is not None:
        prepare(meta)
    obj = _Unpickler(io.BytesIO(body), buffers).load()
    return {**meta, **obj}
