"""Checks who includes whom: nothing includes upward.

    layers.py [ROOT]      prints FILE:LINE: what is wrong; exit status 1 if there was anything

A file belongs to the layer with the longest matching path. Own headers are included by their path
from the root, so that every edge can be read off the line. Headers of other libraries are confined
to the files that are their one door; all other headers are free.
"""

import pathlib
import re
import sys

# Helpers that know nothing of the contract; the contract; what the daemon and its clients both do with it.
PROTO = {"proto/common/", "proto/", "proto/shared/"}

# The floors of data/, from the ground up: what a sample is; files and their indexes; bytes that become pictures,
# sounds and tokens; foreign code; samples that become a batch; fields of records; the kinds of dataset; what workers
# and loading without a daemon call.
DATA = ("daemon/data/base/", "daemon/data/files/", "daemon/data/decode/", "daemon/data/plugin/", "daemon/data/collate/",
        "daemon/data/field/", "daemon/data/kinds/", "daemon/data/")

CLUSTER = ("daemon/cluster/store/", "daemon/cluster/rendezvous/", "daemon/cluster/progress/")

# Of libdlclient, what knows of memory alone: segments, and the tensors in them.
SLOTS = {"client/pin.h", "client/mapping.h", "client/view.h"}

# Layer → the layers it may include, besides itself. Public: the face that strangers include.
LAYERS = {
    "proto/common/": set(),
    "proto/": {"proto/common/"},
    "proto/shared/": {"proto/", "proto/common/"},
    "daemon/plan/": {*PROTO},
    "daemon/cache/": {*PROTO},
    **{floor: {*PROTO, *DATA[:i], "daemon/cache/", "daemon/plan/"} for i, floor in enumerate(DATA)},
    "daemon/data/plugin/": {*PROTO, *DATA[:2], "daemon/cache/", "daemon/plan/", "daemon/data/plugin/dloader-plugin.h"},
    # How processes close themselves in.
    "daemon/sandbox/": {*PROTO},
    "daemon/worker/": {*PROTO, *DATA, "daemon/sandbox/"},
    # Between a daemon and a worker on another machine: two processes of the worker's program.
    "daemon/helper/": {*PROTO, *DATA, "daemon/cache/", "daemon/worker/", "daemon/remote/"},
    "daemon/worker/main.c": {*PROTO, *DATA, "daemon/sandbox/", "daemon/worker/", "daemon/helper/"},
    # What is asked of remote storage, and what it answers: without any of the daemon.
    "daemon/remote/": {"proto/", "proto/common/"},
    # The process that asks it.
    "daemon/fetcher/": {*PROTO, "daemon/remote/", "daemon/cache/", "daemon/cluster/store/", "daemon/sandbox/",
                        "daemon/base/"},
    # What all of the daemon has: configuration, log, quotas, bytes on their way.
    "daemon/base/": {*PROTO},
    # Several nodes: the stores where they meet; who takes part; how far ranks are; a node's part in both; what
    # becomes of loaders that several read.
    "daemon/cluster/store/": {*PROTO, "daemon/base/"},
    "daemon/cluster/rendezvous/": {*PROTO, "daemon/base/"},
    "daemon/cluster/progress/": {*PROTO, "daemon/base/", "daemon/cluster/store/"},
    "daemon/cluster/": {*PROTO, "daemon/base/", *CLUSTER},
    "daemon/cluster/world/": {*PROTO, "daemon/base/", *CLUSTER, "daemon/cluster/"},
    "daemon/serve/ring/": {*PROTO, "daemon/cache/", "daemon/plan/", "daemon/base/"},
    "daemon/serve/core/": {*PROTO, "daemon/plan/", "daemon/base/", "daemon/serve/ring/"},
    "daemon/serve/pool/": {*PROTO, "daemon/base/", "daemon/serve/ring/"},
    "daemon/serve/loader/": {*PROTO, "daemon/cache/", "daemon/plan/", "daemon/base/",
                             "daemon/serve/core/", "daemon/serve/ring/", "daemon/serve/pool/"},
    "daemon/serve/session/": {*PROTO, "daemon/base/", "daemon/serve/core/", "daemon/serve/loader/",
                              "daemon/cluster/world/"},
    "daemon/serve/page/": {*PROTO, "daemon/base/", "daemon/serve/page/page_html.h"},
    "daemon/serve/": {*PROTO, "daemon/fetcher/", "daemon/base/", "daemon/serve/page/", "daemon/serve/pool/",
                      "daemon/serve/ring/", "daemon/serve/loader/", "daemon/cluster/world/", "daemon/serve/session/"},
    "client/": {*PROTO, *SLOTS, "client/dlclient.h", "client/local.h", "client/core/"},
    # What decides in libdlclient, below what waits, opens sockets or is called by the program.
    "client/core/": {*PROTO, *SLOTS, "client/dlclient.h"},
    "client/pin.h": {*PROTO},
    "client/mapping.h": {*PROTO, "client/pin.h"},
    "client/view.h": {*PROTO, "client/dlclient.h"},
    # Between libdlclient and its module, which alone has the datasets.
    "client/local.h": {*PROTO, "client/dlclient.h"},
    "client/local/": {*PROTO, "client/dlclient.h", "client/local.h", *DATA},
    "client/dlclient.h": set(),
    "daemon/data/plugin/dloader-plugin.h": set(),
    "client/python/src/": {*PROTO, "client/dlclient.h"},
    # A report is the live page with the views in it.
    "daemon/serve/page/page_html.h": set(),
    "client/dlctl/": {*PROTO, "client/dlclient.h", "daemon/serve/page/page_html.h"},
    "client/dlctl/run/": {*PROTO, "client/dlclient.h", "client/dlctl/"},
    # It reads the spec first: whether that says a seed.
    "client/dlctl/python.c": {*PROTO, "client/dlclient.h", "client/dlctl/", "client/dlctl/offline/"},
    # The verbs that need no daemon.
    "client/dlctl/offline/": {*PROTO, "client/dlclient.h", "client/dlctl/", "client/dlctl/run/",
                              "daemon/plan/", "daemon/cache/", *DATA},
    # Compiled as a stranger's program would be: <dlclient.h>, or <dloader-plugin.h>, alone.
    "client/examples/": set(),
    "daemon/examples/": set(),
    "tests/": {*PROTO, "daemon/cache/", "daemon/cluster/", *CLUSTER, "daemon/plan/", "daemon/remote/",
               "daemon/fetcher/",
               *DATA, "daemon/worker/", "daemon/sandbox/", "daemon/helper/",
               "daemon/base/", "daemon/serve/core/", "daemon/serve/ring/", "daemon/serve/pool/",
               "daemon/serve/loader/", "daemon/serve/page/", "daemon/cluster/world/", "daemon/serve/session/",
               "client/",
               *SLOTS, "client/core/",
               "client/dlclient.h", "client/local.h", "client/dlctl/", "client/dlctl/run/",
               "daemon/data/plugin/dloader-plugin.h"},
}

