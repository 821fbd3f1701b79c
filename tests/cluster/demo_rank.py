"""One rank of the training job of demo.py: it does what each line of standard input says, and answers
with a line.

    demo_rank.py SPEC SOCKET RANK       SPEC is JSON, RANK the one on this node
"""

import json
import sys
import time

import dloaderd

# The next batch is looked at that often only to hear whether there is to be one.
PAUSE = 0.25


class Rank:
    def __init__(self, spec, socket, rank):
        # All ranks or none take a step, so what nobody knows of the one that dies is known all the same.
        self.loader = dloaderd.Loader(json.loads(spec), rank=int(rank), world_size="cluster",
                                     socket=socket, as_="numpy", follow=False, left_out="ignore")
        self.iterator = self.before = None

    def begin(self, state):
        """An epoch, or what is left of it; once all nodes have met."""
        if state:
            self.loader.load_state_dict(state)
        self.iterator = iter(self.loader)
        return {"rank": self.loader.rank, "world": self.loader.world_size}

    def step(self):
        self.before = self.loader.state_dict()
        try:
            batch = next(self.iterator)
        except dloaderd.WorldChangedError as error:
            return {"over": str(error)}
        except StopIteration:
            return {"end": True}
        return {"samples": self.samples_of(batch)}

    def samples_of(self, batch):
        return batch[:len(batch) - self.loader.repeated].tolist()

    def back(self):
        """The state before the last step, which not all have taken: so none has."""
        return self.before

    def here(self):
        """The state after the last step."""
        return self.loader.state_dict()

    def stop(self):
        """There is another world, or will be soon: what this rank was given until it hears of it."""
        samples = []
        try:
            for batch in self.iterator:
                samples.append(self.samples_of(batch))
                time.sleep(PAUSE)
        except dloaderd.WorldChangedError as error:
            return {"over": str(error), "samples": samples}
        return {"end": True, "samples": samples}


def main(spec, socket, rank):
    me = Rank(spec, socket, rank)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(me, request.pop("do"))(**request)), flush=True)
    me.loader.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
