"""The live page: its views are dlctl's, nobody gets more than they may, and what a browser makes of it."""

import base64
import contextlib
import hashlib
import http.client
import http.server
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time
import unittest

from browser import CHROMIUM, MISSING, Browser
from dltest import PATIENCE, RANGE, DaemonError, dlctl_json, named, together, wait_until
from test_metrics_http import HttpCase

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = ROOT / "daemon/serve/page"
TOKEN = "0123456789abcdef-the-token"
VIEWS = ("status", "loaders", "epochs", "workers", "ring", "sessions", "users", "quarantine", "members", "times",
         "mixtures", "lately", "specs", "slowest", "remote")
# What differs from one look to the next.
MOVING = {"uptime_s", "sessions", "sessions_ever", "cpu_s", "cpu_wait_s", "memory_bytes", "loop_s", "session", "pid",
          "age_s", "left_s", "waited_s", "starved_s", "descriptors", "limit_descriptors", "overhead_bytes", "state",
          "samples_per_s", "step_share"}
STRANGER = 60123  # a user whom nobody knows


def still(view):
    """A view without what moves."""
    if isinstance(view, dict):
        return {key: still(value) for key, value in view.items() if key not in MOVING}
    return [still(row) for row in view] if isinstance(view, list) else view


class PageCase(HttpCase):
    def get(self, address, path, **headers):
        connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer, answer.read().decode()
        finally:
            connection.close()

    def status(self, address, path, **headers):
        return self.get(address, path, **headers)[0].status

    def token_file(self, token=TOKEN):
        self.spec("unused")  # the directory is there
        with open(self.path("token"), "w") as file:
            file.write(token + "\n")
        return self.path("token")


class Views(PageCase):
    def test_they_are_those_of_dlctl(self):
        address = self.begin(clock=True)
        self.streaming(self.server)

        def by_page(view):
            self.server.advance(1)  # what is kept for others is not given any more
            answer, text = self.get(address, f"/views/{view}")
            self.assertEqual(answer.status, 200, text)
            self.assertEqual(answer.headers["Content-Type"], "application/json")
            self.assertEqual(answer.headers["Cache-Control"], "no-store")
            return told(view, json.loads(text))

        def by_dlctl(view):
            want = self.client(self.server).query(view) if view == "specs" else dlctl_json(
                {"slowest": "slow"}.get(view, view), daemon=self.server)
            self.assertTrue(want or view in ("quarantine", "members", "mixtures", "slowest"))
            return told(view, want)

        def told(view, rows):
            """Bins begin with time; and dlctl has a session itself."""
            return [list(row) for row in rows] if view in ("lately", "sessions") else still(rows)

        for view in VIEWS:
            with self.subTest(view=view):
                page, lines = together(lambda view=view: by_page(view), lambda view=view: by_dlctl(view))
                self.assertEqual(page, lines[:len(page)] if view == "sessions" else lines)

    def test_who_asks_again_gets_the_same(self):
        """However many pages are open: a view is made once a second at most."""
        address = self.begin(clock=True)

        def made():
            return float(self.get(address, "/views/loaders")[0].headers["Dloader-Clock"])

        clocks = sorted({made() for _ in range(50)})
        for one, next_one in zip(clocks, clocks[1:]):
            self.assertGreaterEqual(next_one - one, 1)
        self.server.advance(1)
        self.assertGreaterEqual(made(), clocks[-1] + 1)

    def test_nothing_else(self):
        address = self.begin()
        for path in ("/views/", "/views/trace", "/views/loaders/", "/views/../metrics", "/view/loaders", "/page.html"):
            self.assertEqual(self.status(address, path), 404, path)
        for path in ("/", "/totals", "/views/loaders"):
            answer, _ = self.ask(address, "POST", path, "x")
            self.assertEqual((answer.status, answer.headers["Allow"]), (405, "GET, HEAD"))


