"""Trees that only Python datasets make, reports of their errors, and hosts that are brought: through a
daemon of the tests' own.
"""

import collections
import datetime
import errno
import gc
import io
import os
import pickle
import socket
import sys
import threading
import unittest

import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from client_case import NUMPY, RAW, TORCH, ClientCase, _client, is_mapped  # noqa: E402
from fake_ring import (BYTES_, DICT, LIST, OBJECT_NODE, STRING, TENSOR, TUPLE,  # noqa: E402
                       FakeRing, Tree)

try:
    import torch
except ImportError:
    torch = None

Point = collections.namedtuple("Point", "x y")
INT32, INT64, UINT8 = 7, 9, 2
NODES = 3
MODES = (NUMPY, RAW) + ((TORCH,) if torch else ())


class Reference:
    """Pickled as the persistent id (kind, number)."""

    def __init__(self, kind, number):
        self.id = (kind, number)


class Between:
    """Its unpickling runs `call`: code of the user's, in the middle of a batch that is made."""

    def call():
        pass

    def __reduce__(self):
        return unpickled_between, ()


def unpickled_between():
    Between.call()
    return "between"


def pickled(value):
    file = io.BytesIO()

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            return obj.id if isinstance(obj, Reference) else None

    Pickler(file, 5).dump(value)
    return file.getvalue()


def an_object(value, *tensors, tree=None, key=None):
    """A tree whose root, or next node, is `value`, which refers to the tensors (int32 lists)."""
    tree = tree or Tree()
    tree.node(OBJECT_NODE, key, children=1 + len(tensors)).text(pickled(value), BYTES_)
    for tensor in tensors:
        array = numpy.array(tensor, "int32")
        tree.tensor(INT32, array.shape, array.tobytes())
    return tree


class Objects(ClientCase):
    def next(self, tree, mode=NUMPY):
        self.addCleanup(gc.collect)
        return self.fake(tree).next(-1, mode).data

    def test_plain(self):
        values = (None, 1, 2.5, 2 ** 100, Point(1, "y"), {3: "a", (1, 2): b"b"}, {1, 2}, True,
                  datetime.date(2020, 2, 29), "x" * 20000, collections.OrderedDict(b=1, a=2))
        for value in values:
            got = self.next(an_object(value))
            self.assertEqual((type(got), got), (type(value), value))
            self.doCleanups()
            self.setUp()

    def test_among_others(self):
        tree = Tree().node(DICT, children=4).node(LIST, "list", children=2)
        tree.tensor(INT64, (2,), numpy.array([1, 2]).tobytes())
        an_object({1: 2}, tree=tree)
        tree.node(TUPLE, "pair", children=2).text("würde".encode()).text(b"\0\xff", BYTES_)
        tree.node(TUPLE, "empty").tensor(UINT8, (1,), b"\7", "last")
        got = self.next(tree)
        self.assertEqual(list(got), ["list", "pair", "empty", "last"])
        self.assertEqual((got["list"][0].tolist(), got["list"][1]), ([1, 2], {1: 2}))
        self.assertEqual((got["pair"], got["empty"], got["last"].tolist()),
                         (("würde", b"\0\xff"), (), [7]))

    def test_another_thread_meanwhile(self):
        """While a batch is made the client belongs to the thread that makes it: for another one's next() would give
        its memory back."""
        epoch = self.fake(an_object([Between(), Reference("n", 0)], [1, 2, 3]), an_object("next"))
        told = []

        def other():
            for call in (epoch.next, epoch.end, lambda: epoch.steps):
                try:
                    told.append(call())
                except RuntimeError as error:
                    told.append(str(error)[:31])

        def between():
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

        Between.call = between
        between, tensor = epoch.next(-1, NUMPY).data
        self.assertEqual(told, ["another thread uses this client"] * 3)
        self.assertEqual((between, tensor.tolist()), ("between", [1, 2, 3]))
        self.assertEqual(epoch.next().data, "next")

    def test_nodes(self):
        """In preorder, and nothing is unpickled: not even the class is there."""
        tree = Tree().node(DICT, children=3).tensor(UINT8, (1,), b"\7", "first")
        an_object(Point({"a": Reference("n", 0)}, 2), [1, 2], tree=tree, key="object")
        tree.node(TUPLE, "pair", children=2).text("würde".encode()).text(b"\0\xff", BYTES_)
        nodes = self.next(tree, NODES)
        self.assertEqual([node[:3] for node in nodes],
                         [(DICT, None, 3), (TENSOR, "first", 0), (OBJECT_NODE, "object", 2),
                          (BYTES_, None, 0), (TENSOR, None, 0), (TUPLE, "pair", 2), (STRING, None, 0),
                          (BYTES_, None, 0)])
        values = [node[3] for node in nodes]
        self.assertEqual([values[i] for i in (0, 2, 5, 6, 7)], [None, None, None, "würde", b"\0\xff"])
        self.assertEqual(numpy.frombuffer(values[4], values[4].dtype).tolist(), [1, 2])
        self.assertIn(b"Point", values[3])

    def test_damaged_text(self):
        """A name that is no UTF-8 comes as Python has such names."""
        self.assertEqual(self.next(Tree().text(b"a\xffb")), os.fsdecode(b"a\xffb"))

    def test_with_arrays(self):
        value = Point({"a": Reference("n", 0)}, [Reference("n", 1), Reference("n", 0), 5])
        for mode in MODES:
            got = self.next(an_object(value, [1, 2], [[3], [4]]), mode)
            self.assertIsInstance(got, Point)
            self.assertIsInstance(got.x["a"], numpy.ndarray)
            self.assertIs(got.x["a"], got.y[1])
            self.assertEqual((got.x["a"].tolist(), got.y[0].tolist(), got.y[2]), ([1, 2], [[3], [4]], 5))
            self.assertTrue(is_mapped(got.x["a"].ctypes.data))
            got.x["a"][0] = 9
            self.doCleanups()
            self.setUp()

    @unittest.skipUnless(torch, "torch is not here")
    def test_with_tensors(self):
        value = [Reference("t", 1), Reference("n", 0), Reference("t", 0)]
        for mode in MODES:
            got = self.next(an_object(value, [1, 2], [[3], [4]]), mode)
            self.assertIsInstance(got[0], torch.Tensor)
            self.assertIsInstance(got[1], numpy.ndarray)
            self.assertEqual([item.tolist() for item in got], [[[3], [4]], [1, 2], [1, 2]])
            self.assertTrue(is_mapped(got[0].data_ptr()))
            self.assertEqual(got[2].data_ptr(), got[1].ctypes.data)
            self.doCleanups()
            self.setUp()

    @unittest.skipUnless(torch, "torch is not here")
    def test_tensors_of_a_read_only_ring_are_copies(self):
        for mode in MODES:
            epoch = self.fake(an_object([Reference("t", 0)], [1, 2]), writable=False)
            tensor = epoch.next(-1, mode).data[0]
            self.assertFalse(is_mapped(tensor.data_ptr()))
            tensor.add_(1)
            self.doCleanups()
            self.setUp()

    def test_references_to_nothing(self):
        for reference in (Reference("n", 1), Reference("n", -1), Reference("q", 0),
                          Reference("n", "0"), Reference(1, 2)):
            with self.assertRaisesRegex(ValueError, "refers to .*which is not a tensor"):
                self.next(an_object([reference], [1]))
            self.doCleanups()
            self.setUp()

    def test_broken_pickles(self):
        for data in (b"", b"\x80\x05", b"garbage", pickled([1])[:-1]):
            tree = Tree().node(OBJECT_NODE, children=1).text(data, BYTES_)
            epoch = self.fake(tree, an_object("next"))
            with self.assertRaises((pickle.UnpicklingError, EOFError)):
                epoch.next()
            self.assertEqual(epoch.next().data, "next")
            self.doCleanups()
            self.setUp()

    def test_without_a_class(self):
        tree = Tree().node(OBJECT_NODE, children=1).text(b"cnowhere\nThing\n.", BYTES_)
        with self.assertRaises(ModuleNotFoundError):
            self.next(tree)

    def test_trees_that_are_none(self):
        """The session ends with words; nothing is read that is not there."""
        bad = Tree().node(OBJECT_NODE, children=1).tensor(UINT8, (1,), b"x")
        for tree in (bad, Tree().node(OBJECT_NODE), Tree().node(9)):
            with self.assertRaisesRegex(OSError, "tree of step 0"):
                self.next(tree)
            self.doCleanups()
            self.setUp()


