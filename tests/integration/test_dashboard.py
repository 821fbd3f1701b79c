"""The dashboard for Grafana and the rules for Prometheus: they speak of what there is, and a Prometheus
that reads a daemon has an answer to each of the dashboard's questions.
"""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest
import urllib.error
import urllib.parse
import urllib.request

from bucket import Bucket
from dltest import PATIENCE, Daemon, LifeCase, wait_until
from test_metrics import PROMTOOL
from test_metrics_http import ADDRESS, free_port

ROOT = pathlib.Path(__file__).parent.parent.parent
DASHBOARD = ROOT / "systemd/metrics/grafana.json"
ALERTS = ROOT / "systemd/metrics/alerts.yml"
PROMETHEUS = os.environ.get("PROMETHEUS") or shutil.which("prometheus", path="/usr/bin:/usr/local/bin")
NAME = re.compile(r"\bdloader_\w+")


def known_names():
    """As metrics.def has them, with what a summary's go on with."""
    names = set()
    for name, kind in re.findall(r'^FAMILY\("(\w+)", (\w+),', (ROOT / "proto/shared/metrics.def").read_text(), re.M):
        names |= {name, name + "_sum", name + "_count"} if kind == "SUMMARY" else {name}
    return names


def panels():
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def questions(interval="5m"):
    """{where: expression}, with what Grafana fills in."""
    return {f"{panel['title']} {target['refId']}":
            target["expr"].replace("$__rate_interval", interval).replace("$instance", ".*")
            .replace("$loader", ".*") for panel in panels() for target in panel["targets"]}


def promtool(*args):
    done = subprocess.run([PROMTOOL, *args], capture_output=True, text=True, check=False, timeout=PATIENCE)
    return done.returncode, done.stdout + done.stderr


class Files(LifeCase):
    def test_each_name_is_one_that_is_told(self):
        dashboard = json.loads(DASHBOARD.read_text())
        asked = [*questions().values(), *(v["definition"] for v in dashboard["templating"]["list"])]
        for text in (*asked, ALERTS.read_text()):
            self.assertTrue(NAME.findall(text), text)
            self.assertLessEqual(set(NAME.findall(text)), known_names())

    def test_it_can_be_imported(self):
        dashboard = json.loads(DASHBOARD.read_text())
        self.assertEqual([put["name"] for put in dashboard["__inputs"]], ["DS_PROMETHEUS"])
        of_data = [v["datasource"] for v in dashboard["templating"]["list"]]
        of_data += [part["datasource"] for panel in panels() for part in (panel, *panel["targets"])]
        for source in of_data:
            self.assertEqual(source, {"type": "prometheus", "uid": "${DS_PROMETHEUS}"})
        kinds = {p["id"] for p in dashboard["__requires"] if p["type"] == "panel"} | {"row"}
        self.assertEqual({panel["type"] for panel in dashboard["panels"]}, kinds)
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(set(ids)), len(ids))

    def test_no_panel_covers_another(self):
        taken = collections.Counter()
        for panel in json.loads(DASHBOARD.read_text())["panels"]:
            at = panel["gridPos"]
            self.assertLessEqual(at["x"] + at["w"], 24)
            taken.update((x, y) for x in range(at["x"], at["x"] + at["w"])
                         for y in range(at["y"], at["y"] + at["h"]))
        self.assertEqual(max(taken.values()), 1)

    @unittest.skipUnless(PROMTOOL, "no promtool: apt-get install prometheus")
    def test_each_question_can_be_parsed(self):
        rules = [{"record": f"a:{i}", "expr": expr} for i, expr in enumerate(questions().values())]
        path = self.spec("rules", groups=[{"name": "all", "rules": rules}])
        self.assertEqual(promtool("check", "rules", path)[0], 0, promtool("check", "rules", path)[1])
        rules[0]["expr"] += " +"
        self.assertNotEqual(promtool("check", "rules", self.spec("rules", groups=[{"name": "a", "rules": rules}]))[0],
                            0)

    @unittest.skipUnless(PROMTOOL, "no promtool: apt-get install prometheus")
    def test_alerts(self):
        """Each comes when it should, and none of them in health."""
        self.assertEqual(promtool("check", "rules", str(ALERTS))[0], 0)
        wrong = {
            "DloaderKeepsTrainersWaiting": ('dloader_loader_verdict{loader="a",verdict="starved by memory"}', "1x60"),
            "DloaderRankStraggles": ('dloader_loader_verdict{loader="a",verdict="straggling"}', "1x60"),
            "DloaderWorkersDie": ('dloader_worker_restarts_total{loader="a",worker="0"}', "0+1x60"),
            "DloaderWorkersStuck": ("dloader_stuck_workers", "1x60"),
            "DloaderFaults": ('dloader_loader_faults_total{loader="a"}', "0+1x60"),
            "DloaderBadSamples": ('dloader_loader_bad_samples_total{loader="a"}', "0+1x60"),
            "DloaderStoreFails": ("dloader_cluster_store_up", "0x60"),
            "DloaderSamplesLeftOut": ("dloader_cluster_left_out_samples_total", "0+9x60"),
            "DloaderNodeIsSilent": ('dloader_cluster_node_silence_seconds{node="a"}', "0+60x60"),
        }
        well = [('dloader_loader_verdict{loader="a",verdict="healthy"}', "1x60"),
                ('dloader_worker_restarts_total{loader="a",worker="0"}', "3x60"),
                ("dloader_stuck_workers", "0x60"),
                ('dloader_loader_faults_total{loader="a"}', "7x60"),
                ('dloader_loader_bad_samples_total{loader="a"}', "9x60"),
                ("dloader_cluster_store_up", "1x60"),
                ("dloader_cluster_left_out_samples_total", "9x60"),
                ('dloader_cluster_node_silence_seconds{node="a"}', "3x60")]
        self.assertEqual(sorted(re.findall(r"alert: (\w+)", ALERTS.read_text())), sorted(wrong))

        def alerts(series):
            """The names of those that are there after half an hour."""
            # What fires is asked for as a series, so that no label need be told here.
            test = {"interval": "1m", "input_series": [{"series": s, "values": v} for s, v in series],
                    "promql_expr_test": [{"expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                                          "eval_time": "30m",
                                          "exp_samples": [{"labels": '{never="there"}', "value": 1}]}]}
            path = self.spec("alerts", rule_files=[str(ALERTS)], evaluation_interval="1m", tests=[test])
            return set(re.findall(r'{alertname="(\w+)"} 1', promtool("test", "rules", path)[1]))

        self.assertEqual(alerts(well), set())
        for name, series in wrong.items():
            with self.subTest(name):
                self.assertEqual(alerts([series]), {name})


