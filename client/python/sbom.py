"""What a wheel has in it of other projects, as a CycloneDX document: see build_wheel.py.

It lies where PEP 770 has it, in the wheel's folder .dist-info/sboms.
"""

import hashlib
import json
import subprocess
import uuid

# By Debian's packages, as SPDX has them; what is built from the other files of a package is not in the wheel.
LICENCES = {
    "libcurl4-openssl-dev": "curl", "libjansson-dev": "MIT",
    "libjpeg62-turbo-dev": "IJG AND BSD-3-Clause AND Zlib", "libmicrohttpd-dev": "LGPL-2.1-or-later",
    "libmsgpack-c-dev": "BSL-1.0", "libmsgpack-dev": "BSL-1.0",
    "libncurses-dev": "X11-distribute-modifications-variant",
    "libpcre2-dev": "BSD-3-Clause AND BSD-2-Clause", "libpng-dev": "libpng-2.0",
    "librandom123-dev": "BSD-3-Clause", "libseccomp-dev": "LGPL-2.1-only", "libsndfile1-dev": "LGPL-2.1-or-later",
    "libtiff-dev": "libtiff", "libutf8proc-dev": "MIT AND Unicode-DFS-2015", "libuv1-dev": "MIT",
    "libwebp-dev": "BSD-3-Clause", "libxxhash-dev": "BSD-2-Clause", "libyaml-dev": "MIT", "uthash-dev": "BSD-1-Clause",
    "zlib1g-dev": "Zlib",
}


def answer(package, field):
    return subprocess.run(["dpkg-query", "-W", "-f", f"${{{field}}}", package], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def component(package, use):
    source, version = answer(package, "source:Package"), answer(package, "Version")
    return {"type": "library", "bom-ref": package, "name": source, "version": version,
            "licenses": [{"expression": LICENCES[package]}],
            "purl": f"pkg:deb/debian/{package}@{version.replace('+', '%2B').replace(':', '%3A')}",
            "scope": "optional" if use == "found at run time" else "required",
            "properties": [{"name": "dloaderd:use", "value": use}]}


def document(version, uses):
    """The document's text, the same for the same. uses: {Debian's package: how it is used, in words}"""
    content = {
        "metadata": {"component": {
            "type": "application", "bom-ref": "dloaderd", "name": "dloaderd", "version": version,
            "licenses": [{"expression": "Apache-2.0"}], "purl": f"pkg:pypi/dloaderd@{version}"}},
        "components": [component(package, use) for package, use in sorted(uses.items())],
        "dependencies": [{"ref": "dloaderd", "dependsOn": sorted(uses)}]}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()[:16]
    return json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6",
                       "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest, version=4)}", "version": 1,
                       **content}, indent=1) + "\n"
