"""What a wheel has in it of other projects, as a CycloneDX document: see build_wheel.py.

It lies where PEP 770 has it, in the wheel's folder .dist-info/sboms.
"""

import hashlib
import json
import uuid

# By Debian's packages, as SPDX has them; what is built from the other files of a package is not in the wheel.
LICENCES = {
    "libcurl4-openssl-dev": "curl", "libdeflate-dev": "MIT", "libjansson-dev": "MIT",
    "libjpeg62-turbo-dev": "IJG AND BSD-3-Clause AND Zlib", "libmicrohttpd-dev": "LGPL-2.1-or-later",
    "libmsgpack-c-dev": "BSL-1.0", "libmsgpack-dev": "BSL-1.0",
    "libpcre2-dev": "BSD-3-Clause AND BSD-2-Clause", "libpng-dev": "libpng-2.0",
    "librandom123-dev": "BSD-3-Clause", "libseccomp-dev": "LGPL-2.1-only", "libsndfile1-dev": "LGPL-2.1-or-later",
    "libtiff-dev": "libtiff", "libutf8proc-dev": "MIT AND Unicode-DFS-2015", "libuv1-dev": "MIT",
    "libwebp-dev": "BSD-3-Clause", "libxxhash-dev": "BSD-2-Clause", "libyaml-dev": "MIT", "uthash-dev": "BSD-1-Clause",
    "zlib1g-dev": "Zlib",
}


def component(one):
    package, version = one["package"], one["version"].replace("+", "%2B").replace(":", "%3A")
    return {"type": "library", "bom-ref": package, "name": one["source"], "version": one["version"],
            "licenses": [{"expression": LICENCES[package]}],
            "purl": f"pkg:deb/debian/{package}@{version}?arch={one['architecture']}",
            "scope": "optional" if one["use"] == "found at run time" else "required",
            "properties": [{"name": "dloaderd:use", "value": one["use"]}]}


def document(version, taken):
    """The document's text, the same for the same. taken: of Debian's packages, what they say of themselves (package,
    source, version, architecture), and use: how it is used, in words."""
    taken = sorted(taken, key=lambda one: one["package"])
    content = {
        "metadata": {"component": {
            "type": "application", "bom-ref": "dloaderd", "name": "dloaderd", "version": version,
            "licenses": [{"expression": "Apache-2.0"}], "purl": f"pkg:pypi/dloaderd@{version}"}},
        "components": [component(one) for one in taken],
        "dependencies": [{"ref": "dloaderd", "dependsOn": [one["package"] for one in taken]}]}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()[:16]
    return json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6",
                       "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest, version=4)}", "version": 1,
                       **content}, indent=1) + "\n"