class Policy(PageCase):
    def test_what_the_browser_is_told(self):
        answer, page = self.get(self.begin(), "/")
        self.assertEqual(page, (PAGE / "page.html").read_text())
        self.assertEqual(answer.headers["Content-Type"], "text/html; charset=utf-8")
        self.assertEqual(answer.headers["X-Content-Type-Options"], "nosniff")
        self.assertEqual(answer.headers["Referrer-Policy"], "no-referrer")
        rules = dict(rule.strip().split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split(";"))
        self.assertEqual(rules["default-src"], "'none'")
        self.assertEqual(rules["frame-ancestors"], "'none'")
        for tag in ("script", "style"):
            inner = page.split(f"<{tag}>")[1].split(f"</{tag}>")[0]
            digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
            self.assertEqual(rules[f"{tag}-src"], f"'sha256-{digest}'")
        self.assertNotIn("unsafe", str(rules))

    def test_nothing_foreign_and_no_markup_from_texts(self):
        page = (PAGE / "page.html").read_text()
        self.assertEqual(re.findall(r"""(?:src|href)=["'](?!#|data:,)[^"']*""", page), [])
        self.assertEqual(set(re.findall(r"https?://[^\s\"']+", page)), {"http://www.w3.org/2000/svg"})
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
                    "style="):
            self.assertNotIn(way, page)
        self.assertLess(len(page), 40000)


class WhoSees(PageCase):
    def test_other_names_for_this_machine(self):
        """A page of somebody else's whose name leads here is not the daemon's user."""
        address = self.begin()
        for host, status in (("localhost:%d" % address[1], 200), ("127.0.0.1", 200), ("[::1]:9400", 200),
                             ("evil.example", 403), ("evil.example:%d" % address[1], 403), ("10.1.2.3", 403)):
            self.assertEqual(self.status(address, "/views/loaders", Host=host), status, host)
        self.assertEqual(self.status(address, "/metrics", Host="evil.example"), 200)
        # No other origin may read an answer.
        answer, _ = self.get(address, "/views/loaders", Origin="http://evil.example")
        self.assertIsNone(answer.headers["Access-Control-Allow-Origin"])
        self.assertEqual(answer.headers["Cross-Origin-Resource-Policy"], "same-origin")

    @unittest.skipUnless(os.geteuid() == 0, "needs root to be somebody else")
    def test_other_users(self):
        address = self.begin()
        self.streaming(self.server, name="secret-name")
        ask = ("import sys, urllib.request, urllib.error\n"
               "for path in sys.argv[2:]:\n"
               "    try: print(urllib.request.urlopen(sys.argv[1] + path, timeout=60).read().decode())\n"
               "    except urllib.error.HTTPError as e: print(e.code, e.read().decode())\n")

        def asked(*paths):
            return subprocess.run([sys.executable, "-c", ask, "http://127.0.0.1:%d" % address[1], *paths],
                                  user=STRANGER, group=STRANGER, extra_groups=(), capture_output=True, text=True,
                                  check=True, cwd="/", timeout=PATIENCE).stdout

        refused = asked(*(f"/views/{view}" for view in VIEWS))
        self.assertEqual(refused.count("403 Loaders are shown only to the daemon's own user"), len(VIEWS), refused)
        self.assertNotIn("secret-name", refused)
        totals = json.loads(asked("/totals"))
        self.assertEqual(totals["loaders"], 1)
        self.assertFalse({"verdicts", "socket", "not_ready", "pid", "uid"} & totals.keys())
        self.assertIn("<script>", asked("/"))

    def test_with_a_token(self):
        address = self.begin()
        token = self.token_file()
        self.reload({"metrics": {"listen": "127.0.0.1:0", "token_file": token}}, "reloaded ")
        address = self.address()
        for host in ("localhost", "evil.example"):
            for said, status in ((f"Bearer {TOKEN}", 200), (f"Bearer {TOKEN}x", 401), ("Basic x", 401)):
                own = 200 if host == "localhost" and status == 401 else status
                self.assertEqual(self.status(address, "/views/status", Host=host, Authorization=said), own)
        answer, text = self.get(address, "/views/status", Host="evil.example")
        self.assertEqual((answer.status, answer.headers["WWW-Authenticate"]), (401, "Bearer"))
        self.assertNotIn(TOKEN, text)
        # Another token counts from the next reload on, at the same place.
        self.token_file("another-token-of-some-length")
        self.reload({"metrics": {"listen": "127.0.0.1:0", "token_file": token}}, "reloaded ")
        self.assertEqual(self.address(), address)
        self.assertEqual(self.status(address, "/views/status", Host="x", Authorization=f"Bearer {TOKEN}"), 401)
        self.assertEqual(self.status(address, "/views/status", Host="x",
                                     Authorization="Bearer another-token-of-some-length"), 200)

    def test_for_other_machines(self):
        self.server = self.daemon({"metrics": {"listen": "0.0.0.0:0", "token_file": self.token_file()}})
        address = ("127.0.0.1", self.address()[1])
        for path, open_to_all in (("/", True), ("/healthz", True), ("/readyz", True), ("/metrics", False),
                                  ("/totals", False), ("/views/loaders", False)):
            with self.subTest(path=path):
                self.assertEqual(self.status(address, path), 200 if open_to_all else 401)
                self.assertEqual(self.status(address, path, Authorization=f"Bearer {TOKEN}"), 200)

    def test_at_a_socket(self):
        """Who may connect to it may ask: it is as open as the daemon's own."""
        self.spec("unused")
        path = self.path("page.socket")
        self.server = self.daemon({"metrics": {"listen": path}})
        wait_until(lambda: f"metrics and a page are served at the socket {path}\n" in self.server.log, "it to be told")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        for host, status in (("localhost", 200), ("evil.example", 403)):
            connection = http.client.HTTPConnection("localhost", timeout=PATIENCE)
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(path)
            connection.request("GET", "/views/loaders", headers={"Host": host})
            self.assertEqual(connection.getresponse().status, status)
            connection.close()
        self.server.stop()
        self.assertFalse(os.path.exists(path))

    def test_what_it_does_not_start_with(self):
        self.spec("conf", metrics={"listen": "0.0.0.0:0"})
        self.assert_does_not_start('metrics.listen: "0.0.0.0:0" is not a local address', "--config",
                                   self.path("conf.yaml"), "--socket", self.path("another"))
        self.spec("conf", metrics={"listen": "127.0.0.1:0", "token_file": self.path("none")})
        self.assert_does_not_start("metrics.token_file: " + self.path("none"), "--config",
                                   self.path("conf.yaml"), "--socket", self.path("another"))


