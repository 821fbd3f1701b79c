"""Where keys come from, and whose they are: STS, a container's service and an instance's metadata service issue them,
and are asked anew before they end; each user of root's daemon reads by the user's own, in a process of the user's own.
"""

import contextlib
import datetime
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import types
import unittest
import unittest.mock
import urllib.parse

import dltest
from bucket import Bucket
from dltest import DaemonError, TestCase, as_user, dlctl, wait_until
from web import Web, fetchers_of

SESSION, IDENTITY, ROLE = "imds-session-token", "an.identity.token", "arn:aws:iam::1:role/Reader"


def expiry(seconds):
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)).strftime(
        "%Y-%m-%dT%H:%M:%SZ")


class Issuers:
    """STS, a container's service and a metadata service in one: each time they give the next key, which lasts `life`
    seconds. `store` takes the newest only."""

    def __init__(self, case, life=3600):
        self.life, self.given, self.store = life, 0, None
        self.role = 200, b"reader\n"
        self.web = Web({})
        case.addCleanup(self.web.close)
        self.web.paths.update({
            ("PUT", "/latest/api/token"): lambda headers, _: (
                (200, SESSION.encode()) if headers.get("X-aws-ec2-metadata-token-ttl-seconds") else (400, b"")),
            "/latest/meta-data/iam/security-credentials/": lambda headers, _: self.instance(headers, *self.role),
            "/latest/meta-data/iam/security-credentials/reader": lambda headers, _: self.instance(
                headers, 200, json.dumps({"Code": "Success", **self.keys("Token")}).encode()),
            "/container": lambda headers, _: (
                (200, json.dumps(self.keys("Token")).encode()) if headers.get("Authorization") == IDENTITY else
                (403, b'{"code": "NotYou", "message": "It is not you."}')),
            ("POST", "/"): self.sts})

    def keys(self, token):
        self.given += 1
        key = f"ASIA{self.given}"
        if self.store:
            with self.store.lock:
                self.store.keys = {key: f"secret/{self.given}"}
                self.store.tokens = {key: f"token/{self.given}"}
        return {"AccessKeyId": key, "SecretAccessKey": f"secret/{self.given}", token: f"token/{self.given}",
                "Expiration": expiry(self.life)}

    @staticmethod
    def instance(headers, status, body):
        return (status, body) if headers.get("X-aws-ec2-metadata-token") == SESSION else (401, b"")

    def sts(self, headers, body):
        form = dict(urllib.parse.parse_qsl(body))
        if form != {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": ROLE,
                    "RoleSessionName": "dloaderd", "WebIdentityToken": IDENTITY}:
            return 403, (b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not you.</Message></Error>"
                         b"</ErrorResponse>")
        rows = "".join(f"<{key}>{value}</{key}>" for key, value in self.keys("SessionToken").items())
        return 200, (f"<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>{rows}"
                     "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>").encode()

    def environment(self, kind, folder):
        token = os.path.join(folder, "token-of-identity")
        with open(token, "w") as file:
            file.write(IDENTITY + "\n")
        return {"instance": {"AWS_EC2_METADATA_SERVICE_ENDPOINT": self.web.url("/")},
                "container": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": self.web.url("/container"),
                              "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": token},
                "web identity": {"AWS_ENDPOINT_URL_STS": self.web.url("/"), "AWS_ROLE_ARN": ROLE,
                                 "AWS_WEB_IDENTITY_TOKEN_FILE": token}}[kind]


KINDS = "instance", "container", "web identity"


