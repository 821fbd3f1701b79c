"""A user who reads epoch after epoch, until a line comes on standard input; prints as JSON how many batches
there were, how many had other samples than they should, and how long the slowest took to come.

    honest_user.py SOCKET SPEC
"""

import json
import os
import select
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from dltest import STOP, RawClient  # noqa: E402


def main():
    path, spec = sys.argv[1], json.loads(sys.argv[2])
    size = spec["batch"]["size"]
    batches = wrong = epoch = 0
    waits = []
    with RawClient(path) as client:
        loader = client.open(spec)["loader"]
        while epoch == 0 or not select.select([sys.stdin], [], [], 0)[0]:
            stream = client.start(loader, epoch=epoch)["stream"]
            while True:
                began = time.monotonic()
                got = client.next_batches()
                if not got:
                    break
                waits.append(time.monotonic() - began)
                for batch in got:
                    wrong += batch.indices != list(range(size * batch.step, size * (batch.step + 1)))
                    batches += 1
                    batch.release()
            client.send(STOP, stream)
            epoch += 1
    waits.sort()
    print(json.dumps({"batches": batches, "wrong": wrong, "slowest_s": waits[-1],
                      "p99_s": waits[len(waits) * 99 // 100]}))


if __name__ == "__main__":
    main()
