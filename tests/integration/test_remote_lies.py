"""What servers answer that they should not: each has an error that names URL, value and remedy, or works; none makes
the process that asks end, or wait for ever. The others are read meanwhile, by the same process."""

import json
import re
import socketserver
import threading

from dltest import TestCase, dlctl

QUIET = {"AWS_EC2_METADATA_DISABLED": "true"}
BLOCK = 256 * 1024
ROWS = BLOCK // 16 * 2  # of 16 bytes: two blocks, and a little


class Handler(socketserver.BaseRequestHandler):
    """Sends what `server.answers` has for a path, and hangs up."""

    def handle(self):
        asked = b""
        while b"\r\n\r\n" not in asked:
            some = self.request.recv(65536)
            if not some:
                return
            asked += some
        path = asked.split(b" ")[1].decode()
        match = re.search(rb"(?i)\r\nrange: bytes=(\d+)-(\d+)\r\n", asked)
        first, last = int(match[1]), min(int(match[2]), len(self.server.data) - 1)
        self.server.asked[path] = self.server.asked.get(path, 0) + 1
        try:
            for piece in self.server.answers[path](first, last, self.server.data[first:last + 1]):
                self.request.sendall(piece)
        except OSError:
            pass


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True
    request_queue_size = 64


def answer(status="206 Partial Content", length="{n}", content_range="bytes {first}-{last}/{all}", etag='"x"', more=(),
           body=None, version="HTTP/1.1"):
    """A function of a range and its bytes. None leaves a header out; `{n}` and the like are what is true."""
    def make(first, last, data):
        values = {"n": len(data), "first": first, "last": last, "all": len(make.whole), "next": first + 1,
                  "turn": make.turn}
        make.turn += 1
        headers = {"Content-Length": length, "Content-Range": content_range, "ETag": etag}
        lines = [f"{version} {status}", "Connection: close", *more,
                 *(f"{name}: {value}" for name, value in headers.items() if value is not None)]
        yield "".join(line.format(**values) + "\r\n" for line in (*lines, "")).encode()
        yield make.whole if body is whole else data if body is None else body(data)

    make.turn = 0
    return make


def raw(*pieces):
    return lambda *_: iter(pieces)


def endless(*_):
    yield b"HTTP/1.1 206 Partial Content\r\n"
    while True:
        yield b"X-Line: " + b"x" * 1000 + b"\r\n"


def one_long_line(*_):
    yield b"HTTP/1.1 206 Partial Content\r\nX-Line: "
    while True:
        yield b"x" * 1000


def chunks(data):
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (data[:1], data[1:]) if part) + b"0\r\n\r\n"


def whole(_):
    """Of the object, whatever was asked for."""


CHUNKED = ("Transfer-Encoding: chunked",)

# What works: the whole object is read as it is.
GOOD = {
    "plain": answer(),
    "http10": answer(version="HTTP/1.0"),
    "no-length": answer(length=None),
    "chunked": answer(length=None, more=CHUNKED, body=chunks),
    "status-200": answer(status="200 OK"),  # with a range, as rclone has it
    "no-words": answer(status="206"),
    "empty-header": answer(more=("X-Empty:",)),
    "continue": answer(more=(), version="HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1"),
    "identity": answer(more=("Content-Encoding: identity",)),
    "no-etag": answer(etag=None, more=("Last-Modified: Mon, 30 Nov 2026 08:00:00 GMT",)),
}

