"""HTML for notebooks: tables of text, in the colours that the notebook has. Needs no NumPy."""

from __future__ import annotations

import html
import sys
from collections.abc import Iterable, Sequence
from typing import Any

_STYLE = """
.dl-view { color-scheme: light dark; }
.dl-view table { border-collapse: collapse; font: 13px/1.5 ui-monospace, monospace; margin: .5em 0; }
.dl-view caption { caption-side: top; text-align: left; opacity: .75; }
.dl-view th, .dl-view td { text-align: left; padding: .15em .8em .15em 0; border-bottom: 1px solid #8884; }
.dl-view img { display: block; max-width: 100%; height: auto; margin: .5em 0; }
.dl-text td { vertical-align: top; white-space: pre-wrap; overflow-wrap: anywhere; max-width: 60em; }
.dl-text td:first-child { white-space: normal; max-width: 9em; }
.dl-pad { opacity: .75; font-style: italic; }
.dl-next { border-left: 3px double currentColor; margin-left: .4em; padding-left: .4em; }
.dl-loss { text-decoration: underline; text-decoration-thickness: 2px; font-weight: 600; }
"""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Whatever stands in the cells is text."""
    told = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    top = "".join(f'<th scope="col">{html.escape(one)}</th>' for one in head)
    top = f"<thead><tr>{top}</tr></thead>" if head else ""
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(one)}</td>' for one in row)}</tr>" for row in rows)
    return f"<table>{told}{top}<tbody>{body}</tbody></table>"


def facts(name: str, rows: Iterable[tuple[str, Any]]) -> str:
    """What something is: a table of names and values, those that are None left out."""
    body = "".join(f'<tr><th scope="row">{html.escape(key)}</th><td>{html.escape(str(value))}</td></tr>'
                   for key, value in rows if value is not None)
    return f"<table><caption>{html.escape(name)}</caption><tbody>{body}</tbody></table>"


def fragment(body: str) -> str:
    """What a notebook shows."""
    return f'<div class="dl-view"><style>{_STYLE}</style>{body}</div>'


class Shown:
    """The same as text and as HTML."""

    def __init__(self, text: str, body: str) -> None:
        self._text, self.body = text, body

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return fragment(self.body)

    def tell(self, file: Any = None) -> None:
        """Displays it in a notebook, and prints it elsewhere, or where a file is given."""
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython is not None and file is None else None
        if getattr(shell, "kernel", None) is None:
            print(self._text, file=file)
            return
        from IPython.display import display  # type: ignore[import-not-found]
        display(self)
