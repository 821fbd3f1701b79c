"""A server that speaks as much of S3 as a reader needs, over a directory: it checks signatures, counts what it is asked
for, and misbehaves when told to.

    bucket.py DIRECTORY    serves it as s3://bucket until it is killed; prints what a reader's environment has to have
"""

import collections
import functools
import hashlib
import hmac
import http.server
import os
import re
import sys
import threading
import urllib.parse
from xml.sax.saxutils import escape

BLOCK = 256 << 10  # what the fetcher asks for, and keeps
KEY, SECRET, REGION = "AKIDSTANDIN", "secret/of+the=stand-in", "eu-test-1"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}


def sign(secret, *parts):
    key = ("AWS4" + secret).encode()
    for part in parts:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def canonical_query(query):
    pairs = urllib.parse.parse_qsl(query, keep_blank_values=True)
    return "&".join(f"{urllib.parse.quote(key, safe='-_.~')}={urllib.parse.quote(value, safe='-_.~')}"
                    for key, value in sorted(pairs))


def is_signed(method, target, headers, keys, tokens):
    """By the rules of Signature Version 4, of which the server's side is written here anew."""
    match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?"
                         r"Signature=([0-9a-f]{64})", headers.get("Authorization", ""))
    if not match or match[1] not in keys or match[3] != REGION:
        return False
    if headers.get("x-amz-security-token") != tokens.get(match[1]):
        return False
    path, _, query = target.partition("?")
    signed = match[4].split(";")
    request = "\n".join([method, path, canonical_query(query), *(f"{name}:{headers[name].strip()}" for name in signed),
                         "", match[4], headers["x-amz-content-sha256"]])
    scope = f"{match[2]}/{REGION}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(request.encode()).hexdigest()])
    key = sign(keys[match[1]], match[2], REGION, "s3", "aws4_request")
    made = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return "host" in signed and hmac.compare_digest(made, match[5])