# What does not: a pattern of what is said, and how often it is asked for at most, by what expects it and what opens it.
ONCE, AGAIN = 2, 16
BAD = {
    "ssh": (raw(b"SSH-2.0-OpenSSH_9.2p1\r\n"), "does not answer in HTTP.*look at the URL's port", ONCE),
    "tls": (raw(b"\x15\x03\x01\x00\x02\x02\x70"), "does not answer in HTTP.*look at the URL's port", ONCE),
    "http09": (raw(b"<html>welcome</html>"), "does not answer in HTTP.*look at the URL's port", ONCE),
    "nothing": (raw(b""), "cannot be asked: ", AGAIN),
    "endless": (endless, "too long", ONCE),
    "long-line": (one_long_line, "too long", ONCE),
    "no-range": (answer(content_range=None), "does not say which bytes it gives", AGAIN),
    "no-numbers": (answer(content_range="bytes a-b/c"), 'makes no sense: "Content-Range: bytes a-b/c"', ONCE),
    "range-backwards": (answer(content_range="bytes 9-3/20"), 'makes no sense: "Content-Range: bytes 9-3/20"', ONCE),
    "range-later": (answer(content_range="bytes {next}-{last}/{all}"),
                    r"of bytes 0 to \d+ .* gives 1 to \d+, as \d+ bytes; a proxy on the way may be broken", AGAIN),
    "range-of-lines": (answer(content_range="lines 0-9/100"), 'makes no sense: "Content-Range: lines 0-9/100"', ONCE),
    "two-ranges": (answer(more=("Content-Range: bytes 0-0/9",)), "makes no sense", ONCE),
    "total-unsaid": (answer(content_range="bytes {first}-{last}/*"), "does not say how many bytes it has", ONCE),
    "total-huge": (answer(content_range="bytes {first}-{last}/9223372036854775807"), "remote.held", ONCE),
    "total-beyond": (answer(content_range="bytes {first}-{last}/99999999999999999999"), "makes no sense", ONCE),
    "length-negative": (answer(length="-5"), "Content-Length", AGAIN),
    "length-of-words": (answer(length="many"), "Content-Length", AGAIN),
    "two-lengths": (answer(more=("Content-Length: 3",)), "[Ll]ength", AGAIN),
    "length-too-short": (answer(length="3"), "Content-Length|3 ", AGAIN),
    "cut": (answer(body=lambda data: data[:-1]), "cannot be asked: ", AGAIN),
    "chunk-of-words": (answer(length=None, more=CHUNKED, body=lambda data: b"many\r\n" + data), "chunk|cannot be asked",
                       AGAIN),
    "gzip": (answer(more=("Content-Encoding: gzip",)), "Content-Encoding.*store it without one", ONCE),
    "whole": (answer(status="200 OK", content_range=None, length="{all}", body=whole), "only servers with ranges",
              ONCE),
    "status-99": (answer(status="99 Odd"), "99|makes no sense|HTTP", AGAIN),
    "status-text": (answer(status="abc"), "makes no sense|HTTP", AGAIN),
    "status-204": (answer(status="204 No Content", length=None, content_range=None, body=lambda _: b""), "status 204",
                   ONCE),
    "status-304": (answer(status="304 Not Modified", length=None, content_range=None, body=lambda _: b""), "status 304",
                   ONCE),
    "round": (answer(status="302 Found", more=("Location: /round",), body=lambda _: b"", length="0"), "redirects",
              12),
    "nowhere": (answer(status="302 Found", body=lambda _: b"", length="0"), "status 302", ONCE),
    "etag-new": (answer(etag='"{turn}"'), "has changed.*etag.*open it anew", AGAIN),
    "size-new": (answer(content_range="bytes {first}-{last}/9{turn}00000"),
                 "has changed.*size.*open it anew|needs a file of", AGAIN),
}


class Lies(TestCase):
    def setUp(self):
        super().setUp()
        with open(self.npy("x.npy", (ROWS, 16), "|u1", bytes(n * 7 % 251 for n in range(ROWS * 16))), "rb") as file:
            data = file.read()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.data, self.server.asked = data, {}
        self.server.answers = {f"/{name}": one for name, one in GOOD.items()}
        self.server.answers |= {f"/{name}": one for name, (one, _, _) in BAD.items()}
        for one in self.server.answers.values():
            one.whole = data
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.node = self.daemon({"linger": "0s"}, env=QUIET)
        self.want = self.run_one(self.path("x.npy"), "local")

    def run_one(self, path, name):
        spec = self.spec(name, dataset={"kind": "npy", "paths": path}, batch={"size": 512}, workers={"count": 1},
                         seed=1)
        done = dlctl("run", spec, "--digest", "--json", daemon=self.node, check=False)
        if done.returncode == 0:
            return json.loads(done.stdout)["digest"]
        error = json.loads(done.stderr)["error"]
        return f"{error['path']}: {error['message']}"

    def run_all(self, names):
        """All at once: what is asked for again takes its time."""
        found = {}

        def read(name):
            found[name] = self.run_one(f"http://127.0.0.1:{self.server.server_address[1]}/{name}", name)

        threads = [threading.Thread(target=read, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def test_all(self):
        found = self.run_all([*GOOD, *BAD])
        for name in GOOD:
            with self.subTest(name=name):
                self.assertEqual(found[name], self.want)
        for name, (_, pattern, most) in BAD.items():
            with self.subTest(name=name):
                self.assertRegex(found[name], f"^http://.*/{name}: .*({pattern})")
                self.assertLessEqual(self.server.asked[f"/{name}"], most)
        self.assertEqual(self.run_all(["plain"])["plain"], self.want)
        self.assertNotIn("ended", self.node.log)
