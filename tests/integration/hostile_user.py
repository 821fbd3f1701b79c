"""One attack of a hostile user on a daemon, for so many seconds, and longer until so much was done and so much
refused; prints what came of it as JSON.

    hostile_user.py SOCKET ATTACK SECONDS [DONE REFUSED]

Only what a client may send, or could: a user who may connect can do all of this.
"""

import array
import contextlib
import json
import os
import select
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from dltest import (CLOSE, DATASET_STATE, ERROR, FAULT, FEED, HELLO, HOST, OPEN, PATIENCE, QUERY, START,  # noqa: E402
                    STARTED, STOP, DaemonError, RawClient, pack)

RANGE = {"dataset": {"kind": "range", "length": 1000}, "batch": {"size": 8}, "seed": 1, "workers": {"count": 1}}
GONE = (OSError, TypeError, AssertionError)  # dropped, or refused as a connection


def large_spec(workers, indices=35000):
    return json.dumps({**RANGE, "name": "large", "dataset": {"kind": "range", "length": 100000},
                       "workers": {"count": workers},
                       "sampler": {"kind": "indices", "indices": list(range(indices))}})


def frame(*message):
    payload = pack(list(message))
    return struct.pack("<I", len(payload)) + payload


class Attack:
    least = 0, 0  # to be done, and to be refused, however long it takes

    def __init__(self, path, seconds):
        self.path, self.end = path, time.monotonic() + seconds
        self.done = self.refused = 0
        self.codes = set()  # what refusals named
        self.kept_bytes = 0  # of memory that it was given and has at the end

    def goes_on(self):
        over = time.monotonic() - self.end
        lacks = self.done < self.least[0] or self.refused < self.least[1]
        return over < (PATIENCE if lacks else 0)

    def client(self):
        """None: it was refused. One that is let in is something done: there may be time for no more."""
        try:
            client = RawClient(self.path)
        except GONE:
            self.refused += 1
            return None
        client.sock.settimeout(5)
        self.done += 1
        return client

    def clients(self, n):
        return [client for client in (self.client() for _ in range(n)) if client]

    def refuse(self, error):
        self.refused += 1
        self.codes.add(error.path)

    def hear_end(self, client):
        """Why the session was ended, if it was."""
        try:
            while (message := client.recv()) is not None:
                if message[0] == ERROR and message[1] == 0:
                    self.refuse(DaemonError(*message[2:]))
                    return
        except GONE:
            pass

    def one_by_one(self):
        """Clients, one after the other, as long as this goes on."""
        while self.goes_on():
            if client := self.client():
                yield client

    @contextlib.contextmanager
    def may_be_ended(self, client):
        """What is refused is counted; the session is over behind it."""
        try:
            yield
        except DaemonError as error:
            self.refuse(error)
        except GONE:
            pass
        client.close()

    # ---- the attacks

    def flood(self):
        """Small queries without a pause, from many connections, whose answers are all read."""
        while self.goes_on():
            clients = self.clients(64)
            try:
                self.flood_by([client.sock for client in clients])
            except OSError:
                pass
            for client in clients:
                client.close()

    def views(self):
        """Large views, which the user's own streams make large."""
        while self.goes_on():
            clients = self.clients(8)
            try:
                loader = clients[0].open({**RANGE, "name": "views", "dataset": {"kind": "range", "length": 8000}})
                for rank in range(900):
                    if self.goes_on():
                        clients[0].start(loader["loader"], rank=rank, world=900, credits=1)
                        self.done += 1
                self.flood_by([client.sock for client in clients[1:]], "times", 1)
            except DaemonError as error:
                self.refuse(error)
            except (*GONE, IndexError):
                pass
            for client in clients:
                client.close()

    def flood_by(self, socks, view="status", at_once=100):
        queries = frame(QUERY, 1, view, 0) * at_once
        left = {sock: b"" for sock in socks}
        for sock in socks:
            sock.setblocking(False)
        while self.goes_on() and left:
            readable, writable, _ = select.select(list(left), list(left), [], 1)
            for sock in readable:
                if not sock.recv(1 << 20):
                    del left[sock]
            for sock in writable:
                if sock in left:
                    left[sock] = (left[sock] or queries)[sock.send(left[sock] or queries):]
                    self.done += 1

    def unread(self):
        """The same, and no answer is read."""
        while self.goes_on():
            for client in (clients := self.clients(16)):
                client.sock.settimeout(0.2)
                try:
                    while self.goes_on():
                        client.send_bytes(frame(QUERY, 1, "loaders", 0) * 1000)
                        self.done += 1
                except GONE:
                    pass
            for client in clients:
                client.close()

    def feed(self):
        """Indices of steps far ahead of what is read."""
        spec = {**RANGE, "name": "fed", "sampler": {"kind": "client"}, "batch": {"size": 65536},
                "memory": {"limit": "16MiB"}}
        for client in self.one_by_one():
            with self.may_be_ended(client):
                stream = client.start(client.open(spec)["loader"], credits=65536)["stream"]
                step = frame(FEED, stream, 0, bytes(8 * 65536))
                client.sock.settimeout(1)
                for _ in range(200):
                    client.send_bytes(step)
                    self.done += 1
                    if select.select([client.sock], [], [], 0)[0]:
                        message = client.recv()
                        if message and message[0] == FAULT:
                            self.refuse(DaemonError(message[3], message[5], message[6]))
                            break

    def partial(self):
        """A large message each, of which the end never comes."""
        while self.goes_on():
            clients = self.clients(100)
            for client in clients:
                try:
                    client.sock.settimeout(1)
                    client.send_bytes(struct.pack("<I", 1 << 20) + bytes((1 << 20) - 100))
                    self.done += 1
                except GONE:
                    pass
            for client in clients:
                client.sock.settimeout(0.05)
                self.hear_end(client)
                client.close()

    def descriptors(self):
        """Sockets that are sent to the daemon, and never used."""
        ours, theirs = socket.socketpair()
        host = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))]
        while self.goes_on():
            clients = self.clients(100)
            for client in clients:
                try:
                    for number in range(16):
                        client.sock.sendmsg([frame(HOST, number)], host)
                        self.done += 1
                except GONE:
                    pass
            for client in clients:
                client.sock.settimeout(0.05)
                self.hear_end(client)
                client.close()
        ours.close()

    def dead_hosts(self):
        """Hosts that are gone before they have started a worker; the log has why loaders fail."""
        number = 0
        while self.goes_on():
            if not (client := self.client()):
                continue
            try:
                while self.goes_on():
                    number += 1
                    ours, theirs = socket.socketpair()
                    with ours, theirs:
                        client.sock.sendmsg([frame(HOST, number)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                                                     array.array("i", [theirs.fileno()]))])
                    self.done += 1
                    try:
                        client.open({**RANGE, "name": f"dead-{number}", "collate": {"kind": "python"},
                                     "dataset": {"kind": "python", "host": number}})
                    except DaemonError as error:
                        self.refuse(error)
            except GONE:
                pass
            client.close()

    def churn(self):
        """Loaders that are opened and left at once."""
        name = 0
        for client in self.one_by_one():
            with self.may_be_ended(client):
                for _ in range(10):
                    name += 1
                    loader = client.open({**RANGE, "name": f"churn-{name}"})["loader"]
                    client.send(CLOSE, loader)
                    self.done += 1

    def keep(self):
        """Memory of loaders that have ended, as clients that are gone have it mapped: until that is refused, however
        busy the machine is, or there is twice as much of it as the tests allow a user.
        """
        spec = {**RANGE, "dataset": {"kind": "range", "length": 3000000}, "batch": {"size": 250000},
                "workers": {"count": 1, "prefetch": 1}}
        kept = []
        while (self.goes_on() or not self.codes) and self.kept_bytes < 128 << 20:
            if not (client := self.client()):
                continue
            try:
                loader = client.open({**spec, "name": f"keep-{self.done}"})["loader"]
                client.start(loader)
                client.next_batches()
                kept += client.segments.values()
                client.segments = {}
                self.kept_bytes = sum(map(len, kept))
            except DaemonError as error:
                self.refuse(error)
            except GONE:
                pass
            client.close()

    def large(self):
        """Specs that take long to read, of which nothing comes."""
        spec = large_spec(0)
        for client in self.one_by_one():
            with self.may_be_ended(client):
                while self.goes_on():
                    client.open(spec)

    def gone(self):
        """The same, of clients that do not wait for an answer."""
        asked = frame(HELLO, 3, "gone") + frame(OPEN, 1, "/", large_spec(0, 120000), 0, 0, 0)
        while self.goes_on():
            for _ in range(64):
                try:
                    with socket.socket(socket.AF_UNIX) as sock:
                        sock.settimeout(5)
                        sock.connect(self.path)
                        sock.sendall(asked)
                        self.done += 1
                except OSError:
                    self.refused += 1

    def given_up(self):
        """Epochs that a thread has to work out, and that are given up meanwhile."""
        spec = {**RANGE, "name": "given-up", "dataset": {"kind": "range", "length": 15000000},
                "sampler": {"kind": "random"}}
        epoch = 0
        for client in self.one_by_one():
            with self.may_be_ended(client):
                loader = client.open(spec)["loader"]
                while self.goes_on():
                    epoch += 1
                    client.send(STOP, client.start(loader, epoch=epoch, step=1000000)["stream"])
                    self.done += 1

    def rosters(self):
        """Ranks of a million each, of which the others never come, one job after the other."""
        job = 0
        for client in self.one_by_one():
            with self.may_be_ended(client):
                loader = client.open({**RANGE, "name": "rosters", "batch": {"size": 1},
                                      "shard": {"mode": "dispatch"}})["loader"]
                while self.goes_on():
                    job += 1
                    client.start(loader, world=1 << 20, credits=1, job=f"job-{job}")
                    self.done += 1

    def dataset_states(self):
        """States of a dataset, for one stream after the other, of which none is read."""
        record = struct.pack("<6Q", 1, 8, 8, 0, 1, 0) + bytes(65536)
        spec = {**RANGE, "name": "dataset_states", "dataset": {"kind": "range", "length": 8000, "iterable": True},
                "workers": {"count": 4}}
        job = 0
        for client in self.one_by_one():
            with self.may_be_ended(client):
                loader = client.open(spec)["loader"]
                while self.goes_on():
                    job += 1
                    for worker in range(4):
                        client.send(DATASET_STATE, loader, worker, record)
                    client.start(loader, step=4, credits=1, job=f"job-{job}")
                    self.done += 1

    def worlds(self):
        """The world of a cluster, where there is none; and ranks that there cannot be."""
        for client in self.one_by_one():
            with self.may_be_ended(client):
                loader = client.open({**RANGE, "name": "worlds"})["loader"]
                for world in (0, 1 << 40):
                    self.done += 1
                    client.send(START, 7, loader, 0, 1 << 30, world, 0, 0)
                    message = client.recv_number(STARTED, ERROR)
                    if message[0] == ERROR:
                        self.refuse(DaemonError(*message[2:]))

    def knock(self):
        """Connections that are closed at once, and those that say nothing before they are."""
        while self.goes_on():
            silent = [socket.socket(socket.AF_UNIX) for _ in range(64)]
            for number, sock in enumerate(silent):
                with contextlib.suppress(OSError):
                    sock.settimeout(5)
                    sock.connect(self.path)
                    self.done += 1
                if number % 8:
                    sock.close()
            for sock in silent:
                sock.close()

    def noise(self):
        """What the log has a line for."""
        while self.goes_on():
            try:
                with socket.socket(socket.AF_UNIX) as sock:
                    sock.settimeout(1)
                    sock.connect(self.path)
                    sock.sendall(b"\xff\xff\xff\xff")
                    sock.recv(200)
                    self.done += 1
            except OSError:
                pass


ATTACKS = ("flood", "views", "unread", "feed", "partial", "descriptors", "dead_hosts", "churn", "keep", "large",
           "gone", "given_up", "rosters", "dataset_states", "worlds", "noise", "knock")


def main():
    path, name, seconds, *least = sys.argv[1:]
    attack = Attack(path, float(seconds))
    attack.least = tuple(map(int, least)) or attack.least
    getattr(attack, name)()
    print(json.dumps({"attack": name, "done": attack.done, "refused": attack.refused,
                      "named": sorted(attack.codes), "kept_bytes": attack.kept_bytes}))


if __name__ == "__main__":
    main()
