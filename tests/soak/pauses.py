"""Processes that are stopped for a while.

SIGCONT goes to one that is stopped and to nobody else. At its end, a program built with
AddressSanitizer looks for leaks: a child traces it, and waits for it to stop. A SIGCONT takes that
stop away, and the two wait for each other for ever.
"""

import os
import signal


def look(pid):
    """(state, when it began) of a process; None: it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            words = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if words[0] in "ZX" else (words[0], words[19])


class Pauses:
    def __init__(self):
        self.lives = {}  # {pid: when it began} of those that were stopped

    def is_on(self, pid):
        found = look(pid)
        return found is not None and self.lives.get(pid) == found[1]

    def begin(self, pid):
        """Whether there was such a process, and it was in no pause."""
        found = look(pid) if pid else None
        if not found or self.is_on(pid):
            return False
        self.lives[pid] = found[1]
        return self.send(pid, signal.SIGSTOP)

    def end(self, pid):
        """True: it goes on, or is gone. False: it has not stopped yet; ask again."""
        if self.is_on(pid) and look(pid) != ("T", self.lives[pid]):
            return False
        if self.is_on(pid):
            self.send(pid, signal.SIGCONT)
        self.lives.pop(pid, None)
        return True

    def end_all(self):
        """At once, however they are."""
        for pid in filter(self.is_on, self.lives):
            self.send(pid, signal.SIGCONT)
        self.lives.clear()

    @staticmethod
    def send(pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True
