"""The files of daemon/examples/deploy: by a real Slurm, a real sshd, and the containers of the manifests in
namespaces of their own, which share only what the manifests mount.

Environment: what the package takes; KUBERNETES_PYTHON: an interpreter with kubernetes-validate, by default
this one.
"""

import getpass
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import test_slurm
from dltest import Daemon, wait_until

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "cluster"))
import stores  # noqa: E402

try:
    import yaml
except ImportError:
    yaml = None

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "daemon/examples/deploy"
PATIENCE = 120  # seconds that a busy machine is given; nothing is judged by it
LENGTH = 1000
RANKS = [f"rank {rank} of 2: {LENGTH // 2} samples" for rank in range(2)]
PROGRAMS = f"{os.path.dirname(os.environ['DLOADERD'])}:{os.path.dirname(os.environ['DLCTL'])}"
ENVIRON = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}:/usr/sbin"}

# The last four versions that it knows.
VALIDATE = """
import json, pathlib, re, sys
import kubernetes_validate
folders = pathlib.Path(kubernetes_validate.__file__).parent.glob("kubernetes-json-schema/v*-local-strict")
minors = sorted({int(re.match(r"v1[.](\\d+)[.]", folder.name)[1]) for folder in folders})[-4:]
assert len(minors) == 4, minors
for resource in json.load(sys.stdin):
    for minor in minors:
        kubernetes_validate.validate(resource, f"1.{minor}", strict=True)
print(*minors)
"""

# What ours have of a kustomization and of a JobSet, for which there is no schema here.
KUSTOMIZATION = {"apiVersion", "kind", "resources", "patches", "images"}
JOBSET = {"failurePolicy", "replicatedJobs"}


def merge(into, patch):
    """As a strategic merge does it with mappings, and with lists of what has names, such as containers and volumes; in
    front, as it puts new ones.
    """
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        elif isinstance(value, list):
            known = {each["name"]: each for each in into[key]}
            for each in value:
                merge(known.get(each["name"], {}), each)
            into[key][:0] = [each for each in value if each["name"] not in known]
        else:
            into[key] = value


def containers(resource):
    """All of the pods that a resource makes."""
    if isinstance(resource, list):
        for each in resource:
            yield from containers(each)
    elif isinstance(resource, dict):
        for key, value in resource.items():
            yield from value if key in ("containers", "initContainers") else containers(value)


