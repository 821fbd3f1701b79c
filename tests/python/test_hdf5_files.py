"""HDF5 that h5py writes, read in this process by dloaderd itself and by libhdf5: value by value what was written."""

import ctypes
import os
import sys
import unittest

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib")]
from test_kinds import KindCase, needs  # noqa: E402


def has_libhdf5():
    for name in ("libhdf5_serial.so.310", "libhdf5_serial.so.103"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


needs_libhdf5 = unittest.skipUnless(has_libhdf5(), "libhdf5 is not installed (Debian: libhdf5-103-1)")


class Files(KindCase):
    @needs("h5py")
    def test_h5py(self):
        """Random arrays, in one piece and in chunks, by each filter, with the oldest layouts and the newest; groups,
        rows that were never written, files that grew, user blocks. By libhdf5: the newest in chunks, and big-endian.
        """
        import h5py
        rng = numpy.random.default_rng(11)
        dtypes = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "?"]
        for seed in range(60):
            rows, arrays, by_libhdf5 = int(rng.integers(1, 60)), {}, seed % 3 == 1 and has_libhdf5()
            path = self.folder / f"{seed}.h5"
            with h5py.File(path, "w", libver="latest" if seed % 5 == 4 else "earliest",
                           userblock_size=seed % 4 * 512 if seed % 4 != 3 else 0) as file:
                for k in range(int(rng.integers(1, 12))):
                    name = f"{'group/deeper/' if k % 3 == 2 else ''}array{k}"
                    shape = (rows, *rng.integers(1, 9, size=rng.integers(0, 4)))
                    values = (rng.random(shape) * 100).astype(dtypes[int(rng.integers(len(dtypes)))])
                    values = values.astype(values.dtype.newbyteorder(">")) if by_libhdf5 and k % 2 else values
                    keys = {}
                    if (seed % 5 != 4 or by_libhdf5) and k % 4:
                        keys = {"chunks": tuple(int(rng.integers(1, n + 1)) for n in shape),
                                "maxshape": (None, *shape[1:]), "compression": [None, "gzip"][k % 2],
                                "shuffle": bool(k % 4 == 3), "fletcher32": bool(k % 3 == 1),
                                "fillvalue": values.dtype.type(k % 2)}
                    array = file.create_dataset(name, shape, values.dtype, **keys)
                    if keys and k % 5 == 3:  # half of it is never written
                        values[rows // 2:] = values.dtype.type(k % 2)
                        array[:rows // 2] = values[:rows // 2]
                    else:
                        array[...] = values
                    arrays[name] = values
            fields = {name.replace("/", "_"): name for name in arrays}
            read = self.samples({"kind": "hdf5", "paths": str(path), "fields": fields, "cache": 1 + seed % 3 * 200})
            self.assertEqual(len(read), rows)
            for i, batch in enumerate(read):
                for field, name in fields.items():
                    self.assertEqual(batch[field].dtype, arrays[name].dtype.newbyteorder("="))
                    numpy.testing.assert_array_equal(batch[field][0], arrays[name][i], f"{seed} {name} {i}")

    @needs_libhdf5
    @needs("h5py")
    def test_h5py_text(self):
        """One a row, of any length or filled up, also in a compound, beside numbers."""
        import h5py
        texts = ["", "a", "\u00e4\U0001f600", "two words", "x" * 300, " blank "] * 3
        path = str(self.folder / "text.h5")
        with h5py.File(path, "w") as file:
            file["any"] = texts
            file.create_dataset("chunked", data=texts, chunks=(4,), maxshape=(None,), compression="gzip")
            file["filled"] = numpy.array([text.encode() for text in texts])
            file.create_dataset("unwritten", (len(texts),), h5py.string_dtype())
            table = numpy.zeros(len(texts), [("name", "S9"), ("at", ">f8", (2,))])
            table["name"], table["at"] = [text.encode()[:9] for text in texts], numpy.arange(36).reshape(18, 2)
            file["table"] = table
            file["yes"], file["plain"] = numpy.arange(18) % 3 == 1, numpy.arange(18)
            file["latin"] = numpy.array([b"\xe4"] * 18)
        fields = {"any": "any", "chunked": "chunked", "filled": "filled", "unwritten": "unwritten", "yes": "yes",
                  "name": "table/name", "at": "table/at", "plain": "plain"}
        read = self.samples({"kind": "hdf5", "paths": path, "fields": fields})
        self.assertEqual(len(read), len(texts))
        for i, (batch, text) in enumerate(zip(read, texts)):
            got = {name: batch[name][0] for name in fields}
            self.assertEqual([got[name] for name in ("any", "chunked", "filled", "unwritten", "name")],
                             [text, text, text, "", text.encode()[:9].decode()])
            self.assertEqual((got["at"].tolist(), bool(got["yes"]), int(got["plain"])),
                             ([2 * i, 2 * i + 1], i % 3 == 1, i))
        self.assert_refused({"kind": "hdf5", "paths": path, "fields": ["latin"]}, "a text in row 0 that is not UTF-8")

    @needs("h5py")
    def test_h5py_refusals(self):
        import h5py
        path = str(self.folder / "bad.h5")
        with h5py.File(path, "w", libver="earliest") as file:
            file["texts"] = [["a", "b"]]
            file["scalar"] = 3
            file["three"], file["four"] = numpy.zeros(3), numpy.zeros(4)
            file.create_group("group")
        dataset = {"kind": "hdf5", "paths": path}
        for fields, says in ((["texts"], "its dataset texts (does not hold integers|holds neither numbers nor)"),
                             (["scalar"], "has no dimensions"),
                             (["group"], "its dataset group is not a dataset"), (["none"], "has no dataset none"),
                             (["three", "four"], "its dataset three has 3 rows, but four has 4")):
            self.assert_refused({**dataset, "fields": fields}, says)
