"""What each backend does, whatever the store is: cases for a class that says how to open one."""

import threading
import unittest

import stores


class Case(unittest.TestCase):
    def probe(self, **settings):
        probe = stores.Probe(**settings)
        self.addCleanup(lambda: self.assertEqual(probe.close(), 0))
        return probe

    def assert_won(self, answer):
        """Of a set; the text of an error is none."""
        self.assertIs(answer[0], True, answer)


class Table:
    def open(self):
        """A Probe at the store."""
        raise NotImplementedError

    def setUp(self):
        super().setUp()
        self.key = self.id()
        self.backend = self.open()

    # What PyTorch's backends promise, too.

    def test_get_of_nothing(self):
        self.assertEqual(self.backend.get(self.key), (False, 0, ""))

    def test_get_gives_what_was_set(self):
        won, token, value = self.backend.set(self.key, 0, "one")
        self.assertTrue(won)
        self.assertEqual(value, "one")
        self.assertEqual(self.backend.get(self.key), (False, token, "one"))

    def test_set_if_nothing_is_there(self):
        self.assert_won(self.backend.set(self.key, 0, "one"))
        won, token, value = self.backend.set(self.key, 0, "two")
        self.assertEqual((won, value), (False, "one"))
        self.assertGreater(token, 0)

    def test_set_with_the_token(self):
        _, token, _ = self.backend.set(self.key, 0, "one")
        won, later, value = self.backend.set(self.key, token, "two")
        self.assertEqual((won, value), (True, "two"))
        self.assertNotEqual(token, later)
        self.assertEqual(self.backend.get(self.key), (False, later, "two"))

    def test_set_with_an_old_token(self):
        _, old, _ = self.backend.set(self.key, 0, "one")
        _, token, _ = self.backend.set(self.key, old, "two")
        self.assertEqual(self.backend.set(self.key, old, "three"), (False, token, "two"))

    def test_keys_that_are_listed(self):
        """Those that were put under the prefix, of all nodes, until they are dropped."""
        other = self.open()
        asked, prefix = f"{self.key}.head", f"{self.key}/"
        self.assertEqual(self.backend.list(prefix, asked), ({}, ""))
        self.assertEqual(self.backend.put(f"{prefix}b", asked, "two"), (False, 0, ""))
        _, token, _ = self.backend.set(asked, 0, "head")
        self.assertEqual(other.put(f"{prefix}a", asked, "one"), (False, token, "head"))
        self.assertEqual(self.backend.list(prefix, asked), ({"a": "one", "b": "two"}, "head"))
        self.backend.put(f"{prefix}b", asked, "three")
        self.backend.put(f"{self.key}0", asked, "beside it")
        self.assertEqual(other.list(prefix, asked), ({"a": "one", "b": "three"}, "head"))
        other.drop(f"{prefix}b")
        other.drop(f"{prefix}c")
        self.assertEqual(self.backend.list(prefix, asked), ({"a": "one"}, "head"))
        self.backend.put(f"{prefix}b", asked, "four")
        self.assertEqual(other.list(prefix, asked), ({"a": "one", "b": "four"}, "head"))

    def test_keys_of_many(self):
        """Put by several at once, none is lost."""
        prefix = f"{self.key}/"
        backends = [self.backend, *(self.open() for _ in range(3))]
        calls = [(backend, backend.begin(f"put {prefix}{i}.{k} {self.key}.head {i}"))
                 for k in range(16) for i, backend in enumerate(backends)]
        for backend, call in calls:
            backend.end(call)
        self.assertEqual(self.backend.list(prefix, f"{self.key}.head"),
                         ({f"{i}.{k}": str(i) for i in range(4) for k in range(16)}, ""))

    def test_set_with_no_token_of_it(self):
        _, token, _ = self.backend.set(self.key, 0, "one")
        self.assertEqual(self.backend.set(self.key, 999999999, "two"), (False, token, "one"))

    def test_set_of_what_is_gone(self):
        self.assertEqual(self.backend.set(self.key, 5, "one"), (False, 0, ""))

    def test_tokens_are_of_all_nodes(self):
        other = self.open()
        _, token, _ = self.backend.set(self.key, 0, "one")
        self.assert_won(other.set(self.key, token, "two"))
        self.assertEqual(self.backend.get(self.key)[2], "two")

    def test_who_wins_counts(self):
        """Four add one at a time to the same number: none is lost."""
        probes = [self.open() for _ in range(4)]

        def count(number, probe):
            done = 0
            _, token, value = probe.get(self.key)
            while done < 15:
                now = int(value.split(".")[0]) if value else 0
                # No two write the same: a node tells its own write by the bytes.
                won, token, value = probe.set(self.key, token, f"{now + 1}.{number}")
                done += won

        threads = [threading.Thread(target=count, args=args) for args in enumerate(probes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.backend.get(self.key)[2].split(".")[0], "60")

    def test_a_large_value(self):
        value = "x" * 60000
        self.assert_won(self.backend.set(self.key, 0, value))
        self.assertEqual(self.backend.get(self.key)[2], value)

    def test_many_at_once(self):
        calls = [self.backend.begin(f"set {self.key}.{i} 0 {i}") for i in range(50)]
        for call in calls:
            self.assert_won(self.backend.end(call))

    def test_ends_with_calls_under_way(self):
        for i in range(20):
            self.backend.say(f"get {self.key}.{i}")