def kustomize(folder):
    """What `kubectl kustomize` makes of the folder, as far as ours need it."""
    told = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert (told["apiVersion"], told["kind"]) == ("kustomize.config.k8s.io/v1beta1", "Kustomization")
    assert set(told) <= KUSTOMIZATION, set(told)
    resources = []
    for name in told["resources"]:
        path = folder / name
        resources += kustomize(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
    for patch in told.get("patches", ()):
        for change in yaml.safe_load_all((folder / patch["path"]).read_text()):
            target, = (each for each in resources if (each["kind"], each["metadata"]["name"]) ==
                       (change["kind"], change["metadata"]["name"]))
            merge(target, change)
    named = {image["name"]: f"{image['newName']}:{image['newTag']}" for image in told.get("images", ())}
    for container in containers(resources):
        container["image"] = named.get(container["image"], container["image"])
    return resources


def unshared(*command):
    """A pod's namespaces: of mounts, processes, network, names and System V's memory."""
    return ["unshare", "-m", "-p", "-n", "-u", "-i", "--fork", "--mount-proc", "--kill-child", *command]


def may_unshare():
    return not subprocess.run(unshared("true"), check=False, stderr=subprocess.DEVNULL).returncode


class Case(unittest.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="dloader-deploy-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o755)
        self.data = self.folder / "data"
        self.data.mkdir()
        shutil.copy(DEPLOY / "train.py", self.data)
        (self.data / "numbers.txt").write_text("".join(f"{i:07}\n" for i in range(LENGTH)))

    def meet(self):
        """What helpers and a daemon have in common: here a TCPStore, which the daemon serves."""
        secret = self.folder / "secret"
        secret.write_text("0123456789abcdef" * 2)
        port, = test_slurm.free_ports(1)
        return {"helpers": {"run": "train", "secret_file": str(secret)}, "data_roots": [str(self.data)],
                "rendezvous": {"backend": "c10d", "endpoint": f"127.0.0.1:{port}",
                               "heartbeat": {"interval": "1s", "missed": 5}}}

    def write_config(self, name, config):
        path = self.folder / name
        path.write_text(json.dumps(config))
        return path

    def helped(self, meet):
        (self.folder / "daemon").mkdir()
        daemon = Daemon(str(self.folder / "daemon"), meet)
        self.addCleanup(daemon.stop)
        return daemon

    def load_with_helper(self, daemon):
        """A loader that is open has ready workers at the helper."""
        with daemon.client() as client:
            client.open(json.loads(self.json_spec()))
            wait_until(lambda: [row["state"] for row in client.query("workers") if row["helper"]] == ["ready"] * 2,
                       lambda: f"workers at a helper: {daemon.log[-2000:]}")

    def json_spec(self):
        return json.dumps({"name": "numbers", "seed": 1, "batch": {"size": 10}, "workers": {"count": 1},
                           "dataset": {"kind": "records", "paths": str(self.data / "numbers.txt"), "dtype": "uint8",
                                       "shape": [8]}})

    def spec(self, path):
        (self.data / "numbers.yaml").write_text(
            "name: numbers\nseed: 1\nbatch: {size: 10}\nsampler: {kind: random}\n"
            f"dataset: {{kind: records, paths: {path}/numbers.txt, dtype: uint8, shape: [8]}}\n")
        return self.data / "numbers.yaml"


@unittest.skipUnless(shutil.which("sshd", path=ENVIRON["PATH"]) and shutil.which("ssh"), "no openssh-server")
class Ssh(Case):
    def serve(self, flags=""):
        """A program that is ssh to this machine."""
        key, port = self.folder / "key", test_slurm.free_ports(1)[0]
        for name in ("host", "key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], check=True)
        os.makedirs("/run/sshd", exist_ok=True)
        server = subprocess.Popen(
            [shutil.which("sshd", path=ENVIRON["PATH"]), "-D", "-e", "-f", "/dev/null", "-p", str(port),
             "-o", "ListenAddress=127.0.0.1", "-h", str(self.folder / "host"), "-o", "StrictModes=no",
             "-o", f"AuthorizedKeysFile={key}.pub", "-o", "PidFile=none", "-o", "UsePAM=no"],
            stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        # What is in $PATH and $PYTHONPATH here has to be there, as if it were installed.
        words = " ".join(f"{name}={shlex.quote(ENVIRON[name])}" for name in
                         ("PATH", "PYTHONPATH", "LD_PRELOAD", "ASAN_OPTIONS", "LSAN_OPTIONS", "DLOADER_LOCAL_MODULE")
                         if name in ENVIRON)
        ssh = self.folder / "ssh"
        ssh.write_text(f"#!/bin/sh\nexec ssh -q {flags} -i {key} -p {port} -o StrictHostKeyChecking=no "
                       f"-o UserKnownHostsFile=/dev/null {getpass.getuser()}@$1 \"export {words}; $2\"\n")
        ssh.chmod(0o755)
        wait_until(lambda: not subprocess.run([ssh, "127.0.0.1", "true"], check=False).returncode, "the server")
        return ssh

    def test_helpers(self):
        meet = self.meet()
        script = subprocess.Popen([DEPLOY / "ssh/helpers.sh", "127.0.0.1"], stdin=subprocess.DEVNULL,
                                  env={**ENVIRON, "SSH": str(self.serve("-tt")), "ADDRESS": "127.0.0.1", "PORT": "0",
                                       "CONFIG": str(self.write_config("helper.conf", meet))})
        self.addCleanup(script.wait)
        self.addCleanup(script.terminate)
        daemon = self.helped(meet)
        self.load_with_helper(daemon)
        script.terminate()
        script.wait()
        wait_until(lambda: "helpers of train: 0 are there" in daemon.log, "it to end with the script")

    def test_launch(self):
        ssh = self.serve()
        done = subprocess.run([DEPLOY / "ssh/launch.sh", "127.0.0.1", "127.0.0.1"], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=PATIENCE, check=False,
                              env={**ENVIRON, "SSH": str(ssh), "TRAIN": str(self.data / "train.py"),
                                   "SPEC": str(self.spec(self.data))})
        self.assertEqual((sorted(done.stdout.splitlines()), done.returncode), (RANKS, 0), done.stderr)


@unittest.skipUnless(os.geteuid() == 0, "Slurm is started as root")
@unittest.skipUnless(all(shutil.which(name, path=test_slurm.PATH) for name in test_slurm.PROGRAMS),
                     "slurm-wlm and munge are not installed")
class Slurm(Case):
    def setUp(self):
        super().setUp()
        for name in ("prolog", "epilog"):
            script = self.folder / name
            script.write_text(f"#!/bin/sh\nexport PATH={shlex.quote(ENVIRON['PATH'])} DLOADER_JOBS={self.folder}/jobs\n"
                              f"exec {DEPLOY}/slurm/{name}.sh\n")
            script.chmod(0o755)
        plain = test_slurm.CONFIG
        test_slurm.CONFIG = plain + f"Prolog={self.folder}/prolog\nEpilog={self.folder}/epilog\nPrologFlags=Alloc\n"
        self.slurm = test_slurm.Slurm()
        if len(self.nodes) > 1:
            self.be_several()
        self.addCleanup(self.slurm.doCleanups)
        try:
            self.slurm.setUp()
        finally:
            test_slurm.CONFIG = plain

    nodes = (None,)

    def be_several(self):
        """This machine is nodes of several names, each with a slurmd."""
        self.slurm.nodes = self.nodes
        lines = test_slurm.CONFIG.replace("{folder}/spool", "{folder}/spool.%n").splitlines()
        lines = [line for line in lines if not line.startswith(("NodeName=", "PartitionName=", "SlurmdPidFile="))]
        for node, port in zip(self.nodes, test_slurm.free_ports(len(self.nodes)), strict=True):
            lines.append(f"NodeName={node} NodeHostname={{host}} NodeAddr=127.0.0.1 Port={port} CPUs=1 State=UNKNOWN")
        test_slurm.CONFIG = "\n".join([*lines, "SlurmdPidFile={folder}/slurmd.%n.pid",
                                       "SchedulerParameters=bf_interval=1",
                                       f"PartitionName=all Nodes={','.join(self.nodes)} Default=YES State=UP", ""])

    def test_job(self):
        jobs, out = self.folder / "jobs", self.folder / "out"
        env = {**self.slurm.environ, "PATH": ENVIRON["PATH"], "DLOADER_JOBS": str(jobs),
               "TRAIN": str(self.data / "train.py"), "SPEC": str(self.spec(self.data))}
        done = subprocess.run(["sbatch", "--wait", "--overcommit", f"--output={out}", DEPLOY / "slurm/train.sbatch"],
                              env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE,
                              check=False)
        said = out.read_text() if out.exists() else ""
        self.assertEqual((sorted(said.splitlines()), done.returncode), (RANKS, 0), done.stdout)
        wait_until(lambda: not list(jobs.iterdir()), "the job's daemon to be gone")


class SlurmOfTwo(Slurm):
    nodes = ("a", "b")
    test_job = None

    def test_helpers(self):
        """A heterogeneous job, whose second part lends workers to a daemon that looks for them."""
        meet, out = self.meet(), self.folder / "out"
        daemon = self.helped(meet)
        # Instead of a training: it waits for the daemon to have found a helper.
        done = self.folder / "done"
        os.mkfifo(done)
        writes = os.open(done, os.O_RDWR)
        (self.data / "train.py").write_text(f"open({str(done)!r}).read()\n")
        env = {**self.slurm.environ, "PATH": ENVIRON["PATH"], "DLOADER_JOBS": str(self.folder / "jobs"),
               "HELPER_CONFIG": str(self.write_config("helper.conf", meet)), "TRAIN": str(self.data / "train.py"),
               "SPEC": "numbers.yaml"}
        with subprocess.Popen(["sbatch", "--wait", f"--output={out}", "--ntasks=1", ":", "--ntasks=1",
                               "--cpus-per-task=1", DEPLOY / "slurm/helpers.sbatch"], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as job:
            try:
                self.load_with_helper(daemon)
            finally:
                os.close(writes)
                said, _ = job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, 0, said + (out.read_text() if out.exists() else ""))
        wait_until(lambda: "helpers of train: 0 are there" in daemon.log, "it to end with the job")


class Pod:
    """A container of a manifest: it sees what is mounted, and nothing else of /run, /srv and /mnt."""

    def __init__(self, case, pod, container, hosts, env=()):
        self.case = case
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        lines = ["set -e", "for folder in /run /srv /mnt; do mount -t tmpfs tmpfs $folder; done",
                 "mount -t tmpfs -o size=64k tmpfs /dev/shm"]
        for mount in container["volumeMounts"]:
            host = hosts[mount["name"]]
            self.case.assertIn(mount["name"], volumes)
            lines += [f"mkdir -p {mount['mountPath']}", f"mount --bind {host} {mount['mountPath']}"]
            if mount.get("readOnly"):
                lines.append(f"mount -o remount,bind,ro {mount['mountPath']}")
        lines.append(f"mount -t tmpfs tmpfs {case.folder}")  # where the host's side of it is
        lines.append("exec " + shlex.join(container["command"]))
        self.process = subprocess.Popen(unshared("sh", "-c", "\n".join(lines)), env={**ENVIRON, **dict(env)}, text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(self):
        """What it printed, once it is over."""
        out, error = self.process.communicate(timeout=PATIENCE)
        self.case.assertEqual(self.process.returncode, 0, error)
        return out


@unittest.skipUnless(yaml, "no PyYAML")
class Kubernetes(Case):
    def succeeds(self, command):
        return not subprocess.run(command, env=ENVIRON, check=False, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL).returncode

    def manifests(self, kind="fixed"):
        return kustomize(DEPLOY / "kubernetes" / kind)

    def test_schemas(self):
        for kind, kinds in (("fixed", ["ConfigMap", "DaemonSet", "Job"]),
                            ("cluster", ["ConfigMap", "DaemonSet", "Service", "StatefulSet", "Job"]),
                            ("helpers", ["ConfigMap", "DaemonSet", "Service", "StatefulSet", "ConfigMap", "Deployment",
                                         "HorizontalPodAutoscaler", "Job"])):
            with self.subTest(kind):
                self.check_schemas(self.manifests(kind), kinds)

    def check_schemas(self, resources, kinds):
        """The JobSet's own has none here; what it makes is a Job."""
        python = os.environ.get("KUBERNETES_PYTHON", sys.executable)
        found = subprocess.run([python, "-c", "import kubernetes_validate"], check=False, stderr=subprocess.DEVNULL)
        if found.returncode:
            self.skipTest("no kubernetes-validate")
        jobset, = (each for each in resources if each["kind"] == "JobSet")
        resources.remove(jobset)
        self.assertEqual((jobset["apiVersion"], jobset["kind"]), ("jobset.x-k8s.io/v1alpha2", "JobSet"))
        self.assertLessEqual(set(jobset["spec"]), JOBSET)
        jobs = jobset["spec"]["replicatedJobs"]
        for job in jobs:
            self.assertEqual(set(job), {"name", "replicas", "template"})
        resources += [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, **job["template"]}
                      for job in jobs]
        self.assertEqual([resource["kind"] for resource in resources], kinds)
        images = {container["image"] for container in containers(resources)}
        self.assertTrue(all("/" in image and ":" in image for image in images), images)
        env = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "PYTHONPATH")}
        done = subprocess.run([python, "-c", VALIDATE], input=json.dumps(resources), text=True, env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        print("# valid in Kubernetes 1." + ", 1.".join(done.stdout.split()), file=sys.stderr)

    @unittest.skipUnless(shutil.which("kubectl"), "no kubectl")
    def test_kustomize(self):
        """Its own is what the other cases take for it."""
        for kind in ("fixed", "cluster", "helpers"):
            text = subprocess.run(["kubectl", "kustomize", DEPLOY / "kubernetes" / kind], text=True, check=True,
                                  stdout=subprocess.PIPE).stdout
            self.assertCountEqual(list(yaml.safe_load_all(text)), self.manifests(kind))

    def test_gpu_nodes(self):
        """The daemon's pod is put on nodes that are tainted for pods with GPUs."""
        _, daemons, _ = self.manifests()
        tolerated = {(each["key"], each["operator"], each["effect"])
                     for each in daemons["spec"]["template"]["spec"]["tolerations"]}
        self.assertLessEqual({(f"{maker}.com/gpu", "Exists", "NoSchedule") for maker in ("nvidia", "amd")}, tolerated)

    @unittest.skipUnless(os.geteuid() == 0 and may_unshare(), "no namespaces")
    def test_pods(self):
        """They share the socket's folder and the data. A /dev/shm of 64 KiB is enough: it is not used."""
        config, daemons, train = self.manifests()
        hosts = {name: self.folder / name for name in ("socket", "config", "data")}
        for host in hosts.values():
            host.mkdir(exist_ok=True)
        for name, text in config["data"].items():
            (hosts["config"] / name).write_text(text)
        self.spec("/srv/data")
        pod = daemons["spec"]["template"]["spec"]
        daemon = Pod(self, pod, pod["containers"][0], hosts)
        self.addCleanup(lambda: (daemon.process.kill(), daemon.process.communicate()))
        probes = [pod["containers"][0][probe]["exec"]["command"] for probe in ("readinessProbe", "livenessProbe")]
        for probe in probes:
            command = [word.replace("/run/dloaderd/", f"{hosts['socket']}/") for word in probe]
            wait_until(lambda command=command: daemon.process.poll() is not None or self.succeeds(command), probe)
        self.assertIsNone(daemon.process.poll())
        pod = train["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        container = pod["containers"][0]
        known = {entry["name"]: entry.get("value") for entry in container["env"]}
        pods = [Pod(self, pod, container, hosts, {**known, "RANK": str(rank)}.items()) for rank in range(2)]
        self.assertEqual([each.end() for each in pods], [rank + "\n" for rank in RANKS])

    @unittest.skipUnless(shutil.which("etcd"), "no etcd")
    def test_cluster(self):
        """Daemons of two nodes with the configuration of the cluster, and a trainer on each."""
        config, _, _, _, train = self.manifests("cluster")
        settings = yaml.safe_load(config["data"]["dloaderd.conf"])
        store = stores.Etcd()
        self.addCleanup(store.stop)
        self.assertEqual(settings["rendezvous"]["endpoint"], "dloader-store:2379")
        settings["rendezvous"]["endpoint"] = store.endpoint
        settings["data_roots"] = [str(self.data)]
        job = train["spec"]["replicatedJobs"][0]
        container = job["template"]["spec"]["template"]["spec"]["containers"][0]
        command = [word.replace("/srv/data", str(self.data)) for word in container["command"]]
        known = {entry["name"]: entry["value"] for entry in container["env"]}
        self.spec(self.data)
        ranks = []
        for node in ("a", "b"):
            settings["rendezvous"]["node"] = node
            folder = self.folder / node
            folder.mkdir()
            daemon = Daemon(str(folder), settings)
            self.addCleanup(daemon.stop)
            ranks.append(subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                          env={**ENVIRON, **known, "DLOADER_SOCKET": daemon.socket}))
        self.assertEqual((len(ranks), settings["rendezvous"]["local_ranks"]), (job["replicas"], 1))
        said = [rank.communicate(timeout=PATIENCE) for rank in ranks]
        self.assertEqual(sorted(out.strip() for out, _ in said), RANKS, said)

    def test_paths_agree(self):
        for kind in ("fixed", "cluster"):
            with self.subTest(kind):
                self.check_paths(self.manifests(kind))

    def check_paths(self, resources):
        """A spec names files as the daemon's pod and the trainers' see them, below data_roots."""
        config, daemons, *_, train = resources
        roots = yaml.safe_load(config["data"]["dloaderd.conf"])["data_roots"]
        pods = [daemons["spec"]["template"]["spec"],
                train["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]]
        seen = [{mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]} for pod in pods]
        for name in ("socket", "data"):
            self.assertEqual(seen[0][name], seen[1][name])
        self.assertEqual(roots, [seen[0]["data"]])
        hosts = [{volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
                 for pod in pods]
        for name in ("socket", "data"):
            self.assertEqual(hosts[0][name], hosts[1][name])
        self.assertEqual({pod["securityContext"]["runAsUser"] for pod in pods}, {1000})
