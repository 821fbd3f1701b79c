"""dloaderd.Loader in a world of several nodes: two daemons that meet in a real etcd. Skipped without one."""

import os
import pathlib
import shutil
import signal
import sys
import threading
import unittest
import warnings

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "lib"), str(TESTS / "cluster")]

import stores  # noqa: E402
from dltest import Daemon, TestCase, wait_until  # noqa: E402
from tap import slow  # noqa: E402

try:
    from dloaderd import _client
    from dloaderd import Loader, SamplesLeftOutError, WorldChangedError
    HAS_CLIENT = hasattr(_client, "Loader") and bool(os.environ.get("DLOADERD"))
except ImportError:
    HAS_CLIENT = False

HAS_ETCD = bool(shutil.which("etcd")) or os.path.exists("/usr/bin/etcd")
SPEC = {"dataset": {"kind": "range", "length": 80}, "batch": {"size": 4},
        "sampler": {"kind": "random"}, "workers": {"count": 1}}


def values(batches):
    return [int(value) for batch in batches for value in batch]


@unittest.skipUnless(HAS_CLIENT and HAS_ETCD, "no client or no etcd")
class Cluster(TestCase):
    def setUp(self):
        super().setUp()
        self.store = stores.Etcd()
        self.addCleanup(self.store.stop)

    def node(self, name, least=1, most=2):
        os.makedirs(self.path(name), exist_ok=True)
        daemon = Daemon(self.path(name), {"rendezvous": {
            "backend": "etcd", "endpoint": self.store.endpoint, "id": "run", "node": name,
            "nodes": {"min": least, "max": most}, "timeouts": {"last_call": "10ms", "close": "10s"},
            "heartbeat": {"interval": "200ms", "missed": 30}}})
        self.addCleanup(self.stop, daemon)
        return daemon

    @staticmethod
    def stop(daemon):
        if daemon.process.poll() is None:
            daemon.stop()

    def loader(self, daemon, **options):
        loader = Loader(SPEC, world_size="cluster", socket=daemon.socket, as_="numpy", **options)
        self.addCleanup(loader.close)
        return loader

    @staticmethod
    def goes_on_without(node, lost):
        """Waits until the node is in a round without the lost one. When it says that this one has sent no heartbeat, it
        has not yet taken back what its trainers were given: on a busy machine these may use it meanwhile."""
        wait_until(lambda: "is complete" in node.log.partition(f"{lost} sent no heartbeat")[2],
                   f"a round without {lost}")

    def begin_both(self, loaders):
        """None of them begins before the other asks."""
        iterators = [None, None]

        def begin(i):
            iterators[i] = iter(loaders[i])
        threads = [threading.Thread(target=begin, args=[i]) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return iterators

    def test_goes_on_in_the_new_world(self):
        node = self.node("a")
        first = self.loader(node, follow=False)
        self.assertEqual((first.rank, first.world_size), (None, None))
        start = first.state_dict()
        iterator = iter(first)
        self.assertEqual((first.rank, first.world_size, len(first)), (0, 1, 20))
        got = values(next(iterator) for _ in range(6))
        second = self.loader(self.node("b"), follow=False)
        self.assertEqual(second.seed, first.seed)
        wait_until(lambda: "is over because" in node.log, "the end of the round")
        with self.assertRaises(WorldChangedError) as caught:
            for batch in iterator:
                got += values([batch])
        self.assertIn("another node wants to join", str(caught.exception))
        state = first.state_dict()
        self.assertEqual((state["world_size"], state["step"] * 4), (1, len(got)))
        for loader in (first, second):
            loader.load_state_dict(state)
        iterators = [iter(first), iter(second)]
        self.assertEqual([(loader.rank, loader.world_size) for loader in (first, second)],
                         [(0, 2), (1, 2)])
        rest = [value for each in iterators for value in values(each)]
        self.assertLessEqual(len(got) + len(rest), 84)  # the last batches are evened out
        self.assertEqual(set(got + rest), set(range(80)))
        self.assertEqual(start["epoch"], 0)

    def test_follows(self):
        """Nobody brings anybody a state, and the loop goes on."""
        node = self.node("a")
        first = self.loader(node)
        iterator = iter(first)
        got = values(next(iterator) for _ in range(3))
        other = self.node("b")
        wait_until(lambda: "with ranks" in other.log, "a round of both")
        second = self.loader(other, resume=True)
        rest = []
        for batch in second:
            rest += values([batch])
        self.assertEqual((second.rank, second.world_size, second.epoch), (1, 2, 1))
        state = first.state_dict()
        self.assertEqual((state["world_size"], state["step"]), (1, 3))
        for batch in iterator:
            got += values([batch])
            last = first.state_dict()
        self.assertEqual((first.rank, first.world_size), (0, 2))
        self.assertEqual(last["world_size"], 2)
        self.assertEqual(set(got + rest), set(range(80)))
        self.assertLessEqual(len(got + rest), 84)  # the last batches are evened out
        both = [iter(loader) for loader in (first, second)]
        self.assertEqual(sorted(value for each in both for value in values(each)), list(range(80)))

    def test_waits_for_the_world(self):
        """Before the first batch, and whenever it has changed: rank and world size, as the next loop
        has them."""
        node = self.node("a")
        first = self.loader(node, follow=False)
        self.assertEqual(first.wait_world(), (0, 1))
        iterator = iter(first)
        got = values(next(iterator) for _ in range(6))
        second = self.loader(self.node("b"), follow=False, resume=False)
        wait_until(lambda: "is over because" in node.log, "the end of the round")
        with self.assertRaises(WorldChangedError):
            for batch in iterator:
                got += values([batch])
        places = [None, None]

        def wait(i, loader):
            places[i] = loader.wait_world()
        threads = [threading.Thread(target=wait, args=[*each]) for each in enumerate((first, second))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(places, [(0, 2), (1, 2)])
        rest = [value for loader in (first, second) for value in values(loader)]
        self.assertLessEqual(len(got) + len(rest), 84)  # the last batches are evened out
        self.assertEqual(set(got + rest), set(range(80)))
        with self.assertRaisesRegex(ValueError, "wait_world"):
            Loader(SPEC, rank=0, world_size=1, socket=node.socket).wait_world()

    def test_nodes_that_begin_may_resume(self):
        """The same program runs on each node, whenever that comes."""
        nodes = [self.node("a", least=2), self.node("b", least=2)]
        loaders = [None, None]

        def make(i):
            loaders[i] = self.loader(nodes[i], resume=True)
        threads = [threading.Thread(target=make, args=[i]) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([(loader.rank, loader.world_size, loader.epoch) for loader in loaders],
                         [(0, 2, 0), (1, 2, 0)])
        self.assertEqual(sorted(value for loader in loaders for value in values(loader)),
                         list(range(80)))

    def test_follows_when_a_node_is_killed(self):
        """Its share of what is left comes to the others; nothing comes twice."""
        nodes = [self.node("a"), self.node("b")]
        wait_until(lambda: all("of 2" in node.log for node in nodes), "a round of both")
        # What a node did after its last heartbeat nobody knows; the others get all there is.
        loaders = [self.loader(node, left_out="ignore") for node in nodes]
        iterators = self.begin_both(loaders)
        self.assertEqual([loader.world_size for loader in loaders], [2, 2])
        got = [value for _ in range(3) for each in iterators for value in values([next(each)])]
        nodes[1].kill()
        self.goes_on_without(nodes[0], "b")
        for batch in iterators[0]:
            got += values([batch])
        self.assertEqual((loaders[0].rank, loaders[0].world_size), (0, 1))
        self.assertEqual(sorted(got), list(range(80)))

    @slow
    def test_left_out(self):
        """Told after the last batch; then comes the next epoch."""
        for how in ("raise", "warn"):
            with self.subTest(how):
                nodes = [self.node(f"a-{how}"), self.node(f"b-{how}")]
                wait_until(lambda nodes=nodes: all("of 2" in node.log for node in nodes), "a round of both")
                loaders = [self.loader(node, left_out=how) for node in nodes]
                iterators = self.begin_both(loaders)
                got = [value for _ in range(3) for value in values([next(iterators[0])])]
                nodes[1].kill()  # whose rank has used nothing
                self.goes_on_without(nodes[0], f"b-{how}")
                said = r"12 of its samples are not known to have been used \(rank 1 of 2 on node b"
                with (self.assertRaisesRegex(SamplesLeftOutError, said) if how == "raise" else
                      self.assertWarnsRegex(UserWarning, said)):
                    for batch in iterators[0]:
                        got += values([batch])
                self.assertEqual(len(got), 80 - 12)
                self.assertEqual(sorted(values(loaders[0])), list(range(80)))
                self.assertEqual(loaders[0].epoch, 2)
                self.stop(nodes[0])
        with self.assertRaisesRegex(ValueError, "left_out: 'never' is not one of raise, warn, ignore"):
            self.loader(nodes[0], left_out="never")

    def test_what_was_loaded_ahead_comes_again(self):
        """A trainer that ends early has not had it, and the next one goes on there."""
        node, got = self.node("a"), []
        for count in (1, 3, 5, 20):
            loader = self.loader(node, resume=True)
            iterator = iter(loader)
            self.assertEqual(loader.state_dict()["step"] * 4, len(got))
            for _, batch in zip(range(count), iterator):
                got += values([batch])  # the last one is kept
            iterator.end()
            loader.close()
        self.assertEqual(sorted(got), list(range(80)))
        with self.loader(node, resume=True) as loader:
            self.assertEqual((loader.epoch, loader.state_dict()["step"]), (1, 0))

    def test_a_node_is_killed_after_its_trainers(self):
        """What was loaded ahead for those of other nodes, which have ended too, counts for nobody."""
        nodes = [self.node("a"), self.node("b")]
        wait_until(lambda: all("of 2" in node.log for node in nodes), "a round of both")
        loaders = [self.loader(node) for node in nodes]
        iterators = self.begin_both(loaders)
        got = [value for _ in range(3) for each in iterators for value in values([next(each)])]
        for loader in loaders:
            loader.close()
        nodes[1].kill()
        wait_until(lambda: "b sent no heartbeat" in nodes[0].log, "what no trainer waits for")
        loader = self.loader(nodes[0], resume=True, left_out="ignore")
        got += values(loader)
        self.assertEqual((loader.rank, loader.world_size), (0, 1))
        self.assertEqual(sorted(got), list(range(80)))

    def test_a_rank_goes_on_from_its_state_before_the_world_changes(self):
        """It is where it was, for the other ranks too."""
        nodes = [self.node(name, most=3) for name in "ab"]
        wait_until(lambda: all("of 2" in node.log for node in nodes), "a round of both")
        loaders = [self.loader(node) for node in nodes]
        iterators = self.begin_both(loaders)
        got = [value for _ in range(2) for each in iterators for value in values([next(each)])]
        loaders[0].load_state_dict(loaders[0].state_dict())
        iterators[0].end()
        iterators[0] = iter(loaders[0])
        got += values([next(iterators[0])])
        nodes.append(self.node("c", most=3))
        wait_until(lambda: "with ranks" in nodes[2].log, "a round of three")
        parts = [[], [], []]

        def read(i):
            if i == 2:
                loaders.append(self.loader(nodes[2], resume=True))
            parts[i] = values(loaders[2] if i == 2 else iterators[i])
        threads = [threading.Thread(target=read, args=[i]) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        got += sum(parts, [])
        self.assertEqual([loader.world_size for loader in loaders], [3, 3, 3])
        self.assertEqual(set(got), set(range(80)))
        self.assertLessEqual(len(got), 88)  # the last batches are evened out

    @slow
    def test_waits_for_a_node_that_does_not_come(self):
        """Other threads run meanwhile, and Ctrl-C ends it."""
        nodes = [self.node("a", least=2), self.node("b", least=2)]
        loaders = [self.loader(node) for node in nodes]
        iterators = self.begin_both(loaders)
        got = [value for each in iterators for value in values([next(each)])]
        nodes[1].kill()
        wait_until(lambda: "b sent no heartbeat" in nodes[0].log, "what no trainer waits for")
        timer = threading.Timer(1, os.kill, [os.getpid(), signal.SIGINT])
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            for batch in iterators[0]:
                got += values([batch])
        timer.join()
        self.assertEqual(len(got), len(set(got)))
        loaders[0].close()

    def test_another_daemon(self):
        """Its rank is the same again, in as large a world: nothing has changed."""
        for follow in (False, True):
            node = self.node("a")
            loader = self.loader(node, follow=follow)
            iterator = iter(loader)
            got = values(next(iterator) for _ in range(6))
            node.kill()
            node = self.node("a")
            self.assertEqual(sorted(got + values(iterator)), list(range(80)))
            loader.close()
            node.stop()

    def test_a_daemon_comes_back_when_the_others_are_further(self):
        """Its trainer is told that the epoch is over, and goes on with the others in the next."""
        nodes = [self.node(name, least=2) for name in "ab"]
        loaders = [self.loader(node) for node in nodes]
        iterators = self.begin_both(loaders)
        got = values(next(iterators[0]) for _ in range(3)) + values(iterators[1])
        nodes[0].kill()
        nodes[0] = self.node("a", least=2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got += values(iterators[0])
        self.assertEqual(len(got), len(set(got)))
        if set(got) != set(range(80)):
            self.assertIn("epoch 0 ends early for this rank", "".join(str(one.message) for one in caught))
        both = self.begin_both(loaders)
        self.assertEqual([loader.epoch for loader in loaders], [1, 1])
        self.assertEqual(sorted(value for each in both for value in values(each)), list(range(80)))

    def test_what_is_no_world(self):
        with self.assertRaisesRegex(ValueError, "'clusters' is neither"):
            Loader(SPEC, world_size="clusters", socket="/nonexistent")
        with self.assertRaisesRegex(ValueError, "resume: 'yes' is not one of True, False, 'auto'"):
            Loader(SPEC, world_size="cluster", resume="yes", socket="/nonexistent")
        with self.assertRaises(OSError):
            iter(Loader({**SPEC, "workers": {"count": 0}}, world_size="cluster"))