class KeysCase(TestCase):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("data"))
        for name in "data/x.npy", "data/y.npy":
            self.npy(name, (4, 4), "|u1", bytes(range(16)))
        self.bucket = self.make_bucket()

    def make_bucket(self, **how):
        bucket = Bucket(self.path("data"), **how)
        self.addCleanup(bucket.close)
        return bucket

    def base(self, bucket=None):
        return {"AWS_ENDPOINT_URL_S3": (bucket or self.bucket).url, "AWS_REGION": "eu-test-1",
                "AWS_EC2_METADATA_DISABLED": "", "HOME": self.dir}

    def issuers(self, **how):
        issuers = Issuers(self, **how)
        issuers.store = self.bucket
        self.bucket.keys = {}
        return issuers

    def read(self, env, name="x.npy"):
        daemon = self.daemon({"linger": "0s"}, env=env)
        spec = self.spec("read", dataset={"kind": "npy", "paths": f"s3://bucket/{name}"}, batch={"size": 2})
        done = dlctl("run", spec, daemon=daemon, check=False)
        daemon.stop()
        for secret in IDENTITY, SESSION, "secret/", "token/":
            self.assertNotIn(secret, done.stdout + done.stderr + daemon.log)
        return done

    def assert_refused(self, env, *patterns):
        done = self.read(env)
        self.assertEqual(done.returncode, 1)
        for pattern in patterns:
            self.assertRegex(done.stderr, pattern)


