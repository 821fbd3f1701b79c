"""How long Python workers and their hosts live, and what is left of them."""

import os
import signal

from dltest import (CLOSE, LEAVE, RETIRE, STOP, DaemonError, children_of,
                    wait_until)
from tap import slow
from test_python_host import HostCase, gone, python


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
        with self.assertRaisesRegex(DaemonError, "was closed; open it again"):
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


class Hosts(HostCase):
    """One for each loader: what becomes of it is no business of another's."""

    def stop(self, pid):
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(lambda: os.path.exists(f"/proc/{pid}") and os.kill(pid, signal.SIGCONT))

    def test_a_stopped_one_delays_no_other_loader(self):
        daemon = self.hosting()  # it would be given two minutes
        client = self.client(daemon)
        first = client.open(python("first"))["loader"]
        host, = self.host_pids(daemon)
        self.stop(host)
        loader = client.open(python("second"))["loader"]
        self.assertEqual(len(client.epoch_indices(loader)), 25)
        self.assertEqual(len(self.host_pids(daemon)), 2)
        self.assertEqual(len(client.epoch_indices(first)), 25)  # its workers need it only to start

    @slow
    def test_a_stopped_one_is_replaced(self):
        """Its own loader waits for it as long as python_timeout says."""
        daemon = self.hosting(config={"python_timeout": "5s"})
        client = self.client(daemon)
        loader = client.open(python("own", workers={"count": 1}))["loader"]
        client.start(loader, credits=1)
        batch = client.next_batches()[0]
        (host,), (worker,) = self.host_pids(daemon), self.pids(client)
        self.stop(host)
        os.kill(worker, signal.SIGKILL)
        steps = [batch.step]
        while batch:
            batch.release()
            batch = next(iter(client.next_batches()), None)
            steps += [batch.step] if batch else []
        self.assertEqual(steps, list(range(25)))
        self.assertIn("was killed: it did not end a worker within 5 s", daemon.log)
        wait_until(lambda: gone([host, worker]), "the dead to be gone")

    def test_a_stopped_one_without_workers(self):
        daemon = self.hosting(config={"python_timeout": "5s"})
        client = self.client(daemon)
        loader = client.open(python("first"))["loader"]
        pids, (host,) = self.pids(client), self.host_pids(daemon)
        client.send(CLOSE, loader)
        wait_until(lambda: gone(pids), "the workers to end")
        self.stop(host)
        loader = client.open(python("second"))["loader"]
        self.assertEqual(len(client.epoch_indices(loader)), 25)
        self.assertIn("was killed: it did not start a worker within", daemon.log)

    def test_one_without_workers_serves_the_next(self):
        daemon = self.hosting()
        client = self.client(daemon)
        hosts = set()
        for name in ("first", "second"):
            loader = client.open(python(name))["loader"]
            pids = self.pids(client)
            hosts.update(self.host_pids(daemon))
            client.send(CLOSE, loader)
            wait_until(lambda gone_too=tuple(pids): gone(gone_too), "the workers to end")
        self.assertEqual(len(hosts), 1)


class Sessions(HostCase):
    def test_processes_have_their_own(self):
        """A signal to its process group reaches nobody else."""
        daemon = self.hosting()
        client = self.client(daemon)
        client.open(python("hosted"))
        client.open({"name": "native", "dataset": {"kind": "range", "length": 9},
                     "workers": {"count": 2}})
        pids = daemon.workers
        sessions = [os.getsid(pid) for pid in pids]
        self.assertEqual(len(pids), 3)  # a host, and two workers
        self.assertEqual(sessions, pids)
