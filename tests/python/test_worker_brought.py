"""A host that is a program of the client's: it gets its connections to daemons over a channel, and
forks workers that have what it has.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from test_worker_host import (HERE, PATIENCE, W_EXITED, W_HOSTING, W_KILL, W_READY, Hosting, Worker,
                              blocked_here, gone, is_there, surroundings)


class Connection(Hosting):
    """Another daemon, to which the program's client has come."""

    def __init__(self, channel, greeted=True):
        super().__init__()
        socket.send_fds(channel, [b"\0"], [self.other.fileno()])
        self.other.close()
        if greeted:
            hello = self.receive()
            assert hello == [W_HOSTING, 1], hello


class Program:
    """Without its `streams` it has no standard ones, and its channel may have the number of one."""

    def __init__(self, *args, streams=True, at=None):
        self.channel, theirs = socket.socketpair()
        self.output, self.errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        with theirs:
            fd = theirs.fileno()

            def close_streams():
                os.closerange(0, 3)
                if at is not None:
                    os.dup2(fd, at)

            command = [sys.executable, str(HERE / "worker_host.py"), "--channel",
                       str(fd if at is None else at), *args]
            self.process = subprocess.Popen(command, env=surroundings(), stdin=subprocess.DEVNULL,
                                            stdout=self.output, stderr=self.errors, pass_fds=[fd],
                                            preexec_fn=None if streams else close_streams)

    def close(self):
        self.channel.close()
        self.process.kill()
        self.process.wait(PATIENCE)
        self.output.close()
        self.errors.close()

    def printed(self):
        return self.read(self.output)

    def complained(self):
        return self.read(self.errors)

    @staticmethod
    def read(file):
        file.seek(0)
        return file.read().decode()


class BroughtCase(unittest.TestCase):
    def program(self, *args, **how):
        program = Program(*args, **how)
        self.addCleanup(program.close)
        return program

    def connect(self, program, **how):
        daemon = Connection(program.channel, **how)
        self.addCleanup(daemon.close)
        return daemon

    def opened(self, daemon, number=1, dataset="process"):
        worker = Worker(daemon, number)
        self.addCleanup(worker.close)
        return self.open(worker, dataset)

    def open(self, worker, dataset="process"):
        answer = worker.open(dataset)
        self.assertEqual(answer[0], W_READY, answer)
        worker.map()
        return worker


class Daemons(BroughtCase):
    """Any number of daemons, one after the other."""

    def test_workers(self):
        program = self.program()
        daemon = self.connect(program)
        one, two = self.opened(daemon, 1), self.opened(daemon, 2)
        self.assertEqual((one.batch([0]), one.batch([1])), ([one.pid], [program.process.pid]))
        one.ask([5])
        self.assertEqual(daemon.receive(), [W_EXITED, 1, 7, 0])
        daemon.send(W_KILL, 2)
        self.assertEqual(daemon.receive(), [W_EXITED, 2, 0, signal.SIGKILL])
        self.assertFalse(is_there(two.pid))

    def test_the_next_one(self):
        program = self.program()
        for hangs_up in (True, False, True):
            daemon = self.connect(program)
            workers = [self.opened(daemon, n) for n in range(2)]
            self.assertEqual(workers[1].batch([0]), [workers[1].pid])
            workers[0].ask([6])
            if hangs_up:
                daemon.sock.close()
                for worker in workers:
                    self.assertTrue(gone(worker.pid))
            after = self.connect(program)  # which takes its place, gone or not
            for worker in workers:
                self.assertFalse(is_there(worker.pid))
            self.assertIsNone(program.process.poll())
            worker = self.opened(after, 0)
            self.assertEqual(worker.batch([0]), [worker.pid])

    def test_several_at_once(self):
        """The last one counts."""
        program = self.program()
        former = [self.connect(program, greeted=False) for _ in range(3)]
        daemon = self.connect(program)
        for other in former:
            while other.receive() is not None:
                pass
        self.assertEqual(len(self.opened(daemon).batch([0])), 1)

    def test_one_that_makes_no_sense(self):
        program = self.program()
        daemon = self.connect(program)
        worker = self.opened(daemon)
        daemon.send(W_READY, 0, 0, 0)
        self.assertIsNone(daemon.receive())
        self.assertTrue(gone(worker.pid))
        self.opened(self.connect(program))
        self.assertIn("dloaderd.host:", program.complained())

    def test_one_that_goes_while_a_worker_ends(self):
        """What it had not read yet makes sending fail in another way."""
        program = self.program()
        daemon = self.connect(program)
        first, second = self.opened(daemon, 1), self.opened(daemon, 2)
        first.ask([5])
        self.assertTrue(gone(first.pid))  # it is told, which nobody reads
        os.kill(program.process.pid, signal.SIGSTOP)
        os.kill(second.pid, signal.SIGKILL)
        self.assertTrue(gone(second.pid))
        daemon.sock.close()
        os.kill(program.process.pid, signal.SIGCONT)
        self.opened(self.connect(program))

    def test_the_client_ends(self):
        program = self.program()
        daemon = self.connect(program)
        workers = [self.opened(daemon, n) for n in range(3)]
        workers[0].ask([6])
        program.channel.close()
        self.assertEqual(program.process.wait(PATIENCE), 0)
        for worker in workers:
            self.assertFalse(is_there(worker.pid))

    def test_the_client_ends_before_there_is_a_daemon(self):
        program = self.program()
        program.channel.close()
        self.assertEqual(program.process.wait(PATIENCE), 0)

    def test_it_is_killed(self):
        program = self.program()
        daemon = self.connect(program)
        workers = [self.opened(daemon, n) for n in range(2)]
        workers[0].ask([6])
        program.process.kill()
        for worker in workers:
            self.assertTrue(gone(worker.pid))
        self.assertIsNone(daemon.receive())


