"""A rank of a cluster's world, in the bytes of the protocol, and what it is told when that changes."""

import errno
import mmap
import os
import struct

from dltest import (DELIVER, ERROR, FAULT, FINISHED, PLACE, POSITION, START, STARTED, STOP, Batch,
                    DaemonError)

LENGTH, BATCH = 1920, 10
CLOSED = 1 << 63  # proto/position.h
RESUME = 2**64 - 1  # DL_RESUME: the epoch, and the step, that the daemons know
SPEC = {"dataset": {"kind": "range", "length": LENGTH}, "batch": {"size": BATCH},
        "sampler": {"kind": "random"}}


class Over(Exception):
    """The world has changed; `at_once`: what was delivered and not used is not to be used."""

    def __init__(self, fault):
        super().__init__(fault[6])
        self.code, self.path, self.message, self.at_once = fault[3], fault[5], fault[6], fault[8]


class Trainer:
    """One rank of a node. `counts`: in memory that it shares with the daemon it says how far it is, as
    libdlclient does; `former`: of a rank whose daemon was another, its rank and world then."""

    def __init__(self, case, daemon, local, spec=None, credits=0, counts=False, former=(0, 0)):
        self.client = case.client(daemon)
        self.local = local
        self.credits = credits
        self.counts, self.former, self.position_memory = counts, former, None
        self.opened = self.client.open(spec or SPEC)
        self.samples = []
        self.epoch = 0
        self.ended = False
        self.left_out = ""  # of the epoch, as it was told at its end
        self.reset()

    def reset(self):
        self.before = []
        self.position = 0
        self.stream = None
        self.ahead = []

    def start(self):
        """In two halves: none of the nodes goes on before all have come."""
        if self.counts:
            self.client.send(PLACE, self.opened["loader"], *self.former)
        self.client.requests += 1
        history = b"".join(struct.pack("<QQ", *stretch) for stretch in self.before)
        self.client.send(START, self.client.requests, self.opened["loader"], self.epoch, self.local,
                         0, 0, self.credits, history, "")
        return self

    def started(self):
        message = self.client.recv_number(STARTED, ERROR, *([POSITION] if self.counts else []))
        if message[0] == POSITION:
            fd = self.client.fds.pop(0)
            self.position_memory = mmap.mmap(fd, message[2])
            os.close(fd)
            message = self.client.recv_number(STARTED)
        if message[0] == ERROR:
            raise DaemonError(*message[2:])
        keys = "request stream steps samples epoch first rank world before".split()
        self.stream = dict(zip(keys, message[1:]))
        self.before = list(struct.iter_unpack("<QQ", self.stream["before"]))
        self.epoch, self.position = self.stream["epoch"], self.stream["first"]
        self.former = self.stream["rank"], self.stream["world"]
        return self.stream

    def receive(self):
        """More of what is delivered; False at the end."""
        message = self.client.recv_number(DELIVER, FINISHED, FAULT)
        if message[0] == FAULT and message[3] == errno.ENOTRECOVERABLE:
            self.left_out = message[6]
        elif message[0] == FAULT:
            over = Over(message)
            while self.ahead and not over.at_once:
                self.use()
            self.leave()
            raise over
        raw = message[2] if message[0] == DELIVER else b""
        self.ahead += [Batch(self.client, message[1], raw[i:i + 48])
                       for i in range(0, len(raw), 48)]
        return message[0] == DELIVER

    def leave(self):
        """What lies ahead goes back after the stream has stopped: it was not used."""
        self.client.send(STOP, self.stream["stream"])
        for batch in self.ahead:
            batch.release()
        self.ahead = []
        if self.position:
            self.before.append((self.stream["world"], self.position))
        self.stream = None

    def use(self):
        batch = self.ahead.pop(0)
        if self.position_memory:
            struct.pack_into("<Q", self.position_memory, 0, self.position + 1)
        self.samples += batch.indices[:batch.samples - batch.repeated]
        batch.release()
        self.position += 1

    def counted(self):
        """The steps that it has used, as the daemon sees them."""
        return struct.unpack_from("<Q", self.position_memory)[0] & ~CLOSED

    def is_closed(self):
        """It may use no more of them."""
        return bool(struct.unpack_from("<Q", self.position_memory)[0] & CLOSED)

    def use_on(self):
        """The next batch is in use, and so not released yet."""
        while not self.ahead:
            self.receive()
        struct.pack_into("<Q", self.position_memory, 0, self.position + 1)

    def take(self, steps=None):
        """So many steps, or all that are left; False at the end."""
        while steps is None or steps > 0:
            if not self.ahead and not self.receive():
                self.client.send(STOP, self.stream["stream"])
                self.ended = True
                return False
            self.use()
            steps = steps and steps - 1
        return True

    def told_over(self):
        """What it is told when the world has changed, after all that is still to be done in it."""
        try:
            assert self.take(), "the epoch was at its end"
        except Over as over:
            return over

    def told_at_once(self):
        """Likewise, where nothing more is to be done, not even of what was delivered to the end."""
        while True:
            try:
                self.receive()
            except Over as over:
                assert over.at_once
                return over

    def finish(self):
        """The epoch, through as many worlds as it takes; all nodes are there."""
        while True:
            try:
                if not self.stream:
                    self.start().started()
                self.take()
                return
            except Over:
                pass

    def next_epoch(self):
        self.reset()
        self.epoch += 1
        self.ended = False
        self.samples = []
        return self
