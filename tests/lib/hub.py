"""A server that speaks as much of the Hub's API as a reader needs, over a directory, which it serves as the repository
`datasets/o/n`: lists of a tree by pages, files, and redirects to signed URLs of another server for those that are
large (LFS), as the Hub's documentation describes it."""

import collections
import hashlib
import hmac
import http.server
import json
import os
import re
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
KEY = b"of the CDN"


def signature(path, expires):
    return hmac.new(KEY, f"{path} {expires}".encode(), hashlib.sha256).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code, message):
        self.answer(status, json.dumps({"error": message}).encode(), Content_Type="application/json",
                    X_Error_Code=code, X_Error_Message=message)

    def bytes(self, data, **headers):
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not match:
            return self.answer(200, data, Accept_Ranges="bytes", **headers)
        first, last = int(match[1]), min(int(match[2] or len(data)), len(data) - 1)
        if first > last:
            return self.answer(416, Content_Range=f"bytes */{len(data)}")
        return self.answer(206, data[first:last + 1], Content_Range=f"bytes {first}-{last}/{len(data)}", **headers)

    def do_GET(self):
        hub = self.server.hub
        path, _, query = self.path.partition("?")
        with hub.lock:
            hub.asked[self.server.what, urllib.parse.unquote(path)] += 1
            hub.tokens[self.server.what].add(self.headers.get("Authorization"))
        if self.server.what == "cdn":
            return self.cdn(urllib.parse.unquote(path), dict(urllib.parse.parse_qsl(query)))
        if hub.gated and not self.may_read():
            return None
        match = re.fullmatch(r"(/api)?/datasets/o/n/(tree|resolve)/([^/]+)/?(.*)", path)
        if not match or (match[2] == "tree") != bool(match[1]):
            return self.refuse(401, "RepoNotFound", "Repository not found")
        if urllib.parse.unquote(match[3]) not in ("main", "refs/convert/parquet", COMMIT):
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {match[3]}")
        name = urllib.parse.unquote(match[4])
        if match[2] == "tree":
            return self.tree(name, dict(urllib.parse.parse_qsl(query)))
        return self.file(name)

    do_HEAD = do_GET

    def may_read(self):
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if not token:
            self.refuse(401, "GatedRepo", "Access to dataset o/n is restricted. You must have access to it and be "
                                          "authenticated to access it. Please log in.")
        elif token not in self.server.hub.gated:
            self.refuse(403, "GatedRepo", "Access to dataset o/n is restricted and you are not in the authorized list. "
                                          "Visit https://hub/datasets/o/n to ask for access.")
        return token in self.server.hub.gated

    def tree(self, name, asked):
        hub = self.server.hub
        folder = os.path.join(hub.root, name)
        if not os.path.isdir(folder):
            return self.refuse(404, "EntryNotFound", f"{name} does not exist on \"main\"")
        rows = []
        for at, folders, names in os.walk(folder):
            inside = os.path.relpath(at, hub.root).removeprefix(".").lstrip("/")
            rows += [hub.folder_row(os.path.join(inside, one)) for one in folders]
            rows += [hub.file_row(os.path.join(inside, one)) for one in names
                     if os.path.isfile(os.path.join(at, one))]  # and no socket of a daemon's
            if asked.get("recursive", "").lower() != "true":
                break
        rows.sort(key=lambda row: row["path"])
        first = int(asked.get("cursor", "page 0").removeprefix("page "))
        last = first + min(int(asked.get("limit", 1000)), hub.page)
        query = urllib.parse.urlencode({**asked, "cursor": f"page {last}"})
        link = {"Link": f'<{hub.url}{self.path.partition("?")[0]}?{query}>; rel="next"'} if last < len(rows) else {}
        return self.answer(200, json.dumps(rows[first:last]).encode(), Content_Type="application/json", **link)

    def file(self, name):
        hub = self.server.hub
        data = hub.read(name)
        if data is None:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        row = hub.file_row(name)
        if "lfs" not in row:
            return self.bytes(data, ETag=f'"{row["oid"]}"', X_Repo_Commit=COMMIT)
        path = f"/lfs/{row['lfs']['oid']}/{urllib.parse.quote(name)}"
        with hub.lock:
            expires = hub.signed = hub.signed + 1
        url = f"{hub.cdn}{path}?Expires={expires}&Signature={signature(urllib.parse.unquote(path), expires)}"
        return self.answer(302, f"Found. Redirecting to {url}".encode(), Location=url, X_Repo_Commit=COMMIT,
                           X_Linked_Size=len(data), X_Linked_ETag=f'"{row["lfs"]["oid"]}"')

    def cdn(self, path, asked):
        """`Expires` counts the URLs that were signed: the newest 200 are good."""
        hub = self.server.hub
        expires = int(asked.get("Expires", 0))
        right = hmac.compare_digest(asked.get("Signature", ""), signature(path, expires))
        data = hub.read(path.split("/", 3)[3]) if right and expires > hub.signed - 200 else None
        if data is None:
            return self.answer(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
        return self.bytes(data, ETag='"of-the-cdn"')


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_):
        """A client that hangs up is none."""


class Hub:
    """`asked`: how often each path was, of the "hub" and its "cdn"; `tokens`: what each was told of who asks. `gated`:
    tokens that may read; empty: all may. `page`: entries of a list. Files of `large` bytes are elsewhere."""

    def __init__(self, root, page=1000, large=1000, gated=()):
        self.root, self.page, self.large, self.gated = root, page, large, set(gated)
        self.asked, self.tokens, self.signed = collections.Counter(), {"hub": set(), "cdn": set()}, 0
        self.lock = threading.Lock()
        self.servers = [self.serve("hub", "127.0.0.1"), self.serve("cdn", "127.0.0.2")]
        self.url, self.cdn = [f"http://{host}:{port}" for host, port in (one.server_address for one in self.servers)]
        self.environment = {"HF_ENDPOINT": self.url}

    def serve(self, what, host):
        server = Server((host, 0), Handler)
        server.what, server.hub = what, self
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def read(self, name):
        try:
            with open(os.path.join(self.root, name), "rb") as file:
                return file.read()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    @staticmethod
    def folder_row(path):
        return {"type": "directory", "oid": hashlib.sha1(path.encode()).hexdigest(), "size": 0, "path": path}

    def file_row(self, path):
        """As the tree has it: `oid` is git's, of a pointer where the file is elsewhere."""
        data = self.read(path)
        oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        row = {"type": "file", "oid": oid, "size": len(data), "path": path}
        if len(data) >= self.large:
            row["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return row

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()