@unittest.skipUnless(PROMETHEUS, "no Prometheus: apt-get install prometheus")
class Asked(LifeCase):
    """A daemon in the middle of its work, one that meets others, and a Prometheus that reads both."""

    def begin(self, name, env=None, **config):
        os.mkdir(self.path(name))
        daemon = Daemon(self.path(name), {"metrics": {"listen": "127.0.0.1:0"}, **config}, env=env)
        self.addCleanup(daemon.stop)
        wait_until(lambda: ADDRESS.search(daemon.log), "the address")
        return daemon, ":".join(ADDRESS.search(daemon.log).groups())

    def prometheus(self, targets):
        config = self.spec("prometheus", scrape_configs=[
            {"job_name": "dloader", "scrape_interval": "1s", "static_configs": [{"targets": targets}]}])
        port = free_port()
        with open(self.path("prometheus.log"), "w") as log:
            process = subprocess.Popen(
                [PROMETHEUS, "--config.file", config, "--storage.tsdb.path", self.path("series"),
                 "--web.listen-address", f"127.0.0.1:{port}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return f"http://127.0.0.1:{port}"

    def answer(self, server, question):
        query = urllib.parse.urlencode({"query": question})
        try:
            with urllib.request.urlopen(f"{server}/api/v1/query?{query}", timeout=PATIENCE) as reply:
                return json.load(reply)["data"]["result"]
        except urllib.error.URLError:  # it does not listen yet
            return []

    def test_each_question_has_an_answer(self):
        with open(self.path("lines.txt"), "w") as file:
            file.writelines("word " * (i % 50 + 1) + "\n" for i in range(20000))
        bucket = Bucket(self.path(""))
        self.addCleanup(bucket.close)
        alone, first = self.begin("alone", env=bucket.environment)
        client = self.client(alone)
        loader = client.open({"name": "tokens", "collate": {"kind": "pad"}, "batch": {"tokens": 1024}, "seed": 1,
                              "dataset": {"kind": "text", "paths": "s3://bucket/lines.txt", "tokenizer": "bytes"}})
        client.start(loader["loader"], job="j", credits=2)
        ends = [f"127.0.0.1:{free_port()}"]
        nodes = [self.begin(f"node{i}", rendezvous={"backend": "c10d", "endpoint": ends[0], "id": "run",
                                                    "node": f"n{i}", "host": "no" if i else "yes",
                                                    "nodes": {"min": 2, "max": 2}}) for i in range(2)]
        server = self.prometheus([first] + [address for _, address in nodes])
        open_questions = questions(interval="30s")

        def answered():
            for batch in client.next_batches():
                batch.release(1000)
            for where in [w for w, question in open_questions.items() if self.answer(server, question)]:
                del open_questions[where]
            return not open_questions

        try:
            wait_until(answered, "an answer to each question")
        finally:
            self.assertEqual(open_questions, {})
        # None of our labels has the name of one of Prometheus' own, which it would change.
        [waits] = self.answer(server, "rate(dloader_rank_wait_seconds_total[30s])")
        self.assertEqual([label for label in waits["metric"] if label.startswith("exported_")], [])
        self.assertEqual((waits["metric"]["loader"], waits["metric"]["job_name"]), ("tokens", "j"))
