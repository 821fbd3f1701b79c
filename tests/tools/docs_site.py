"""The documentation as a site with a search, from the project's pages and manuals: `./dev docs`.

    docs_site.py WORK OUT     lays the pages out below the folder WORK, leaves the site in the folder OUT

Sphinx makes it, with myst-parser; mandoc makes the manuals HTML, from what scdoc makes of them. Ends with an error if
a link of the site leads nowhere, or if the site loads anything from elsewhere.
"""

import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys

from test_readme import FENCED, LINK, ROOT, pages

MANUAL = re.compile(r"\*([\w.-]+)\*\((\d)\)")
# What makes a browser load something; of <link> only these relations do.
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
SAYS = {"canonical", "next", "prev", "index", "search", "contents"}


def manuals():
    """{"dlctl(1)": the source of its page}"""
    found = sorted(path for folder in ("client", "daemon") for path in (ROOT / folder).rglob("*.scd"))
    return {"{}({})".format(*path.stem.rsplit(".", 1)): path for path in found}


def page_of(manual):
    return pathlib.PurePosixPath("man", manual.stem + ".md")


def manual_page(title, path):
    with open(path, encoding="utf-8") as source:
        roff = subprocess.run(["scdoc"], stdin=source, stdout=subprocess.PIPE, check=True).stdout
    body = subprocess.run(["mandoc", "-T", "html", "-O", "fragment"], input=roff, stdout=subprocess.PIPE,
                          check=True).stdout.decode()
    return f"# {title}\n\n`````{{raw}} html\n{body}\n`````\n"


def relink(path, text, shown):
    """A page's text with links to what the site has: pages, files, and manuals, which it need not link itself."""
    here = pathlib.PurePosixPath(path).parent
    of_manuals = {source.relative_to(ROOT).as_posix(): page_of(source) for source in manuals().values()}

    def to(target):
        return os.path.relpath(target, here)

    def link(match):
        name, mark, anchor = match[1].partition("#")
        target = os.path.normpath(here / name) if name else path
        if name.startswith("http") or target in shown or (ROOT / target).is_file() and target not in of_manuals:
            return match[0]
        label = match[0][:match[0].rindex("](") + 1]
        return f"{label}({to(of_manuals[target])})" if target in of_manuals else label[1:-1]

    def manual(match):
        source = manuals().get(f"{match[1]}({match[2]})")
        return f"[{match[0]}]({to(page_of(source))})" if source else match[0]

    parts = re.split(f"({FENCED.pattern})", text, flags=FENCED.flags)
    return "".join(part if i % 2 else MANUAL.sub(manual, LINK.sub(link, part)) for i, part in enumerate(parts))


def contents(shown):
    """The pages in the order in which the README links them, then the others; the manuals behind them."""
    linked = [link.partition("#")[0] for link in LINK.findall(shown["README.md"])]
    order = dict.fromkeys(["README.md", *(link for link in linked if link in shown), *sorted(shown)])
    guides = "\n".join(name.removesuffix(".md") for name in order)
    manual = "\n".join(str(page_of(path).with_suffix("")) for path in manuals().values())
    return (f"# dloaderd\n\n```{{toctree}}\n:caption: Guides\n:maxdepth: 1\n\n{guides}\n```\n\n"
            f"```{{toctree}}\n:caption: Manual pages\n:maxdepth: 1\n\n{manual}\n```\n")


def lay_out(work):
    shown = {path: text for path, text in pages().items() if path != "tests/python/README.md"}
    texts = {path: relink(path, text, shown) for path, text in shown.items()}
    texts |= {str(page_of(path)): manual_page(title, path) for title, path in manuals().items()}
    texts["index.md"] = contents(shown)
    shutil.rmtree(work, ignore_errors=True)
    for path, text in texts.items():
        to = work / path
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text, encoding="utf-8")
    for path, text in shown.items():
        for link in LINK.findall(FENCED.sub("", text)):
            file = (ROOT / path).parent / link.partition("#")[0]
            if file.is_file() and file.suffix not in (".md", ".scd"):
                to = work / file.resolve().relative_to(ROOT)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, to)


class Page(html.parser.HTMLParser):
    """What a page links, what a browser loads for it, and what a link to it may name."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        place = found.get(LOADS.get(tag))
        if place and not (tag == "link" and found.get("rel") in SAYS):
            self.loads.append(place)
        elif tag == "a" and found.get("href"):
            self.links.append(found["href"])


def faults(out):
    read = {path: Page(path.read_text(encoding="utf-8")) for path in out.rglob("*.html")}
    for path, page in read.items():
        for link in [*page.links, *page.loads]:
            if re.match(r"[a-z]+:|//", link):
                if link in page.loads:
                    yield f"{path.relative_to(out)} loads {link}"
                continue
            name, _, anchor = link.partition("#")
            target = pathlib.Path(os.path.normpath(path.parent / name.partition("?")[0])) if name else path
            if not target.exists() or target in read and anchor not in read[target].anchors:
                yield f"{path.relative_to(out)}: nothing is at {link}"
    for path in out.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(r"(?:url\(|@import)\s*['\"]?((?:[a-z]+:)?//[^)'\";]*)", text):
            yield f"{path.relative_to(out)} loads {match[1]}"


def main(work, out):
    work, out = pathlib.Path(work), pathlib.Path(out)
    lay_out(work)
    shutil.rmtree(out, ignore_errors=True)
    version = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text(encoding="utf-8"))[1]
    subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", work / ".doctrees",
                    "-c", ROOT / "tests/docs", work, out], check=True, env={**os.environ, "VERSION": version})
    found = list(faults(out))
    print(*found, sep="\n", end="\n" * bool(found))
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: docs_site.py WORK OUT")
    sys.exit(main(*sys.argv[1:]))
