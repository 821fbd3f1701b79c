"""Makes a C source of the page: its bytes, and its Content-Security-Policy, for a header and for the page itself.

    embed.py PAGE      prints it

The policy names the page's one script and one style by their hashes, so that neither what a loader is
called nor anything else that the page shows can ever run.
"""

import base64
import hashlib
import re
import sys

PER_LINE = 20

# No other source of anything; answers are fetched from where the page came from; the icon is in the page. What may
# frame a page can only be said in a header.
POLICY = ("default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; connect-src 'self'; "
          "img-src data:; base-uri 'none'; form-action 'none'; "
          "require-trusted-types-for 'script'; trusted-types 'none'")
FRAMES = "; frame-ancestors 'none'"


def hash_of(page, tag):
    """Of all that is between the page's only <tag> and </tag>."""
    inner = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    if len(inner) != 1 or page.count(f"<{tag}") != 1:
        raise ValueError(f"the page has one <{tag}>, without attributes")
    return base64.b64encode(hashlib.sha256(inner[0].encode()).digest()).decode()


def policy(page, frames=FRAMES):
    return POLICY.format(script=hash_of(page, "script"), style=hash_of(page, "style")) + frames


def source(page):
    data = page.encode()
    lines = [", ".join(str(byte) for byte in data[at:at + PER_LINE]) for at in range(0, len(data), PER_LINE)]
    return ('/* Made from page.html by embed.py. */\n#include "daemon/serve/page/page_html.h"\n\n'
            "const unsigned char page_html[] = {\n" + ",\n".join(lines) + "};\n"
            "const size_t page_html_len = sizeof page_html;\n\n"
            f'const char page_policy[] = "{policy(page)}";\n'
            f'const char page_own_policy[] = "{policy(page, "")}";\n')


def main():
    with open(sys.argv[1], encoding="utf-8", newline="") as file:
        sys.stdout.write(source(file.read()))


if __name__ == "__main__":
    main()