class Issued(KeysCase):
    def test_kinds(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                issuers = self.issuers()
                self.assertEqual(self.read({**self.base(), **issuers.environment(kind, self.dir)}).returncode, 0)
                self.assertEqual(issuers.given, 1)

    def test_order(self):
        """Keys of the environment, web identity, keys of a file, the container, the instance."""
        issuers = self.issuers()
        env = {**self.base(), "AWS_SHARED_CREDENTIALS_FILE": self.path("credentials")}
        for kind in KINDS:
            env.update(issuers.environment(kind, self.dir))

        def asked():
            issuers.web.asked.clear()
            done = self.read(env)
            return done.returncode, {method + " " + path for method, path, *_ in issuers.web.asked}

        self.assertEqual(asked(), (0, {"POST /"}))
        del env["AWS_WEB_IDENTITY_TOKEN_FILE"]
        self.bucket.keys["AKFILE"] = "of a file"
        with open(self.path("credentials"), "w") as file:
            file.write("[default]\naws_access_key_id = AKFILE\naws_secret_access_key = of a file\n")
        self.assertEqual(asked(), (0, set()))
        os.unlink(self.path("credentials"))
        self.assertEqual(asked(), (0, {"GET /container"}))
        del env["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
        self.assertEqual(asked()[0], 0)
        self.assertIn("PUT /latest/api/token", {method + " " + path for method, path, *_ in issuers.web.asked})
        env["AWS_EC2_METADATA_DISABLED"] = "true"
        status, paths = asked()
        self.assertEqual((status, paths), (1, set()))

    def test_profile(self):
        """A profile's role and token."""
        issuers = self.issuers()
        env = {**self.base(), **issuers.environment("web identity", self.dir), "AWS_PROFILE": "reader",
               "AWS_CONFIG_FILE": self.path("config")}
        with open(self.path("config"), "w") as file:
            file.write(f"[profile reader]\nrole_arn = {env.pop('AWS_ROLE_ARN')}\n"
                       f"web_identity_token_file = {env.pop('AWS_WEB_IDENTITY_TOKEN_FILE')}\n")
        self.assertEqual(self.read(env).returncode, 0)
        self.assertEqual(issuers.given, 1)

    def test_anonymous(self):
        """Without a metadata service, or a role of this machine's, requests have no name."""
        bucket = self.make_bucket(signed=False)
        issuers = self.issuers()
        env = {**self.base(bucket), **issuers.environment("instance", self.dir)}
        issuers.role = 404, b""
        self.assertEqual(self.read(env).returncode, 0)
        env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = "http://127.0.0.1:9"
        self.assertEqual(self.read(env).returncode, 0)
        self.assertEqual(issuers.given, 0)

    def test_refused(self):
        issuers = self.issuers()
        base = self.base()
        env = {**base, **issuers.environment("web identity", self.dir)}
        self.assert_refused({**env, "AWS_ROLE_ARN": "another"},
                            "STS at .* gives no keys: status 403, AccessDenied: Not you")
        self.assert_refused({**env, "AWS_ROLE_ARN": ""}, "set AWS_ROLE_ARN")
        self.assert_refused({**env, "AWS_WEB_IDENTITY_TOKEN_FILE": self.path("none")}, "none: there is no such file")
        env = {**base, **issuers.environment("container", self.dir)}
        self.assert_refused({**env, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": ""}, "status 403, NotYou: It is not you")
        self.assert_refused({**env, "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://192.0.2.1/"}, "in clear")
        env = {**base, **issuers.environment("instance", self.dir)}
        issuers.role = 200, b"nobody"
        self.assert_refused(env, "metadata service at .* gives no keys: status 404")
        self.assert_refused({**base, "AWS_REGION": "a/b"}, "AWS_REGION.*is no region")


    def test_redirected(self):
        """What an issuer is told is a secret, and what it gives is another: nobody else is asked in its place."""
        other = Web({})
        self.addCleanup(other.close)
        for kind, path in (("instance", ("PUT", "/latest/api/token")), ("container", "/container"),
                           ("instance", "/latest/meta-data/iam/security-credentials/reader"),
                           ("web identity", ("POST", "/"))):
            with self.subTest(path=path):
                issuers = self.issuers()
                issuers.web.paths[path] = other.url("/elsewhere", host="127.0.0.2")
                self.assert_refused({**self.base(), **issuers.environment(kind, self.dir)}, "302|403")
                self.assertIn(path if isinstance(path, str) else path[1], {one[1] for one in issuers.web.asked})
                self.assertEqual((other.asked, issuers.given), ([], 0))


class Renewed(KeysCase):
    def test_end(self):
        """Keys that end are had anew while a loader reads, for as long as it does."""
        for kind in KINDS:
            with self.subTest(kind=kind):
                issuers = self.issuers(life=2)
                self.npy("data/long.npy", (200_000, 100), "|u1", os.urandom(20_000_000))
                daemon = self.daemon({"linger": "0s", "remote": {"held": "1MiB"}},
                                     env={**self.base(), **issuers.environment(kind, self.dir)})
                client = self.client(daemon)
                client.start(client.open({"dataset": {"kind": "npy", "paths": "s3://bucket/long.npy"},
                                          "sampler": {"kind": "random", "replacement": True, "num_samples": 10**7},
                                          "batch": {"size": 10}, "workers": {"count": 1}})["loader"], credits=1)
                while issuers.given < 4:
                    for batch in client.next_batches():
                        batch.release()
                client.close()
                daemon.stop()

    def test_refused(self):
        """Keys that a server knows no more are had anew at once; and those of a file are read again."""
        issuers = self.issuers()
        env = {**self.base(), **issuers.environment("instance", self.dir),
               "AWS_SHARED_CREDENTIALS_FILE": self.path("keys/credentials")}
        os.mkdir(self.path("keys"))
        for from_file in False, True:
            with self.subTest(from_file=from_file):
                if from_file:
                    self.write_keys("AK1")
                daemon = self.daemon({"linger": "0s"}, env=env)
                spec = self.spec("read", dataset={"kind": "npy", "paths": "s3://bucket/y.npy"}, batch={"size": 2})
                client = self.client(daemon)
                client.open({"dataset": {"kind": "npy", "paths": "s3://bucket/x.npy"}, "batch": {"size": 2}})
                if from_file:
                    self.write_keys("AK2")
                else:
                    issuers.keys("Token")  # others, which nobody has been given
                dlctl("run", spec, daemon=daemon)
                client.close()
                daemon.stop()
        self.assertEqual(issuers.given, 3)
        self.assertEqual(set(self.bucket.users), {"ASIA1", "ASIA3", "AK1", "AK2"})

    def write_keys(self, key):
        self.bucket.keys = {key: "of a file"}
        with open(self.path("keys/new"), "w") as file:
            file.write(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = of a file\n")
        os.rename(self.path("keys/new"), self.path("keys/credentials"))


ONE, TWO, THREE = 61021, 61022, 61023

# The system's list of users, for the daemon alone.
ROOM = 'mount --make-rprivate / && mount --bind "$0" /etc/passwd && exec "$@"'


def has_rooms():
    done = subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True)
    return os.geteuid() == 0 and done.returncode == 0


@unittest.skipIf(os.geteuid(), "only root can be several users")
class Users(KeysCase):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        self.bucket.keys = {"AKROOT": "secret/of root"}
        with open(self.path("passwd"), "w") as file:
            file.write("root:x:0:0::/root:/bin/sh\n" + "".join(
                f"u{uid}:x:{uid}:{uid}::{self.home(uid)}:/bin/sh\n" for uid in (ONE, TWO, THREE)))
        for uid in ONE, TWO, THREE:
            os.makedirs(self.home(uid) + "/.aws")
            self.write(uid, "config", f"[default]\nregion = eu-test-1\nendpoint_url = {self.bucket.url}\n")
        for uid in ONE, TWO:
            self.write(uid, "credentials", f"[default]\naws_access_key_id = AK{uid}\n"
                                           f"aws_secret_access_key = secret/{uid}\n")
            self.bucket.keys[f"AK{uid}"] = f"secret/{uid}"
        for uid in ONE, TWO, THREE:
            for folder, _, files in os.walk(self.home(uid)):
                for name in ["", *files]:
                    os.chown(os.path.join(folder, name), uid, uid)
                    os.chmod(os.path.join(folder, name), 0o600 if name else 0o700)

    def home(self, uid):
        return self.path(f"home-{uid}")

    def write(self, uid, name, text):
        with open(f"{self.home(uid)}/.aws/{name}", "w") as file:
            file.write(text)

    def start(self, config=None, **how):
        return self.daemon({"socket_mode": "0666", "data_roots": ["/srv"], "linger": "0s", **(config or {})}, env={
            **self.base(), "AWS_ACCESS_KEY_ID": "AKROOT", "AWS_SECRET_ACCESS_KEY": "secret/of root",
            "AWS_EC2_METADATA_DISABLED": "true"}, **how)

    def start_for_users(self, **config):
        if not has_rooms():
            self.skipTest("this system gives no mount namespaces")
        return self.start(config, launcher=("unshare", "-m", "sh", "-c", ROOM, self.path("passwd")))

    @staticmethod
    def open(daemon, uid, work=lambda client: None, name="x.npy"):
        """What the user is told."""
        def ask():
            client = daemon.client()
            try:
                client.open({"dataset": {"kind": "npy", "paths": f"s3://bucket/{name}"}, "batch": {"size": 2}})
                return work(client) or "opened"
            except DaemonError as error:
                return str(error)
            finally:
                client.close()

        return as_user(uid, ask)

    @contextlib.contextmanager
    def holding(self, daemon, uid):
        """The process that fetches for the user, who has a loader meanwhile."""
        here, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            here.close()
            self.open(daemon, uid, lambda client: str(theirs.send(b"x")) + str(theirs.recv(1)))
            os._exit(0)
        theirs.close()
        self.assertEqual(here.recv(1), b"x")
        yield next(pid for pid, status in fetchers_of(daemon).items() if status["Uid"].split()[0] == str(uid))
        here.close()
        os.waitpid(pid, 0)

    def test_own(self):
        """Each reads by its own keys, in a process of its own, which ends with its loaders; who has none gets nothing,
        though others have fetched it."""
        daemon = self.start_for_users()
        seen = []

        def look(client):
            views = json.dumps([client.query(view) for view in ("loaders", "workers", "specs", "status")])
            return views + " " + " ".join(f"{pid}:{status['Uid'].split()[0]}:{status['Groups'].strip()}"
                                          for pid, status in fetchers_of(daemon).items())

        for uid in ONE, TWO:
            told = self.open(daemon, uid, look)
            self.assertRegex(told, rf" \d+:{uid}:$")
            seen.append(told)
        self.assertIn("403", self.open(daemon, THREE))
        self.assertEqual(self.open(daemon, 0), "opened")
        self.assertEqual(set(self.bucket.users), {f"AK{ONE}", f"AK{TWO}", None, "AKROOT"})
        wait_until(lambda: {status["Uid"].split()[0] for status in fetchers_of(daemon).values()} == {"0"},
                   "the users' processes to end")
        for text in *seen, daemon.log:
            self.assertNotIn("secret/", text)

    def test_apart(self):
        """Nothing of the daemon's environment is in a user's process."""
        daemon = self.start_for_users()

        with self.holding(daemon, ONE) as pid, open(f"/proc/{pid}/environ") as file:
            names = {row.partition("=")[0] for row in file.read().split("\0")} - {""}
            self.assertLessEqual(names, {"SSL_CERT_FILE", "SSL_CERT_DIR"})
            # Its user stops it: others do not notice.
            as_user(ONE, lambda: os.kill(pid, signal.SIGSTOP))
            self.assertEqual(self.open(daemon, TWO), "opened")
            as_user(ONE, lambda: os.kill(pid, signal.SIGKILL))
            self.assertEqual(self.open(daemon, ONE, name="y.npy"), "opened")

    def test_kept(self):
        """What root's daemon keeps on disk is read by no other user, and given to none: not to one who has no keys,
        nor, without asking the store, to one who has."""
        daemon = self.start_for_users(cache={"dir": self.path("cache"), "size": "64MiB"})
        self.assertEqual(self.open(daemon, 0), "opened")
        self.assertGreater(os.stat(self.path("cache/blocks/blocks")).st_blocks, 0)
        for uid in ONE, THREE:
            self.assertRegex(as_user(uid, lambda: self.read_all(self.path("cache/blocks"))), "Permission denied")
        self.assertIn("403", self.open(daemon, THREE))
        self.assertEqual(self.open(daemon, ONE), "opened")
        self.assertGreaterEqual(self.bucket.users[f"AK{ONE}"], 1)
        self.assertEqual(self.bucket.blocks["x.npy", 0], 2)

    @staticmethod
    def read_all(folder):
        try:
            for name in os.listdir(folder):
                with open(os.path.join(folder, name), "rb") as file:
                    file.read()
        except OSError as error:
            return str(error)
        return "read"

    def test_broken(self):
        """What is wrong in a user's files the user is told, and nobody else."""
        self.write(ONE, "config", "[default]\nregion = a/b\n")
        self.write(TWO, "credentials", "[default]\naws_access_key_id = AKHALF\n")
        daemon = self.start_for_users()
        self.assertIn('"a/b" is no region', self.open(daemon, ONE))
        self.assertIn("aws_access_key_id is set, and aws_secret_access_key is not", self.open(daemon, TWO))
        self.assertNotIn("AKHALF", daemon.log)
        self.assertEqual(self.open(daemon, 0), "opened")

    def test_not_root(self):
        """A daemon that cannot become its users says so."""
        os.mkdir(self.path("bin"), 0o755)
        for program in dltest.DLOADERD, os.path.join(os.path.dirname(dltest.DLOADERD), "dloader-worker"):
            shutil.copy(program, self.path("bin"))
        os.chown(self.dir, THREE, THREE)
        daemon = self.start(user=THREE, group=THREE, extra_groups=[], executable=self.path("bin/dloaderd"))
        self.assertRegex(self.open(daemon, TWO),
                         "for its own user alone, if it is not root's; start a daemon of your own")
        self.assertEqual(fetchers_of(daemon), {})


class Found(unittest.TestCase):
    """fetchers_of() itself."""

    def test_ends_meanwhile(self):
        """One that ends once its files below /proc are open can't be read any more, and is none."""
        with subprocess.Popen([sys.executable, "-c", "print(flush=True); input()", "--fetch"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as child:
            child.stdout.readline()  # until then its arguments may not be in /proc
            def ending(path):
                file = open(path)
                if path == f"/proc/{child.pid}/status":
                    child.kill()
                    child.wait()
                return file

            daemon = types.SimpleNamespace(process=types.SimpleNamespace(pid=os.getpid()))
            self.assertEqual(list(fetchers_of(daemon)), [child.pid])
            with unittest.mock.patch("web.open", ending, create=True):
                self.assertEqual(fetchers_of(daemon), {})
