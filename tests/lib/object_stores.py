"""Object stores that others wrote, each as a bucket of one folder: SeaweedFS, rclone, moto, OpenStack's Swift and Ceph,
where they are installed: $WEED, $RCLONE, $MOTO and $SWIFT, or as weed, rclone, moto_server and swift-proxy-server, and
radosgw with Debian's ceph-mon and ceph-osd. And nginx, as $NGINX or nginx, for https://.

    object_stores.py DIRECTORY    serves it as s3://bucket until it is killed, by SeaweedFS or, without that, by the
                                  tests' own server; prints what a reader's environment has to have
"""

import atexit
import contextlib
import datetime
import hashlib
import hmac
import http.client
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import uuid

from bucket import ENVIRONMENT, KEY, REGION, SECRET, Bucket, sign
from dltest import wait_until

WEED = os.environ.get("WEED") or shutil.which("weed")
RCLONE = os.environ.get("RCLONE") or shutil.which("rclone")
MOTO = os.environ.get("MOTO") or shutil.which("moto_server")
SWIFT = os.environ.get("SWIFT") or shutil.which("swift-proxy-server")
RADOSGW = shutil.which("radosgw") and shutil.which("ceph-osd") and shutil.which("ceph-mon")
NGINX = os.environ.get("NGINX") or shutil.which("nginx")


def free_ports(count):
    """Whose gRPC's, 10,000 above, are free, too."""
    with contextlib.ExitStack() as stack:
        found = []
        while len(found) < count:
            one = stack.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port + 10000))
                found.append(port)
        return found