# Header of another library (by its beginning) → where it may be included.
DOORS = {
    # What has a part in the loop: daemon/serve/core/ and daemon/serve/ring/ have none, daemon/base/ but
    # its sockets and one thread.
    "uv.h": ("daemon/cluster/", "daemon/fetcher/", "daemon/base/peer.h", "daemon/serve/daemon.h",
             "daemon/base/listener.h", "daemon/base/lookup.c", "daemon/serve/metrics_http.h", "daemon/serve/threads.h",
             "daemon/serve/loader/", "daemon/serve/page/answers.h", "daemon/serve/pool/", "daemon/serve/session/",
             "daemon/cluster/world/"),
    "uv/": (),
    "systemd/": ("daemon/base/log.c", "daemon/serve/notify.c"),
    "microhttpd.h": ("daemon/serve/metrics_http.c", "daemon/serve/page/answers.h",
                     "daemon/serve/page/microhttpd_found.c"),
    "msgpack": ("proto/codec.c", "proto/value_msgpack.c"),
    "seccomp.h": ("daemon/sandbox/calls.c", "daemon/sandbox/seccomp_found.c"),
    "yaml.h": ("proto/yaml.c",),
    "zlib.h": ("daemon/data/files/",),
    "libdeflate.h": ("daemon/data/files/unpack.c",),
    "zstd.h": ("daemon/data/files/unpack.c",),
    "brotli/": ("daemon/data/kinds/parquet/codec.c",),
    "sentencepiece_": ("daemon/data/decode/tokenizer/sentencepiece.cc",),
    "pcre2.h": ("daemon/data/decode/tokenizer/pattern.c",),
    "utf8proc.h": ("daemon/data/decode/tokenizer/chars.c", "daemon/data/decode/tokenizer/normalize.c"),
    "jpeglib.h": ("daemon/data/decode/image/image_jpeg.c",),
    "jerror.h": ("daemon/data/decode/image/image_jpeg.c",),
    "png.h": ("daemon/data/decode/image/image_png.c",),
    "tiffio.h": ("daemon/data/decode/image/image_tiff.c",),
    "webp/": ("daemon/data/decode/image/image_webp.c",),
    "sndfile.h": ("daemon/data/decode/audio/audio_file.c",),
    "Random123/": ("daemon/plan/", "daemon/data/"),
    "jansson.h": ("client/dlctl/", "daemon/cluster/store/etcd_json.c", "daemon/data/", "daemon/examples/",
                  "daemon/remote/issuer.c", "daemon/remote/listing.c"),
    "curl/": ("daemon/cluster/store/curl_found.c", "daemon/cluster/store/http.c"),
    "dlfcn.h": ("client/local.c", "client/pin.c", "daemon/data/plugin/plugin.c", "daemon/data/plugin/plugin_load.c",
                "proto/common/library.c"),
    "Python.h": ("daemon/worker/python/", "client/python/src/"),
    "pthread.h": ("daemon/worker/forked.c",),
    "dlclient.h": ("client/examples/",),
    "dloader-plugin.h": ("daemon/examples/",),
}

