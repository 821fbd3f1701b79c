"""Real stores on loopback ports of their own, and a backend by hand (backend_probe.c)."""

import base64
import json
import os
import queue
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import dltest  # noqa: E402
from dltest import PATIENCE  # noqa: E402
from store_case import Raw, Server  # noqa: E402


def free_ports(count):
    """Ports that nobody listens on, all different."""
    socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()
    return ports


def wait_until(what, condition):
    dltest.wait_until(condition, what)


class Etcd:
    """One member; what it was given it keeps, also when it is killed and started again. `host` is
    an address behind `launcher` (networks.py), where its ports are free.
    """
    backend = "etcd"
    books = 0  # keys beside those of daemons: for each kind that is listed, what is in the list

    def __init__(self, *flags, scheme="http", context=None, host="127.0.0.1", launcher=()):
        self.dir = tempfile.mkdtemp(prefix="dloader-etcd-")
        self.port, peer = free_ports(2)
        host = f"[{host}]" if ":" in host else host
        self.endpoint = f"{scheme}://{host}:{self.port}"
        self.context = context
        peer_url = f"http://{host}:{peer}"
        program = shutil.which("etcd") or "/usr/bin/etcd"
        self.command = [
            *launcher, program, "--name", "one", "--data-dir", f"{self.dir}/data",
            "--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint,
            "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url,
            "--initial-cluster", f"one={peer_url}", "--unsafe-no-fsync", *flags]
        known = subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout
        if "--unsafe-no-fsync" not in known:
            self.command.remove("--unsafe-no-fsync")
        self.process = None
        self.start()

    def start(self):
        with open(f"{self.dir}/log", "ab") as log:
            # pylint: disable=consider-using-with
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        wait_until("etcd", self.serves)

    def serves(self):
        if self.process.poll() is not None:
            with open(f"{self.dir}/log", encoding="utf-8") as log:
                raise AssertionError(f"etcd has ended: {log.read()[-2000:]}")
        try:
            self.ask("kv/range", {"key": "YQ=="})
        except urllib.error.HTTPError as error:
            return error.code != 503  # it wants a user: it serves
        except OSError:
            return False
        return True

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.dir)

    def ask(self, path, body, token=None):
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = token
        request = urllib.request.Request(f"{self.endpoint}/v3/{path}", json.dumps(body).encode(),
                                         headers)
        with urllib.request.urlopen(request, timeout=5, context=self.context) as reply:
            return json.loads(reply.read())

    def put(self, key, value):
        self.ask("kv/put", {"key": base64.b64encode(f"/dloader/{key}".encode()).decode(),
                            "value": base64.b64encode(value.encode()).decode()})

    def has(self, key, prefix="/dloader/"):
        return self.lease_of(key, prefix) is not None

    def forget(self):
        """All that it was given."""
        self.ask("kv/deleterange", {"key": "AA==", "range_end": "AA=="})

    def revoke(self):
        """All leases, and with them what depends on them. How many there were."""
        leases = self.ask("lease/leases", {}).get("leases", [])
        for lease in leases:
            self.ask("lease/revoke", lease)
        return len(leases)

    def leases(self):
        """Each key with its lease, in the order of the keys."""
        kvs = self.ask("kv/range", {"key": "AA==", "range_end": "AA=="}).get("kvs", [])
        return [(base64.b64decode(kv["key"]).decode(), int(kv.get("lease", 0))) for kv in kvs]

    def count(self):
        """Of the keys that it has."""
        return len(self.leases())

    def lease_of(self, key, prefix="/dloader/"):
        kvs = self.ask("kv/range", {"key": base64.b64encode(f"{prefix}{key}".encode()).decode()})
        return int(kvs["kvs"][0].get("lease", 0)) if "kvs" in kvs else None


class C10d:
    """A TCPStore of ours, by itself; what it was given is lost when it is killed. `host` and
    `launcher`: as of Etcd.
    """
    backend = "c10d"
    books = 1

    def __init__(self, host="127.0.0.1", launcher=()):
        self.host = host
        self.launcher = launcher
        self.port = 0
        self.start()
        self.endpoint = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def start(self):
        self.server = Server(self.port, self.host, launcher=self.launcher)
        self.port = self.server.port

    def kill(self):
        self.server.kill()

    def stop(self):
        self.server.close()

    def has(self, key, prefix="/dloader/"):
        raw = Raw(self.port)
        raw.send(b"\x05" + struct.pack("<Q", 1), f"{prefix}{key}")
        is_ready = raw.receive(1) == b"\0"
        raw.close()
        return is_ready

    def count(self):
        """Of the keys that it has."""
        raw = Raw(self.port)
        raw.send(b"\x07")
        keys, = struct.unpack("<q", raw.receive(8))
        raw.close()
        return keys

    def forget(self):
        self.kill()
        self.start()


class Hosted:
    """A TCPStore that one of those who meet serves: the first of them whose address `host` is."""
    backend = "c10d"

    def __init__(self, host="127.0.0.1"):
        self.port, = free_ports(1)
        self.endpoint = f"{host}:{self.port}"

    def stop(self):
        pass


class Probe:
    """A backend of its own in a process of its own."""

    def __init__(self, **settings):
        env = dict(os.environ)
        env.update({f"PROBE_{name.upper()}": str(value) for name, value in settings.items()})
        # pylint: disable=consider-using-with
        self.process = subprocess.Popen([os.environ["BACKEND_PROBE"]], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, encoding="latin-1", env=env)
        self.calls = 0
        self.answers = {}
        self.lines = queue.Queue()
        self.changes = 0
        self.renewals = 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def take(self, within=PATIENCE):
        line = self.lines.get(timeout=within)
        if line == "changed":
            self.changes += 1
        elif line == "renewed":
            self.renewals += 1
        elif line and line[0].isdigit():
            number, rest = line.split(" ", 1)
            self.answers[int(number)] = rest
        return line

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def begin(self, line):
        self.say(line)
        self.calls += 1
        return self.calls

    def end(self, number):
        """(won, token, value) or the text of an error."""
        while number not in self.answers:
            if self.take() is None:
                raise AssertionError("the probe has ended")
        text = self.answers.pop(number)
        if text.startswith("error "):
            return text
        won = text.startswith("won ")
        token, _, value = text[4 * won:].partition(" ")
        return won, int(token), value

    def get(self, key):
        return self.end(self.begin(f"get {key}"))

    def set(self, key, token, value):
        return self.end(self.begin(f"set {key} {token} {value}"))

    def put(self, key, ask, value):
        return self.end(self.begin(f"put {key} {ask} {value}"))

    def list(self, prefix, ask):
        """Of each key its value, and what lies under `ask`."""
        _, _, value = self.end(self.begin(f"list {prefix} {ask}"))
        items, _, asked = f" {value}".partition(" | ")
        return dict(item.split("=") for item in items.split()), asked

    def drop(self, key):
        self.end(self.begin(f"drop {key}"))

    def wait_change(self):
        seen = self.changes
        while self.changes == seen:
            if self.take() is None:
                raise AssertionError("the probe has ended")

    def close(self):
        """Its exit status: not 0 where something was left in its loop."""
        self.process.stdin.close()
        status = self.process.wait(PATIENCE)
        while self.lines.get(timeout=PATIENCE) is not None:
            pass
        self.process.stdout.close()
        return status