class Server:
    """What a reader's environment has to have; and what is to be done before it reads."""

    lists = True

    def __init__(self, case, *command):
        self.log = case.path("server.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(("setpriv", "--pdeathsig", "KILL", *command), stdout=log, stderr=log,
                                            start_new_session=True)
        case.addCleanup(self.stop)
        self.environment = dict(ENVIRONMENT)

    def told(self, pattern):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return re.search(pattern, file.read())

    def wait_until_told(self, pattern):
        wait_until(lambda: self.process.poll() is not None or self.told(pattern), lambda: f"{pattern} in {self.log}")
        found = self.told(pattern)
        if not found:
            raise AssertionError(f"{self.log}: the server has ended")
        return found

    def stop(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Rclone(Server):
    """Of a folder whose folders are buckets."""

    def __init__(self, case):
        os.makedirs(case.path("served"))
        os.symlink(case.path("data"), case.path("served/bucket"))
        super().__init__(case, RCLONE, "serve", "s3", "--addr", "127.0.0.1:0", "--auth-key", f"{KEY},{SECRET}",
                         "--copy-links", "--dir-cache-time", "0s", "--poll-interval", "0", case.path("served"))
        self.environment["AWS_ENDPOINT_URL"] = self.wait_until_told(r"http://127.0.0.1:\d+/")[0]

    def bring(self):
        pass


class Filled(Server):
    """One that gets its files by put(name, data), which gives a status."""

    def __init__(self, case, *command):
        super().__init__(case, *command)
        self.data, self.there = case.path("data"), {}

    def bring(self):
        for folder, _, names in os.walk(self.data):
            for name in names:
                path = os.path.join(folder, name)
                of = os.stat(path)
                if self.there.get(path) != (of.st_mtime_ns, of.st_size):
                    with open(path, "rb") as file:
                        status = self.put(os.path.relpath(path, self.data), file.read())
                    assert status in (200, 201), (path, status)
                    self.there[path] = of.st_mtime_ns, of.st_size


def ask(port, method, path, body=b"", **headers):
    """(status, body, headers); None: nobody is there yet."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    except OSError:
        return None
    finally:
        connection.close()


def put_signed(port, key_id, name, data):
    """The status of an object, or without a name the bucket, that is put as S3's clients do; None: nobody is there."""
    path = urllib.parse.quote(f"/bucket/{name}" if name else "/bucket")
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    scope, of = f"{now[:8]}/{REGION}/s3/aws4_request", hashlib.sha256(data).hexdigest()
    headers = {"host": f"127.0.0.1:{port}", "x-amz-content-sha256": of, "x-amz-date": now}
    request = "\n".join(["PUT", path, "", *(f"{one}:{value}" for one, value in headers.items()), "",
                         ";".join(headers), of])
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = sign(SECRET, now[:8], REGION, "s3", "aws4_request")
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    answer = ask(port, "PUT", path, data, **headers, Authorization=(
        f"AWS4-HMAC-SHA256 Credential={key_id}/{scope}, SignedHeaders={';'.join(headers)}, Signature={signature}"))
    return answer and answer[0]


class Weed(Filled):
    """With a filer, by which files get into the bucket."""

    def __init__(self, case):
        master, volume, filer, s3 = free_ports(4)
        os.makedirs(case.path("weed"))
        identity = {"name": "reader", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
                    "actions": ["Read", "List"]}
        with open(case.path("s3.json"), "w", encoding="utf-8") as file:
            json.dump({"identities": [identity]}, file)
        super().__init__(case, WEED, "server", f"-dir={case.path('weed')}", "-ip=127.0.0.1", f"-master.port={master}",
                         f"-volume.port={volume}", "-volume.max=4", "-filer", f"-filer.port={filer}", "-s3",
                         f"-s3.port={s3}", f"-s3.config={case.path('s3.json')}", "-master.volumeSizeLimitMB=64")
        self.environment["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{s3}"
        self.filer = filer
        wait_until(lambda: self.put("ready", b"x") == 201, lambda: f"the server to take a file: {self.log}")

    def put(self, name, data):
        answer = ask(self.filer, "PUT", "/buckets/bucket/" + urllib.parse.quote(name), data)
        return answer and answer[0]


class Moto(Filled):
    """Which lets everybody do everything, until it is told to check who asks. It issues its keys itself."""

    def __init__(self, case):
        self.port, = free_ports(1)
        super().__init__(case, MOTO, "-H", "127.0.0.1", "-p", str(self.port))
        wait_until(lambda: ask(self.port, "PUT", "/bucket"), lambda: f"the server to listen: {self.log}")
        policy = {"Version": "2012-10-17", "Statement": [{
            "Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}]}
        self.identity("CreateUser", UserName="reader")
        self.identity("PutUserPolicy", UserName="reader", PolicyName="reads", PolicyDocument=json.dumps(policy))
        made = self.identity("CreateAccessKey", UserName="reader")
        self.environment.update({
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": re.search("<AccessKeyId>(.*?)</AccessKeyId>", made)[1],
            "AWS_SECRET_ACCESS_KEY": re.search("<SecretAccessKey>(.*?)</SecretAccessKey>", made)[1]})
        self.check_keys(True)

    def identity(self, action, **keys):
        scope = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=x"
        form = urllib.parse.urlencode({"Action": action, "Version": "2010-05-08", **keys})
        status, body, _ = ask(self.port, "POST", "/", form.encode(), Authorization=scope,
                              Content_Type="application/x-www-form-urlencoded")
        assert status == 200, body
        return body.decode()

    def check_keys(self, checked):
        assert ask(self.port, "POST", "/moto-api/reset-auth", b"0" if checked else b"inf")[0] == 200

    def put(self, name, data):
        return ask(self.port, "PUT", "/bucket/" + urllib.parse.quote(name), data)[0]

    def bring(self):
        self.check_keys(False)
        super().bring()
        self.check_keys(True)


SWIFT_RINGS = """
import sys
from swift.common.ring import RingBuilder
for kind, port in zip(("account", "container", "object"), map(int, sys.argv[2:])):
    builder = RingBuilder(1, 1, 0)
    builder.add_dev({"region": 1, "zone": 1, "ip": "127.0.0.1", "port": port, "device": "d", "weight": 1})
    builder.rebalance()
    builder.get_ring().save(f"{sys.argv[1]}/{kind}.ring.gz")
"""
SWIFT_SERVER = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
swift_dir = {dir}
devices = {dir}/devices
mount_check = false
user = {user}
workers = 0
log_address = {dir}/none
[pipeline:main]
pipeline = {pipeline}
[app:{kind}-server]
use = egg:swift#{app}
account_autocreate = true
allow_account_management = true
[filter:s3api]
use = egg:swift#s3api
location = {region}
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:9
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = {secret} .admin
"""


class Swift(Filled):
    """Its servers of accounts, containers and objects, and the proxy, by which files get into the bucket, too."""

    def __init__(self, case):
        ports = free_ports(4)
        folder, bin = case.path("swift"), os.path.dirname(SWIFT)
        os.makedirs(f"{folder}/devices/d")
        with open(f"{folder}/swift.conf", "w") as file:
            file.write("[swift-hash]\nswift_hash_path_suffix = x\n[storage-policy:0]\nname = all\ndefault = yes\n")
        python = os.path.join(bin, "python3") if os.path.exists(os.path.join(bin, "python3")) else "/usr/bin/python3"
        subprocess.run([python, "-c", SWIFT_RINGS, folder, *map(str, ports[:3])], check=True)
        start = []
        for kind, port in zip(("account", "container", "object", "proxy"), ports):
            pipeline = "cache s3api tempauth proxy-server" if kind == "proxy" else f"{kind}-server"
            with open(f"{folder}/{kind}.conf", "w") as file:
                file.write(SWIFT_SERVER.format(port=port, dir=folder, kind=kind, pipeline=pipeline, region=REGION,
                                               app="proxy" if kind == "proxy" else kind, secret=SECRET,
                                               user=os.environ.get("USER", "root")))
            # Each leaves the group of what starts it, and so ends with that by itself.
            start.append(f"setpriv --pdeathsig KILL '{bin}/swift-{kind}-server' '{folder}/{kind}.conf' &")
        os.environ["SWIFT_DIR"] = folder
        super().__init__(case, "sh", "-c", " ".join([*start, "wait"]))
        self.port = ports[3]
        self.environment.update({"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
                                 "AWS_ACCESS_KEY_ID": "test:tester"})
        wait_until(lambda: self.put("", b"") == 200, lambda: f"the server to make a bucket: {self.log}")

    def put(self, name, data):
        return put_signed(self.port, "test:tester", name, data)


CEPH_CONF = """[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{mon}]
public_addr = 127.0.0.1
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_mon_client_mode = crc
mon_data = {dir}/mon
osd_data = {dir}/osd
run_dir = {dir}
admin_socket =
log_file = {dir}/$name.log
keyring = {dir}/none
osd_objectstore = memstore
memstore_device_bytes = 1073741824
osd_pool_default_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
osd_crush_update_on_start = false
osd_class_update_on_start = false
mon_allow_pool_size_one = true
rgw_frontends = beast endpoint=127.0.0.1:{port}
"""
# Each leaves the group of what starts it, and so ends with that by itself.
CEPH_START = """set -e
run() {{ setpriv --pdeathsig KILL "$@" & }}
monmaptool --create --fsid {fsid} --addv a '[v2:127.0.0.1:{mon}]' {dir}/map
ceph-mon --mkfs -i a --monmap {dir}/map
run ceph-mon -i a -f
ceph osd new {fsid}
ceph osd crush add osd.0 1 root=default
ceph-osd -i 0 --mkfs --osd-uuid {fsid}
run ceph-osd -i 0 -f
radosgw-admin user create --uid reader --display-name reader --access-key {key} --secret-key {secret}
run radosgw -f -n client.admin
wait
"""


class Ceph(Filled):
    """A monitor, one server of objects, in memory, and the gateway (radosgw), by which files get into the bucket."""

    def __init__(self, case):
        folder, (mon, self.port) = case.path("ceph"), free_ports(2)
        os.makedirs(f"{folder}/mon")
        os.makedirs(f"{folder}/osd")
        fsid = str(uuid.uuid4())
        with open(f"{folder}/ceph.conf", "w", encoding="utf-8") as file:
            file.write(CEPH_CONF.format(fsid=fsid, dir=folder, mon=mon, port=self.port))
        super().__init__(case, "env", f"CEPH_CONF={folder}/ceph.conf", "sh", "-c",
                         CEPH_START.format(fsid=fsid, dir=folder, mon=mon, key=KEY, secret=shlex.quote(SECRET)))
        self.environment["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{self.port}"
        wait_until(lambda: self.put("", b"") == 200, lambda: f"the server to make a bucket: {self.log}")

    def put(self, name, data):
        return put_signed(self.port, KEY, name, data)


NGINX_CONF = """
daemon off;
pid {dir}/pid;
user {user};
events {{}}
http {{
    access_log off;
    client_body_temp_path {dir}/t; proxy_temp_path {dir}/t; fastcgi_temp_path {dir}/t; uwsgi_temp_path {dir}/t;
    scgi_temp_path {dir}/t;
    server {{
        listen 127.0.0.1:{port} ssl http2;
        ssl_certificate {dir}/server.crt;
        ssl_certificate_key {dir}/server.key;
        root {data};
        location /moved/ {{ rewrite ^/moved/(.*)$ /$1 redirect; }}
    }}
}}
"""


class Nginx(Server):
    """A web server of https://, whose certificate an authority of its own has signed; below /moved/ it redirects."""

    lists = False

    def __init__(self, case):
        folder, (port,) = case.path("nginx"), free_ports(1)
        os.makedirs(folder)
        ca, key = f"{folder}/ca.crt", f"{folder}/ca.key"
        new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        subprocess.run([*new, "-subj", "/CN=authority", "-keyout", key, "-out", ca], check=True, capture_output=True)
        subprocess.run([*new, "-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1", "-CA", ca, "-CAkey", key,
                        "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", f"{folder}/server.key", "-out",
                        f"{folder}/server.crt"], check=True, capture_output=True)
        with open(f"{folder}/nginx.conf", "w") as file:
            file.write(NGINX_CONF.format(dir=folder, port=port, data=case.path("data"),
                                         user=os.environ.get("USER", "root")))
        super().__init__(case, NGINX, "-c", f"{folder}/nginx.conf", "-e", "stderr")
        self.environment = {"AWS_CA_BUNDLE": ca}
        self.url = f"https://127.0.0.1:{port}"
        wait_until(lambda: self.process.poll() is None and is_open(port), lambda: f"the server to listen: {self.log}")

    def bring(self):
        pass


def is_open(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


class Here:
    """In a test's place: a directory, which goes when the program ends."""

    def __init__(self, data):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        os.symlink(os.path.abspath(data), self.path("data"))

    def path(self, name):
        return os.path.join(self.dir, name)

    @staticmethod
    def addCleanup(function, *args):
        atexit.register(function, *args)


def serve(data):
    """The environment."""
    if not WEED:
        return Bucket(data).environment
    server = Weed(Here(data))
    server.bring()
    return server.environment


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    for name, value in serve(sys.argv[1]).items():
        print(f"export {name}='{value}'", flush=True)
    sys.stdout.close()
    threading.Event().wait()