# The plan is a pure function, and the loader's core and the client's pure machines: no files, no clock, no
# output, no other process. They write sentences: they may have snprintf(); so may remote/, which also computes
# with dates, and has one file that reads AWS's two by stdio.
IMPURE = re.compile(r"(fcntl|poll|signal|stdio|time|threads|sys/(file|socket|stat|time|wait)|"
                    r"sys/(epoll|eventfd|random|types))\.h$")
PURE = {"daemon/plan/": set(), "daemon/remote/": {"stdio.h", "time.h"}, "daemon/serve/core/": {"stdio.h"},
        "client/core/": {"stdio.h"}}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def layer_of(path):
    found = [layer for layer in LAYERS if path == layer or
             (layer.endswith("/") and path.startswith(layer))]
    return max(found, key=len) if found else None


def check_own(root, path, target):
    """What is wrong with path including the project's own header target; None: nothing."""
    layer = layer_of(path)
    if not (root / target).is_file():
        return f'"{target}" is not a path from the root of the project'
    other = layer_of(target)
    if other is None:
        return f'"{target}" belongs to no layer'
    if layer in ("client/dlclient.h", "daemon/data/plugin/dloader-plugin.h"):
        return f'the public header includes "{target}": it stands alone'
    if other != layer and other not in LAYERS[layer]:
        allowed = ", ".join(sorted(LAYERS[layer])) or "nothing but itself"
        return f'{layer} must not include "{target}"; it may include {allowed}'
    return None


def check_foreign(path, target):
    for header, doors in DOORS.items():
        if target.startswith(header) and not path.startswith(("tests/", *doors)):
            where = " and ".join(doors) or "no file"
            return f"<{target}> may be included by {where} alone"
    for folder, allowed in PURE.items():
        if path.startswith(folder) and IMPURE.match(target) and target not in allowed:
            return f"<{target}>: {folder} does no I/O and reads no clock"
    return None


def check_file(root, path):
    """Yields (line, what is wrong)."""
    if layer_of(path) is None:
        yield 1, "belongs to no layer; name its folder in tests/tools/layers.py"
        return
    text = (root / path).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, target = match.group(1) == '"', match.group(2)
        wrong = check_own(root, path, target) if quoted else check_foreign(path, target)
        if wrong:
            yield number, wrong


def check(root):
    root = pathlib.Path(root)
    wrong = []
    for folder in sorted({layer.split("/")[0] for layer in LAYERS}):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in (".c", ".cc", ".h", ".def"):
                path = file.relative_to(root).as_posix()
                wrong += [f"{path}:{line}: {what}" for line, what in check_file(root, path)]
    return wrong


if __name__ == "__main__":
    problems = check(sys.argv[1] if len(sys.argv) > 1 else ".")
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(1 if problems else 0)
