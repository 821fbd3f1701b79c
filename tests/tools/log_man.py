"""The journal's fields and events in dloaderd(8), made from daemon/base/log.def.

    log_man.py DEF PAGE           exit status 1 if the page's part is not that of DEF
    log_man.py --write DEF PAGE   puts it there
"""

import re
import sys

import generated
from generated import escape

BEGIN = "; fields and events from daemon/base/log.def begin here"
END = "; fields and events from daemon/base/log.def end here"

FIELD = re.compile(r'^FIELD\(\w+, \w+, (\w+), "([^"]+)"\)$', re.MULTILINE)
EVENT = re.compile(r'^EVENT\((\w+), "([0-9a-f]{32})", "([^"]+)"\)$', re.MULTILINE)


def entries(text):
    """[(key, meaning)] and [(name, id, meaning)]; ValueError when an entry is not understood."""
    fields, events = FIELD.findall(text), EVENT.findall(text)
    told = len(re.findall(r"^(?:FIELD|EVENT)\(", text, re.MULTILINE))
    if len(fields) + len(events) != told or not fields or not events:
        raise ValueError(f"understood {len(fields) + len(events)} of {told} entries")
    return fields, events


def table(text):
    fields, events = entries(text)
    out = [f"*{escape(key)}*\n\t{escape(meaning)}.\n" for key, meaning in fields]
    out.append("The events, by their _MESSAGE\\_ID_:\n")
    out += [f"{number}\n\t{escape(meaning)}.\n" for _, number, meaning in events]
    return "\n".join(out)


def main(argv):
    return generated.main(argv, table, BEGIN, END)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