class Messages(ClientCase):
    def test_step_errors(self):
        report = "builtins:KeyError\nCaught KeyError\n\tat é\n" + "x" * 60000
        epoch = self.fake((22, "dataset", "KeyError: 'x'", report), (5, "", "lost", ""),
                          an_object("after"), (110, "", "late", ""))
        with self.assertRaises(_client.StepError) as caught:
            epoch.next()
        error = caught.exception
        self.assertIsInstance(error, RuntimeError)
        self.assertEqual((error.errno, error.path, error.text, error.detail, error.step, str(error)),
                         (22, "dataset", "dataset: KeyError: 'x'", report, 0,
                          "dataset: KeyError: 'x'"))
        with self.assertRaises(_client.StepError) as caught:
            epoch.next()
        self.assertEqual((caught.exception.detail, caught.exception.step), ("", 1))
        self.assertEqual(epoch.next().data, "after")
        with self.assertRaises(_client.StepError) as caught:  # no time limit of the call's
            epoch.next()
        self.assertEqual(caught.exception.errno, 5)
        self.assertIsNone(epoch.next())
        self.assertIsNone(epoch.next())

    def test_no_daemon_to_bring_a_host_to(self):
        with self.assertRaises(_client.Error) as caught:
            _client.Client.local().bring_host(0, 1)
        self.assertEqual(caught.exception.errno, errno.ENOTSUP)

    def test_hosts_are_brought(self):
        ring = FakeRing(self.dir, [])
        self.addCleanup(ring.close)
        client = _client.Client(ring.path)
        ours, theirs = socket.socketpair()
        self.addCleanup(theirs.close)
        numbers = [7, 2 ** 64 - 1]
        with ours:
            for number in numbers:
                client.bring_host(ours.fileno(), number)
        client.open("fake")  # answered after them
        self.assertEqual([number for number, _ in ring.hosts], numbers)
        for number, daemons in ring.hosts:
            byte, (fd,), _, _ = socket.recv_fds(theirs, 1, 4)
            with socket.socket(fileno=fd) as hosts:
                daemons.sendall(b"%d" % number)
                self.assertEqual((byte, hosts.recv(99)), (b"\0", b"%d" % number))
        for fd, number, error in ((-1, 1, OSError), (2 ** 40, 1, OverflowError), (0, 0, OSError),
                                  (0, 1, OSError), (0, -1, OverflowError),
                                  (0, 2 ** 64, OverflowError), ("x", 1, TypeError),
                                  (0, 1.5, TypeError)):
            with self.assertRaises(error):
                client.bring_host(fd, number)
        client.close()