# ---- in a browser -------------------------------------------------------------------------------

EVIL = "<script>window.evil = 1</script><img src=x onerror='window.evil = 2'>"
KEPT = {"cache_bytes": 8 << 20, "cache_used_bytes": 2 << 20, "cache_pictures": 40, "cache_hits": 300,
        "cache_misses": 100}


def made_up(loaders=3, ranks=4, at=0.0):
    """Views of a daemon that is `at` seconds old, with texts that try to be markup."""
    names = [EVIL, *(f"loader-{i}" for i in range(1, loaders))]
    rows = [{"name": name, "uid": 1000, "state": "open", "dataset": "range", "length": 1000000, "measured": None,
             "batch": 64, "seed": 0, "users": 1, "workers": 2, "batches": int(at * (10 + i)), "samples": 0,
             "delivered_bytes": int(at * 1e6 * (i + 1)), "retries": i % 3, "faults": 0, "bad": 1,
             "memory_bytes": 1 << 20, "limit_bytes": 0, "starved_s": 0, "starved_by": None,
             **dict.fromkeys(("cache_bytes", "cache_used_bytes", "cache_pictures", "cache_hits", "cache_misses")),
             **(KEPT if i == 0 else {}),
             "mixture": [{"source": EVIL, "weight": 0.25, "drawn": 12}] if i == 0 else [],
             "verdict": "healthy: trainers hardly wait" if i else f"loader-bound: {EVIL} waits; more workers"}
            for i, name in enumerate(names)]
    epochs = [{"loader": EVIL, "uid": 1000, "session": 1, "job": EVIL, "epoch": 0, "rank": rank, "world": ranks,
               "step": int(at * 2), "steps": 10000, "before": [], "running": 1, "ready": 1, "leased": 1, "pinned": 0,
               "credits": 2, "priority": "normal", "samples": 0, "left_out": 0, "waits_for": None, "waits_why": None,
               "age_s": at, "waited_s": at * rank / ranks, "state": "running"} for rank in range(ranks)]
    return {
        "status": {"version": "1", "state": "running", "ready": "yes", "not_ready": "", "uptime_s": at,
                   "sessions": 1, "loaders": loaders, "workers": 2, "memory_bytes": 0, "batches": 0, "samples": 0,
                   "delivered_bytes": 0, "retries": 0, "faults": 0},
        "loaders": rows, "epochs": epochs, "users": [], "sessions": [],
        "ring": [{"loader": name, "uid": 1000, "slots": 8, "free": 3, "filling": 1, "ready": 2, "leased": 2,
                  "retired": 0} for name in names],
        "workers": [{"loader": EVIL, "uid": 1000, "worker": i, "state": "busy", "samples": EVIL, "tasks": 1,
                     "fetch_s": 1.5, "collate_s": 0.25, "cpu_s": 1, "memory_bytes": 1, "restarts": 4 * i,
                     "samples_per_s": 12.5, "step_share": 0.25 + 0.5 * i, "received_bytes": 2 << 20,
                     "round_trip_s": 0.001, "helper": "node7:7071" if i else None} for i in range(2)],
        "times": [{"loader": EVIL, "rank": None, "stage": stage, "batches": 10, "total_s": 1.0, "mean_s": 0.1,
                   "half_s": 0.1, "p99_s": 0.2}
                  for stage in ("queued", "fetch", "collate", "handover", "ready", "held")],
        "quarantine": [{"loader": EVIL, "dataset": "d", "sample": -7, "rank": None, "done": "skipped", "seen": 3,
                        "message": f"/data/{EVIL}: broken"}],
        "lately": [{"loader": EVIL, "uid": 1000, "session": None, "job": None, "rank": None, "world": None, "bin_s": 10,
                    "last_s": 5, "age_s": 0, "waits": None, "read_s": None, "waited_s": None,
                    "batches": [100] * 59 + [25], "bytes": [1 << 20] * 60},
                   *({"loader": EVIL, "uid": 1000, "session": 1, "job": EVIL, "rank": rank, "world": ranks,
                      "bin_s": 10, "last_s": 5, "age_s": 0, "waits": [100 * rank // ranks] * 30 + [None] * 30,
                      "read_s": 300, "waited_s": 300 * rank / ranks, "batches": None, "bytes": None}
                     for rank in range(ranks))],
        "remote": {"pid": 1, "requests": 200, "received_bytes": int(at * 1e6), "repeated": 20, "throttled": 20,
                   "held_back": 7, "broken_off": 0, "timed_out": 0, "server_faults": 0, "failed": 0, "under_way": 3,
                   "waiting": 5, "from_store_bytes": 3 << 20, "from_memory_bytes": 1 << 20, "objects": 7,
                   "held_bytes": 1 << 29, "limit_bytes": 1 << 30, "hit_share": 0.25, "throttled_share": 0.1},
        "members": {"id": EVIL, "state": "complete", "store": "answers", "trouble": "", "nodes": [
            {"node": EVIL, "state": "ready", "self": "yes", "node_rank": 0, "first_rank": 0, "local_ranks": 4,
             "silence_s": 0.5}]},
    }


class MadeUp:
    """Serves the page with views that are made up, at a pace that a test chooses."""

    def __init__(self, **sizes):
        self.sizes, self.begun, self.refuse = sizes, time.monotonic(), None
        sys.path.insert(0, str(PAGE))
        import embed
        page = (PAGE / "page.html").read_text()
        serve = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                serve.answer(self, page, embed.policy(page))

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, handler, page, policy):
        at = time.monotonic() - self.begun
        body, kind, status = page, "text/html; charset=utf-8", 200
        path = handler.path.split("?")[0]
        if path != "/":
            views = made_up(at=at, **self.sizes)
            kind, name = "application/json", path.rsplit("/", 1)[1]
            if self.refuse and path != "/totals" and \
                    handler.headers["Authorization"] != f"Bearer {self.refuse}":
                status, body, kind = 401, "Needs the token.\n", "text/plain"
            else:
                body = json.dumps(views["status" if name == "totals" else name])
        data = body.encode()
        handler.send_response(status)
        for header in (("Content-Type", kind), ("Content-Length", str(len(data))), ("Dloader-Clock", f"{at:.3f}"),
                       ("Content-Security-Policy", policy)):
            handler.send_header(*header)
        handler.end_headers()
        with contextlib.suppress(OSError):
            handler.wfile.write(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def looked(times):
    return f"Number(document.body?.dataset.looks || 0) >= {times}"


@unittest.skipUnless(CHROMIUM, MISSING)
class BrowserCase(PageCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)


class MadeUpViews(BrowserCase):
    def test_texts_are_texts(self):
        with MadeUp() as daemon:
            browser = self.browser
            browser.open(daemon.url)
            browser.wait(looked(3))
            self.assertIsNone(browser.value("window.evil"))
            self.assertEqual(browser.value("document.querySelectorAll('script, img').length"), 1)  # its own
            for place in ("#advice", "#loaders", "#one", "#epochs", "#workers", "#bad", "#nodes", "#round", "#extra"):
                self.assertIn(EVIL, browser.text(place), place)
            # A list that the page knows nothing of is shown as it is.
            self.assertIn("mixture", browser.text("#extra").lower())
            self.assertEqual(browser.complaints(), [])

    def test_figures(self):
        with MadeUp() as daemon:
            browser = self.browser
            browser.open(daemon.url)
            browser.wait(looked(4))
            cells = browser.value("[...document.querySelectorAll('#ranks tbody tr')].map(tr => "
                                  "[...tr.children].map(td => td.innerText.trim()))")
            self.assertEqual([row[0] for row in cells], ["3 of 4", "2 of 4", "1 of 4", "0 of 4"])
            for row, share in zip(cells, (75, 50, 25, 0)):
                self.assertAlmostEqual(float(row[6].split(" ")[0]), share, delta=4)
            # The ten minutes are the daemon's, from the page's first look on; a gap is no line.
            self.assertEqual([row[7] for row in cells], ["75 %", "50 %", "25 %", "0 %"])
            drawn = browser.value("[...document.querySelectorAll('#ranks path')].map(p => p.getAttribute('d'))")
            self.assertTrue(all(d.count("M") == 1 and d.count("L") == 29 for d in drawn), drawn[0])
            self.assertIn("up to 10, 5 now", browser.text("#minutes"))
            self.assertIn("38 % on average", browser.text("#minutes"))
            rows = browser.value("[...document.querySelectorAll('#loaders tbody tr')].map(tr => "
                                 "[...tr.children].map(td => td.innerText.trim()))")
            self.assertEqual(len(rows), 3)
            pace = {row[0]: float(row[4]) for row in rows}
            self.assertAlmostEqual(pace["loader-1"], 11, delta=1.5)
            self.assertIn("MiB", rows[1][5] + rows[0][5])
            self.assertIn("1 of 3 loaders keep their trainers waiting", browser.text("#calm"))
            self.assertEqual(browser.text("#advice li.act strong"), EVIL)
            self.assertRegex(browser.text("#stages"), r"fetch\s+17 %")
            kept = browser.value("[...document.querySelectorAll('#kept tbody td')].map(td => td.innerText.trim())")
            self.assertEqual(kept, ["2.0 MiB of 8.0 MiB", "40", "75 %", "100"])
            workers = browser.value("[...document.querySelectorAll('#workers tr')].map(tr => "
                                    "[...tr.children].map(td => td.innerText.trim()))")
            for title, shown in (("Helper", ["–", "node7:7071"]), ("Received", ["2.0 MiB"] * 2),
                                 ("Round trip", ["1.0 ms"] * 2), ("Samples/s", ["12.5"] * 2),
                                 ("Share", ["25 %", "75 %"]), ("Restarts", ["0", "4"])):
                at = workers[0].index(title)
                self.assertEqual([row[at] for row in workers[1:]], shown, title)
            remote = browser.value("[...document.querySelectorAll('#remote tbody td')].map(td => td.innerText.trim())")
            self.assertEqual(remote[:1] + remote[3:], [
                "200", "3", "5", "20", "20 (10 %)", "7", "0", "0", "0", "0",
                "3.0 MiB", "1.0 MiB (25 %)", "512.0 MiB of 1.0 GiB", "7"])

    def test_numbers(self):
        """As C has them, and nothing where there is no number."""
        names = {"bytes": "bytes", "count": "count", "percent": "percent", "seconds": "span"}
        table = pathlib.Path(__file__).parents[1] / "lib/figures.def"
        rows = re.findall(r'(?m)^FIGURE\((\w+), (\S+), "(.*)"\)$', table.read_text(encoding="utf-8"))
        self.assertEqual({kind for kind, _, _ in rows}, set(names))
        with MadeUp() as daemon:
            self.browser.open(daemon.url)
            self.browser.wait(looked(1))
            shown = self.browser.value("[" + ", ".join(f"{names[kind]}({n})" for kind, n, _ in rows) + "]")
            self.assertEqual(shown, [want for _, _, want in rows])
            self.assertEqual(self.browser.value(f"[{', '.join(names.values())}].map(f => f(NaN))"), ["–"] * 4)

    def test_many(self):
        """A thousand ranks and two hundred loaders: it keeps up, and a key press is answered."""
        with MadeUp(loaders=200, ranks=1000) as daemon:
            browser = self.browser
            browser.open(daemon.url)
            browser.wait(looked(3))
            self.assertEqual(browser.value("document.querySelectorAll('#loaders tbody tr').length"), 200)
            self.assertEqual(browser.value("document.querySelectorAll('#ranks tbody tr').length"), 64)
            self.assertEqual(browser.text("#more"), "Show all 1000 ranks")
            browser.value("document.querySelector('#more').click()")
            self.assertEqual(browser.value("document.querySelectorAll('#ranks tbody tr').length"), 1000)
            spent = browser.value("(() => { const t = performance.now(); draw(); return performance.now() - t; })()")
            print(f"# drawing 200 loaders and 1000 ranks again took {spent:.0f} ms", file=sys.stderr)
            browser.value("document.querySelector('#filter').value = 'loader-19'; "
                          "document.querySelector('#filter').oninput()")
            self.assertEqual(browser.text("#count"), "11 of 200")
            had = browser.value("Number(document.body.dataset.looks)")
            browser.wait(looked(had + 2))
            self.assertEqual(browser.complaints(), [])

    def test_token(self):
        with MadeUp() as daemon:
            browser = self.browser
            daemon.refuse = TOKEN
            browser.open(daemon.url)
            browser.wait(looked(1))
            self.assertIn("You see totals alone. Needs the token.", browser.text("#trouble"))
            self.assertNotIn(EVIL, browser.text("body"))
            browser.value(f"document.querySelector('#token').value = '{TOKEN}'; "
                          "document.querySelector('#enter').click()")
            browser.wait("document.querySelectorAll('#loaders tbody tr').length === 3")
            browser.wait("document.querySelector('#trouble').hidden")
            browser.open(daemon.url + f"#token={TOKEN}")
            browser.open("about:blank")
            browser.open(daemon.url + f"?#token={TOKEN}")
            browser.wait("document.querySelectorAll('#loaders tbody tr').length === 3")
            self.assertNotIn(TOKEN, browser.value("location.href"))  # nor in the history


class RealDaemon(BrowserCase):
    def train(self, name, ranks, pause, **spec):
        """Trainers that take so long for a batch, until the test ends."""
        client, over = self.client(self.server), threading.Event()
        loader = client.open(named(name, **{**RANGE, "dataset": {"kind": "range", "length": 30000}, **spec}))["loader"]
        for rank in range(ranks):
            client.start(loader, rank=rank, world=ranks)

        def go_on():
            with contextlib.suppress(OSError, EOFError, DaemonError, AssertionError):
                while not over.is_set():
                    for batch in client.next_batches():
                        over.wait(pause)
                        batch.release()

        thread = threading.Thread(target=go_on)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(over.set)

    def begin_load(self, browser, looks=3):
        """Three loaders that are read, one of them slower than its trainer; the page has looked at them for a while."""
        host, port = self.begin()
        self.train("images", 4, 0.02)
        self.train("speech", 2, 0.05)
        self.train("tokens", 1, 0.002, workers={"count": 1}, batch={"size": 40000},
                   dataset={"kind": "range", "length": 10 ** 10})
        browser.open(f"http://{host}:{port}/")
        browser.wait(looked(looks))

    def test_what_is_on_it(self):
        browser = self.browser
        self.begin_load(browser)
        self.assertRegex(browser.text("#daemon"), r"version .*, running, up ")
        self.assertEqual(browser.value("[...document.querySelectorAll('#loaders td:first-child')]"
                                       ".map(e => e.innerText)"),
                         ["images", "speech", "tokens"])
        self.assertIn("of epoch 0", browser.text("#loaders"))
        self.assertIn("held / ", browser.text("#loaders"))
        self.assertRegex(browser.text("#one-verdict"), "[a-z]")
        self.assertTrue(any(f"0 of {world}" in browser.text("#ranks") for world in (1, 2, 4)))
        for table in ("epochs", "stages", "ring", "ranks", "workers", "minutes"):
            self.assertTrue(browser.value(f"!document.querySelector('#{table}').parentNode.hidden"), table)
        self.assertTrue(browser.value("document.querySelector('#cluster').hidden"))
        self.assertEqual(browser.complaints(), [])

    def test_by_keyboard_and_screen_reader(self):
        browser = self.browser
        self.begin_load(browser)
        chosen = "document.querySelector('#one-name').innerText"
        browser.value("[...document.querySelectorAll('#loaders button')].pop().click()")
        self.assertEqual(browser.value(chosen), "Loader tokens")
        browser.value("document.querySelector('#filter').focus()")
        for _ in range(30):
            browser.press("Tab")
            if browser.value("document.activeElement.innerText") == "images":
                break
        self.assertEqual(browser.value("document.activeElement.tagName"), "BUTTON")
        browser.press("Enter")
        browser.wait(f"{chosen} === 'Loader images'")
        self.assertEqual(browser.value("document.activeElement.id"), "one-name")
        # A look that follows takes nobody's place away.
        had = browser.value("Number(document.body.dataset.looks)")
        browser.wait(looked(had + 2))
        self.assertEqual(browser.value("document.activeElement.id"), "one-name")
        nodes = browser.command("Accessibility.getFullAXTree")["nodes"]
        # Not every Chromium takes the space away with which a label's text ends.
        named = {(node["role"]["value"], node.get("name", {}).get("value", "").strip())
                 for node in nodes if "role" in node}
        for want in (("heading", "Loader images"), ("button", "Pause"), ("button", "tokens"), ("main", ""),
                     ("columnheader", "Time left"), ("searchbox", "Name contains")):
            self.assertIn(want, named)
        self.assertTrue(any(role == "table" for role, _ in named))
        self.assertFalse({("button", ""), ("searchbox", ""), ("combobox", "")} & named)

    def tiles_of_rows(self, browser):
        """How many of the totals stand side by side."""
        tops = browser.value("[...document.querySelectorAll('#totals div')].map(e => e.getBoundingClientRect().top)")
        return [tops.count(top) for top in sorted(set(tops))]

    def test_on_a_phone_and_in_the_dark(self):
        browser = self.browser
        self.begin_load(browser)
        browser.size(360, 740, mobile=True)
        self.assertLessEqual(browser.value("document.documentElement.scrollWidth"), 360)
        # No table is wider than the screen, not even within a frame of its own that scrolls.
        self.assertEqual(browser.value("[...document.querySelectorAll('.wide')].filter("
                                       "e => e.scrollWidth > e.clientWidth).map(e => e.firstElementChild.id)"), [])
        self.assertEqual(self.tiles_of_rows(browser), [3, 3, 3])
        for scheme, darker in (("light", False), ("dark", True)):
            browser.media(prefers_color_scheme=scheme)
            self.assertEqual(browser.value(CONTRAST), [])
            self.assertEqual(browser.value("luminance(getComputedStyle(document.body).backgroundColor) < 0.5"
                                           .replace("luminance", LUMINANCE)), darker)

    def test_the_daemon_goes_away(self):
        browser = self.browser
        self.begin_load(browser)
        self.server.stop()
        browser.wait("!document.querySelector('#trouble').hidden")
        self.assertIn("The daemon does not answer, and this page shows what it said last", browser.text("#trouble"))
        self.assertIn("images", browser.text("#loaders"))

    @unittest.skipUnless(os.environ.get("DLOADER_PICTURE"), "no picture is wanted: see ./dev pictures")
    def test_picture(self):
        """What the README shows, where $DLOADER_PICTURE says, in so few colours that it is small."""
        from PIL import Image

        self.begin_load(self.browser, 1)
        self.browser.size(1240, 830)
        self.browser.wait(looked(8))
        self.browser.screenshot(os.environ["DLOADER_PICTURE"])
        with Image.open(os.environ["DLOADER_PICTURE"]) as picture:
            few = picture.convert("RGB").quantize(64)
        few.save(os.environ["DLOADER_PICTURE"], optimize=True)


LUMINANCE = """(text => { const c = text.match(/[\\d.]+/g).map(Number).slice(0, 3).map(v => v / 255)
  .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; })"""
# WCAG 2's contrast of each text with what is behind it: what has less than 4.5.
CONTRAST = """(() => { const luminance = %s, weak = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.getClientRects().length) continue;
    let b = e;
    while (b && /, 0\\)$/.test(getComputedStyle(b).backgroundColor)) b = b.parentElement;
    const [x, y] = [getComputedStyle(e).color, getComputedStyle(b || document.body).backgroundColor].map(luminance)
      .sort((p, q) => q - p);
    if ((x + 0.05) / (y + 0.05) < 4.5) weak.push(e.tagName + ' ' + e.textContent.slice(0, 40));
  }
  return weak; })()""" % LUMINANCE
