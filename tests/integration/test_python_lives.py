"""How long Python workers and their hosts live, and what is left of them."""

import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from dltest import (CLOSE, LEAVE, RETIRE, STOP, DaemonError, children_of, main,  # noqa: E402
                    wait_until)
from test_python_host import HostCase, gone, python  # noqa: E402


class Lives(HostCase):
    def test_a_private_one_passes_on_what_workers_say(self):
        ours, theirs = os.pipe()
        daemon = self.daemon(args=("--private", "--stderr", str(theirs)), wait=False,
                             pass_fds=[theirs])
        os.close(theirs)
        with open(ours) as said:
            client = self.connect(daemon)
            spec = python("said", {"mode": "exit3", "at": 1}, workers={"count": 1})
            spec["dataset"]["interpreter"] = self.link()
            client.start(client.open(spec)["loader"])
            self.assertEqual([said.readline(), said.readline()], ["out of\n", "cheese\n"])
            client.close()

    def test_leases_keep_no_workers(self):
        """LEAVE: what is leased needs memory only, and that stays as it was."""
        client = self.client(self.daemon())
        host = self.bring(client, 7)
        loader = client.open(python("left", dataset={"kind": "python", "host": 7}))["loader"]
        stream = client.start(loader, credits=1)["stream"]
        batch = client.next_batches()[0]
        before = bytes(batch.slot)
        client.send(STOP, stream)
        client.send(LEAVE, loader)
        pids = children_of(host.pid)
        wait_until(lambda: gone(pids), "the workers to end")
        self.assertEqual(bytes(batch.slot), before)
        self.assertEqual([client.query(view) for view in ("loaders", "workers")], [[], []])
        with self.assertRaisesRegex(DaemonError, "was left; open it again"):
            client.start(loader)
        batch.release()
        client.recv_number(RETIRE)
        client.send(CLOSE, loader)

    def test_who_leaves_takes_nothing_from_others(self):
        daemon = self.hosting()
        one, two = self.client(daemon), self.client(daemon)
        loader = one.open(python("shared"))["loader"]
        other = two.open("shared")["loader"]
        one.start(loader)
        batch = one.next_batches()[0]
        one.send(LEAVE, loader)
        before, pids = bytes(batch.slot), self.pids(two)
        self.assertEqual(len(two.epoch_indices(other)), 25)
        self.assertEqual((self.pids(two), bytes(batch.slot)), (pids, before))
        two.send(CLOSE, other)  # no linger: the lease keeps the memory, and the workers go
        wait_until(lambda: gone(pids), "the workers to end")
        self.assertEqual(bytes(batch.slot), before)
        one.close()
        self.assertEqual(len(two.epoch_indices(two.open(python("shared"))["loader"])), 25)

    def test_a_worker_that_is_killed_while_idle(self):
        client = self.client(self.hosting())
        loader = client.open(python("idle", workers={"count": 1, "retries": 0}))["loader"]
        stream = client.start(loader, credits=1)["stream"]
        batch = client.next_batches()[0]
        pid, = self.pids(client)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.pids(client) != [pid], "another worker")
        batch.release()
        self.assertRegex(self.fault(client)["message"], rf"^step 1 .*\(pid {pid}\) was killed")
        self.assertEqual(client.next_batches()[0].step, 2)  # once is enough
        client.send(STOP, stream)


if __name__ == "__main__":
    main()