@functools.lru_cache(maxsize=1000)
def etag_of(path, *identity):
    """Of a file as it is now; `identity` is another one when it is another."""
    with open(path, "rb") as file:
        return f'"{hashlib.md5(file.read()).hexdigest()}"'


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        with self.server.bucket.lock:
            self.server.bucket.told[status] += 1
            self.server.bucket.written += len(body)
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.write(body)

    def write(self, body):
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code, **headers):
        self.answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>It is {code}.</Message></Error>"
                    .encode(), Content_Type="application/xml", **headers)

    def do_GET(self):
        bucket = self.server.bucket
        bucket.arrive()
        self.is_served = True
        try:
            self.give(bucket)
        finally:
            self.leave()

    def leave(self):
        """Once. Before its answer is sent: who has that may send the next request, however late this thread goes on."""
        if self.is_served:
            self.is_served = False
            self.server.bucket.leave()

    def end_headers(self):
        self.leave()
        super().end_headers()

    do_HEAD = do_GET  # which boto3 asks first

    def give(self, bucket):
        path, _, query = self.path.partition("?")
        name = urllib.parse.unquote(path).removeprefix("/bucket/")
        bucket.arrived.append((name, self.headers.get("Range", "")))
        is_served = bucket.keep_waiting()
        if "X-Amz-Signature=" in query:  # a presigned URL, which anybody may read
            query = ""
        with bucket.lock:
            bucket.asked[name if not query else "?list"] += 1
            fault = bucket.next_fault() if is_served else "slow down"
            keys, tokens = dict(bucket.keys), dict(bucket.tokens)
            who = re.search("Credential=([^/]*)/", self.headers.get("Authorization", ""))
            bucket.users[who and who[1]] += 1
        if bucket.signed and not is_signed(self.command, self.path, self.headers, keys, tokens):
            self.refuse(403, "SignatureDoesNotMatch")
        elif query:
            self.list(dict(urllib.parse.parse_qsl(query, keep_blank_values=True)))
        else:
            self.object(name, fault)

    def object(self, name, fault):
        bucket = self.server.bucket
        path = os.path.join(bucket.root, name)
        if fault == "slow down":
            return self.refuse(503, "SlowDown")
        if fault == "hang up":
            self.close_connection = True
            return None
        if not os.path.isfile(path):
            return self.refuse(404, "NoSuchKey")
        bucket.gather(name)
        if fault == "stall":
            bucket.ended.wait()
            self.close_connection = True
            return None
        with open(path, "rb") as file:
            data = file.read()
            of = os.fstat(file.fileno())
        etag = etag_of(path, of.st_ino, of.st_mtime_ns, of.st_size)
        if self.headers.get("If-Match", etag) != etag:
            return self.refuse(412, "PreconditionFailed")
        if self.headers.get("If-None-Match") == etag:
            return self.answer(304, ETag=etag)
        first, last = 0, len(data) - 1
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if match:
            first, last = int(match[1]), min(int(match[2]), last)
            if first > last:
                return self.refuse(416, "InvalidRange")
        if fault == "short":
            last = first + (last - first) // 2
        body = data[first:last + 1]
        with bucket.lock:
            bucket.sent += len(body)
            bucket.told[fault or (206 if match else 200)] += 1
            bucket.written += len(body) // 2 if fault == "cut" else len(body)
            bucket.blocks.update((name, block) for block in range(first // BLOCK, -(-(last + 1) // BLOCK)))
        more = {"Content_Range": f"bytes {first}-{last}/{len(data)}"} if match else {}
        self.send_response(206 if match else 200)
        for key, value in {"Content-Length": len(body), "ETag": etag, **more}.items():
            self.send_header(key.replace("_", "-"), str(value))
        self.end_headers()
        if fault == "cut":
            body = body[:len(body) // 2]
            self.close_connection = True
        self.write(body)
        return None

    def list(self, asked):
        bucket = self.server.bucket
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        most = min(int(asked.get("max-keys", 1000)), bucket.page)
        names = [os.path.relpath(os.path.join(folder, name), bucket.root)
                 for folder, _, files in os.walk(bucket.root) for name in files]
        found = []  # (name, whether it is a common prefix)
        for name in sorted([*names, *bucket.markers]):
            if not name.startswith(prefix):
                continue
            rest = name[len(prefix):]
            is_prefix = bool(delimiter) and delimiter in rest
            if is_prefix:
                name = prefix + rest[:rest.index(delimiter) + 1]
            if not found or found[-1][0] != name:
                found.append((name, is_prefix))
        found = [one for one in found if one[0] > asked.get("continuation-token", "")]
        more = found[most:]
        rows = [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" if is_prefix else
                f"<Contents><Key>{escape(name)}</Key><Size>{bucket.size_of(name)}</Size>"
                "<ETag>&quot;e&quot;</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                for name, is_prefix in found[:most]]
        token = f"<NextContinuationToken>{escape(found[most - 1][0])}</NextContinuationToken>" if more else ""
        self.answer(200, ("<?xml version='1.0' encoding='UTF-8'?>"
                          "<ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
                          f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{token}{''.join(rows)}"
                          "</ListBucketResult>").encode(), Content_Type="application/xml")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_):
        """A client that hangs up is none."""


class Bucket:
    """What is below `root` as s3://bucket, while it lasts. `asked`: how often each key was, "?list": pages; `arrived`:
    (key, range) of all requests, in their order; `sent`: bytes of objects; `blocks`: how often each block (key,
    number) was, or a part of it. `told`: how often each status was, or "cut"; `written`: bytes of the bodies of all
    answers. `latency`: seconds to each answer. `at_once`: with more requests it refuses those that come; 0: with none.
    `users`: how often each access key asked. `markers`: keys of objects that are no files, of no bytes. `keys`: of
    each its secret, `tokens`: and the session's token. `faults` one after another for requests of objects, over and
    over; None: none."""

    def __init__(self, root, signed=True, faults=(), page=1000, latency=0, at_once=0):
        self.root, self.signed, self.page, self.latency, self.at_once = root, signed, page, latency, at_once
        self.served, self.rounds, self.hold, self.held = 0, 0, None, []
        self.faults, self.turn, self.markers = list(faults), 0, ()
        self.asked, self.sent, self.blocks = collections.Counter(), 0, collections.Counter()
        self.told, self.written, self.arrived = collections.Counter(), 0, []
        self.keys, self.tokens, self.users = {KEY: SECRET}, {}, collections.Counter()
        self.ended = threading.Event()
        self.gathering, self.enough, self.free, self.gathered, self.names = (), 0, 0, threading.Event(), set()
        self.lock = threading.Lock()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.bucket = self
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.environment = {**ENVIRONMENT, "AWS_ENDPOINT_URL": self.url}
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def together(self, ending, count, free=0):
        """Objects with that ending are given when so many different ones have been asked for; the first `free` ones at
        once."""
        self.gathering, self.enough, self.free, self.gathered = ending, count, free, threading.Event()

    def gather(self, name):
        if not name.endswith(self.gathering):
            return
        with self.lock:
            self.names.add(name)
            if len(self.names) == self.enough:
                self.gathered.set()
            if len(self.names) <= self.free:
                return
        self.gathered.wait()

    def size_of(self, name):
        return 0 if name in self.markers else os.path.getsize(os.path.join(self.root, name))

    def arrive(self):
        with self.lock:
            self.served += 1

    def leave(self):
        with self.lock:
            self.served -= 1

    def keep_waiting(self):
        """For the time of an answer; False: there are too many requests."""
        let_go = threading.Event()
        with self.lock:
            if self.at_once and self.served > self.at_once:
                return False
            if self.hold:
                self.held.append(let_go)
        if self.hold:
            let_go.wait()
        else:
            self.ended.wait(self.latency)
        return True

    def answer_in_rounds(self, are_still):
        """From now on each answer is held until nobody can ask for more without one; then those that are held are
        given: `rounds` is how often, and so how many requests had to wait for one another, however fast this machine
        is. `are_still`: whether all who may ask do nothing but wait."""
        self.hold = are_still
        threading.Thread(target=self.give_rounds, daemon=True).start()

    def give_rounds(self):
        while not self.ended.wait(0.002):
            if self.held and self.hold():
                with self.lock:
                    self.rounds += 1
                    given, self.held = self.held, []
                for one in given:
                    one.set()

    def next_fault(self):
        if not self.faults:
            return None
        self.turn += 1
        return self.faults[self.turn % len(self.faults)]

    def close(self):
        self.ended.set()
        self.gathered.set()
        for one in self.held:
            one.set()
        self.server.shutdown()
        self.server.server_close()


if __name__ == "__main__":
    for name, value in Bucket(sys.argv[1]).environment.items():
        print(f"export {name}='{value}'", flush=True)
    sys.stdout.close()
    threading.Event().wait()
