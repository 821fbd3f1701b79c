"""A web server of a few paths, which remembers what it was asked: for tests of whom the daemon talks to, and what it
says there."""

import http.server
import re
import ssl
import threading

from dltest import children_of


def fetchers_of(daemon):
    """{pid: what /proc says of its status}, of the processes that fetch for it."""
    found = {}
    for pid in children_of(daemon.process.pid):
        try:
            with open(f"/proc/{pid}/cmdline") as file, open(f"/proc/{pid}/status") as status:
                if "--fetch" in file.read().split("\0"):
                    found[pid] = dict(line.split(":\t", 1) for line in status.read().splitlines())
        except (FileNotFoundError, ProcessLookupError):  # ended before it was opened, or read
            pass
    return found


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def log_message(self, *_):
        pass

    def do_GET(self):
        web = self.server.web
        path, _, _ = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        with web.lock:
            web.asked.append((self.command, self.path, dict(self.headers.items()), body))
        found = web.paths.get((self.command, path)) or web.paths.get(path)
        if callable(found):
            found = found(self.headers, body)
        if found is None:
            return self.answer(404, b"")
        if isinstance(found, str):
            return self.answer(302, b"", Location=found)
        if isinstance(found, tuple):
            return self.answer(*found[:2], **(found[2] if len(found) > 2 else {}))
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = (int(match[1]), min(int(match[2]), len(found) - 1)) if match else (0, len(found) - 1)
        return self.answer(206 if match else 200, found[first:last + 1], ETag='"x"',
                           Content_Range=f"bytes {first}-{last}/{len(found)}")

    do_PUT = do_POST = do_GET

    def answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A client that hangs up is none."""


class Web:
    """`paths`: of each path, or (method, path), its bytes, which are served by ranges; a text: where it redirects to; a
    tuple: status, body and headers; or a function of the headers and the body that returns one of these. `asked`:
    (method, path, headers, body) each. It listens at all of 127.0.0.0/8."""

    def __init__(self, paths, certificate=None):
        self.paths, self.asked, self.lock = paths, [], threading.Lock()
        self.server = Server(("0.0.0.0", 0), Handler)
        self.server.web = self
        self.port = self.server.server_port
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, path, host="127.0.0.1", scheme="http"):
        return f"{scheme}://{host}:{self.port}{path}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