class Surroundings(BroughtCase):
    """A worker has what the program has, and nothing of what makes it a host."""

    def kinds(self, worker):
        """Of what a worker has open, beside standard streams and the list itself: how many of each."""
        found = {fd: link.split(":")[0] for fd, link in worker.batch([2])[0] if fd > 2}
        return {kind: list(found.values()).count(kind) for kind in found.values()}

    def check_descriptors(self, worker):
        # Its socket, two bells, and what the program had opened: no connection, channel or pidfd.
        self.assertEqual(self.kinds(worker), {"socket": 1, "anon_inode": 2, "/dev/null": 1})

    def test_descriptors(self):
        daemon = self.connect(self.program())
        self.check_descriptors(self.opened(daemon, 1))
        self.check_descriptors(self.opened(daemon, 2))

    def test_descriptors_of_workers_that_are_asked_for_at_once(self):
        """When the first is forked, the host has the others' already."""
        program = self.program()
        daemon = self.connect(program)
        os.kill(program.process.pid, signal.SIGSTOP)
        workers = [Worker(daemon, number, waits=False) for number in range(3)]
        os.kill(program.process.pid, signal.SIGCONT)
        for worker in workers:
            self.addCleanup(worker.close)
            worker.await_start()
        for worker in workers:
            self.check_descriptors(self.open(worker))

    def test_without_standard_streams(self):
        """Then others have their numbers, the channel's or those that come."""
        for at in (None, 0, 1, 2):
            with self.subTest(at=at):
                program = self.program(streams=False, at=at)
                worker = self.opened(self.connect(program))
                self.assertEqual(worker.batch([0]), [worker.pid])
                worker.batch([7])
                self.assertEqual(worker.printed(), "complaint\n")

    def test_standard_error(self):
        for errors in ("gives", "keeps"):
            with self.subTest(errors):
                program = self.program(errors)
                worker = self.opened(self.connect(program))
                worker.batch([7])
                texts = worker.printed(), program.complained()
                self.assertEqual(texts, ("complaint\n", "")[::1 if errors == "gives" else -1])

    def test_nothing_is_taken_away(self):
        """It may do what the client may."""
        status = self.opened(self.connect(self.program())).batch([3])[0]
        self.assertEqual((status["NoNewPrivs"], status["SigBlk"]), ("0", blocked_here()))

    def test_signals_that_the_program_handles(self):
        """A host and its workers take them for nobody: they are for the program itself."""
        program = self.program("gives", "handles")
        daemon = self.connect(program)
        worker = self.opened(daemon)
        for pid in (program.process.pid, worker.pid):
            for number in (signal.SIGUSR1, signal.SIGHUP):
                os.kill(pid, number)
        self.assertEqual(worker.batch([0]), [worker.pid])
        other = self.opened(daemon, 2)
        other.ask([4])  # SIGTERM
        self.assertEqual(daemon.receive(), [W_EXITED, 2, 0, signal.SIGTERM])
        program.process.terminate()
        self.assertEqual(program.process.wait(PATIENCE), -signal.SIGTERM)
        self.assertTrue(gone(worker.pid))
        self.assertEqual(program.printed(), "")

    def test_children_that_the_program_does_not_wait_for(self):
        daemon = self.connect(self.program("gives", "ignores"))
        worker = self.opened(daemon, 1)
        worker.ask([5])
        self.assertEqual(daemon.receive(), [W_EXITED, 1, 7, 0])
