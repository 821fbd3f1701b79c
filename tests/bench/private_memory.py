"""How much memory a program takes with all that it started, from /proc.

Private memory is what would be free without the program: Private_Clean and Private_Dirty of
smaps_rollup (proc(5)), summed. What several processes share, pages that fork() left in common or a
mapped file, is in none of these; it is in `pss_bytes`, where each page counts once. `kept_bytes` is that
without pages of files, which the kernel can drop: what must stay, memory that is shared included.
"""

import os
from contextlib import suppress

TAG = 'DLOADER_BENCH_TAG'


def tagged(tag):
    """Processes that were started with this value in their environment: one that was put in the background is no
    descendant any more."""
    want = f'{TAG}={tag}'.encode()
    found = set()
    for pid in filter(str.isdigit, os.listdir('/proc')):
        with suppress(OSError):
            with open(f'/proc/{pid}/environ', 'rb') as f:
                if want in f.read().split(b'\0'):
                    found.add(int(pid))
    return found


def descendants(roots):
    """`roots` and all that they started and that still lives."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir('/proc')):
        with suppress(OSError):
            with open(f'/proc/{pid}/stat', encoding='ascii', errors='replace') as f:
                parents[int(pid)] = int(f.read().rpartition(')')[2].split()[1])
    found = set(roots)
    more = True
    while more:
        more = {p for p, parent in parents.items() if parent in found} - found
        found |= more
    return found


def rollup(text):
    """{key: bytes} of a smaps_rollup file."""
    out = {}
    for line in text.splitlines()[1:]:
        key, _, rest = line.partition(':')
        out[key] = int(rest.split()[0]) * 1024
    return out


def private_of(pid):
    """Private bytes of this process alone; 0: it has ended."""
    try:
        with open(f'/proc/{pid}/smaps_rollup', encoding='ascii', errors='replace') as f:
            sums = rollup(f.read())
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sums['Private_Clean'] + sums['Private_Dirty']


def measure(tag=None):
    """Of this process, its descendants, and the tagged ones with theirs."""
    return measure_of({os.getpid()} | (tagged(tag) if tag else set()))


def measure_of(roots):
    """Of these processes and their descendants."""
    private = pss = kept = count = 0
    for pid in descendants(roots):
        try:
            with open(f'/proc/{pid}/smaps_rollup', encoding='ascii', errors='replace') as f:
                sums = rollup(f.read())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        private += sums['Private_Clean'] + sums['Private_Dirty']
        pss += sums['Pss']
        kept += sums['Pss_Anon'] + sums['Pss_Shmem']
        count += 1
    return {'private_bytes': private, 'pss_bytes': pss, 'kept_bytes': kept, 'processes': count}
