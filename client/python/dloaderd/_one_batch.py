"""`dlctl peek` and `dlctl replay`: one batch of a loader, in an epoch of its own, so that no other
client's batches, order or place are touched. dlctl has checked the options and found the daemon.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
from typing import Any

from . import _archive, _client, _contents, _fields, _figures, _look  # type: ignore[attr-defined]
from ._contents import json_number, json_text
from ._spec import add_key

_NODES = 3          # of _client.Epoch.next(): nothing is unpickled
_FEED_DEFAULT = 64  # samples that are fed at most, unless they are named
_JOBS = 16          # the daemon remembers the jobs that it has seen: these are few
_NO_EPOCH = (1 << 64) - 1


class Refused(Exception):
    """What cannot be done: an errno, what it is about, and why."""

    def __init__(self, code: int, path: str, message: str) -> None:
        super().__init__(message)
        self.errno, self.path, self.text, self.detail = code, path, message, ""


class OneBatch:
    """The batch at the place that the options, or the state, say."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        numbers = {name: int(options[name]) for name in ("epoch", "step", "rank", "world", "values")}
        self.epoch, self.step, self.rank, self.world, self.values = numbers.values()
        self.of_state = 0  # the state's world, which is that of the samples
        self.seed = None if options["seed"] is None else int(options["seed"])
        self.indices = options["indices"] and [int(i) for i in options["indices"].split(",")]
        self.state = self._read_state() if options["state"] else None
        self.fed = False  # the client is the sampler
        self.look = _look.Look(options)

    def _read_state(self) -> bytes:
        """What the state says that the options do not: the seed, and the world."""
        path = self.options["state"]
        with open(path, "rb") as file:
            state = file.read()
        try:
            said = json.loads(_client.state_json(state))
        except ValueError as error:
            raise Refused(errno.EINVAL, path, str(error)) from None
        self.of_state = said["world"]
        self.seed = said["seed"] if self.seed is None else self.seed
        return state

    # ---- opening ----

    def open(self) -> None:
        self.client = _client.Client(self.options["socket"], f"dlctl {self.options['verb']} "
                                                             f"{_client.version}")
        if not self.options["file"]:
            if self.options["spec"]:  # in which paths are absolute
                self.look.take_spec(self.options["spec"], "/")
            # In quotes: "train.py: a" is a mapping else.
            self.loader = self.client.open(json.dumps(self.options["operand"]))
            return
        path = self.options["operand"]
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.look.take_spec(text, os.path.dirname(os.path.abspath(path)))
        if self.options["sample"] is not None:
            text = _look.spec_for_sample(self.look.spec(), self.seed)
        adds = not self.options["seeded"] and self.seed is not None
        if adds:
            text = add_key(text, "seed", self.seed)
        self.loader = self.client.open(text, os.path.dirname(os.path.abspath(path)))
        if adds and self.loader.seed != self.seed:
            # A loader that has drawn its seed is shared with users that give one.
            raise Refused(errno.EEXIST, "seed",
                          f"the loader {self.loader.name} is open with the random seed {self.loader.seed} "
                          f"instead of {self.seed}; try again when it is closed")

    # ---- loading ----

    def _take_world_of_state(self) -> None:
        """Where --world is not given: as many ranks as read it, with shard.replicas more than have samples."""
        self.world = self.of_state * self.loader.replicas
        if self.rank >= self.world:
            raise Refused(errno.EINVAL, "--rank", f"{self.rank} is not below the world size, {self.world}")

    def _start(self) -> Any:
        """Of a job of its own: ranks of others may be in other epochs, and those that are dispatched
        together do not wait for this one. Where another dlctl has that name, the next is tried."""
        if self.state is not None and not self.world:
            self._take_world_of_state()
        place: dict[str, Any] = {"rank": self.rank, "world": self.world, "credits": 1}
        if self.state is None:
            place.update(epoch=self.epoch, step=self.step)
            if self.epoch == _NO_EPOCH:  # that is no epoch, and is refused without a job
                return self.loader.start(**place)
        else:
            state = self.state
            if self.step:
                state = self.loader.state(world=self.world, step=self.step, state=state)
            place.update(state=state)
        for i in range(_JOBS):
            try:
                return self.loader.start(**place, job=f"dlctl-{(os.getpid() + i) % _JOBS}")
            except _client.Error as error:
                if error.errno not in (errno.EBUSY, errno.EINVAL) or i + 1 == _JOBS:
                    raise
        raise AssertionError("some job was tried")

    def _feed(self, started: Any) -> None:
        """The samples that --indices names, or the first ones."""
        indices = self.indices
        if indices is None:
            length = self.loader.length
            n = min(max(self.loader.batch_size, 1), _FEED_DEFAULT)
            indices = range(n if length is None else min(n, length))
        self.fed = True
        if indices:
            started.feed_batch(list(indices))
        started.feed_end()

    def load(self, chooses: bool) -> Any:
        """`chooses`: where the client is the sampler and no samples are named, the first ones."""
        self.started = self._start()
        if self.indices is not None:
            self._feed(self.started)
        try:
            batch = self._next()
        except _client.NoData:
            if not chooses:
                raise Refused(errno.EINVAL, "sampler.kind",
                              "client: only a client has this order; name the samples of the batch: "
                              "--indices I,...") from None
            self._feed(self.started)
            batch = self._next()
        if batch is None:
            raise self._no_such_step()
        return batch

    def _next(self) -> Any:
        try:
            return self.started.next(-1, _NODES)
        finally:
            warning = self.started.warning() if self.client.is_usable else None
            if warning and self.options["json"]:
                _tell_error({"warning": {"message": warning}})
            elif warning:
                sys.stderr.write(f"dlctl: warning: {warning}\n")

    def _no_such_step(self) -> Refused:
        steps = 0 if self.fed else self.started.steps
        if steps is None:
            why = "the epoch ended before it"
        elif steps == 0:
            why = f"there is no batch: the {'dataset' if self.fed else 'epoch'} is empty"
        else:
            why = f"the epoch has {steps} steps for this rank, 0 to {steps - 1}"
        return Refused(errno.ENODATA, "--step", f"{self.step}: {why}")

    def draw(self, sample: int, epoch: int) -> list[_fields.Field]:
        """That sample in that epoch, in memory of its own."""
        self.indices, self.epoch = [sample], epoch
        batch = self.load(chooses=False)
        fields = _fields.copied(_fields.of_leaves(_contents.leaves(batch.data)))
        del batch
        self.started.end()
        return fields

    # ---- telling ----

    def place(self, batch: Any, epoch: int, rank: int, world: int) -> dict[str, Any]:
        numbers = {"seed": self.loader.seed, "epoch": epoch, "step": batch.step, "rank": rank,
                   "world": world}
        return {"name": json_text(self.loader.name), **{k: json_number(n) for k, n in numbers.items()},
                "fed": self.fed}

    @staticmethod
    def lines(place: dict[str, Any], batch: Any) -> list[str]:
        return [f"loader    {place['name']}, seed {place['seed']}",
                f"batch     epoch {place['epoch']}, step {place['step']}, rank {place['rank']} of "
                f"{place['world']}: {len(batch.indices)} samples, {_figures.bytes_of(batch.nbytes)}"]


# ---- verbs --------------------------------------------------------------------------------------

def _title(one: OneBatch, place: dict[str, Any]) -> str:
    name = os.path.basename(one.options["operand"]) if one.options["file"] else place["name"]
    return (f"{name}  epoch {place['epoch']}, step {place['step']}, rank {place['rank']} of {place['world']}, "
            f"seed {place['seed']}")


def _looked_at(one: OneBatch, place: dict[str, Any], batch: Any) -> Any:
    """The view, with its files written; None: nobody wants one."""
    if not one.look.is_wanted:
        return None
    view = one.look.view(_title(one, place), batch)
    _write_look(one, view)
    return view


def _write_look(one: OneBatch, view: Any) -> None:
    why = one.look.refusal(view)
    if why:
        raise Refused(errno.EINVAL, "--png", why)
    one.look.write(view)


def _draws(one: OneBatch) -> None:
    """One sample as several epochs have it."""
    one.open()
    sample, first = int(one.options["sample"]), one.epoch
    draws = {}
    for epoch in range(first, first + int(one.options["draws"])):
        draws[epoch] = one.draw(sample, epoch)
    name, seed = json_text(one.loader.name), json_number(one.loader.seed)
    title = f"{os.path.basename(one.options['operand'])}  sample {sample}, seed {seed}"
    view = one.look.view_of_draws(title, sample, draws) if one.look.is_wanted else None
    if view is not None:
        _write_look(one, view)
    trees = {epoch: [_contents.array_json(field.path, field.array) for field in fields if field.array is not None]
             for epoch, fields in draws.items()}
    if one.options["json"]:
        _tell_json({"name": name, "seed": seed, "sample": json_number(sample),
                    "draws": [{"epoch": json_number(epoch), "tree": tree} for epoch, tree in trees.items()],
                    **(one.look.told(view) if view is not None else {})})
        return
    lines = [f"loader    {os.path.basename(one.options['operand'])}, seed {seed}", f"sample    {sample}"]
    lines += [_contents.array_line(epoch, told) for epoch, tree in trees.items() for told in tree]
    _print("\n".join([*lines, *(one.look.lines(view, len(draws)) if view is not None else ())]))


def _peek(one: OneBatch) -> None:
    if one.options["sample"] is not None:
        _draws(one)
        return
    one.open()
    batch = one.load(chooses=True)
    place = one.place(batch, one.epoch, one.rank, one.world)
    view = _looked_at(one, place, batch)
    found = list(_contents.leaves(batch.data))
    indices = [i & _NO_EPOCH for i in batch.indices]
    if one.options["json"]:
        _tell_json({**place, "indices": [json_number(i) for i in indices], "bytes": batch.nbytes,
                    "tree": [_contents.leaf_json(leaf, one.values) for leaf in found],
                    **(one.look.told(view) if view is not None else {})})
        return
    lines = one.lines(place, batch)
    if one.fed:
        lines.append("order     is the client's; dlctl chose these samples itself")
    shown = [str(i) for i in indices[:one.values]]
    if shown:
        lines.append("indices   " + " ".join(shown + ["..."] * (len(shown) < len(indices))))
    _print("\n".join([*lines, *_contents.leaf_lines(found, one.values),
                      *(one.look.lines(view, one.values) if view is not None else ())]))


def _replay(one: OneBatch) -> None:
    output = one.options["output"]
    place_of_file = _archive.place_of(output) if output else None
    one.open()
    batch = one.load(chooses=False)
    place = one.place(batch, one.started.number, one.started.rank, one.started.world)
    told = {"dlctl": _client.version, **place, "samples": len(batch.indices),
            "repeated": batch.repeated}
    if place_of_file is not None:
        try:
            _archive.write(batch, place_of_file, told)
        except OSError as error:  # of the file beside it
            error.filename = place_of_file
            raise
    view = _looked_at(one, place, batch)
    if one.options["json"]:
        _tell_json({**told, **(one.look.told(view) if view is not None else {})})
        return
    lines = [*one.lines(place, batch), *[f"written   {output}"] * bool(output)]
    _print("\n".join([*lines, *(one.look.lines(view, one.values) if view is not None else ())]))


# ---- what dlctl says ----------------------------------------------------------------------------

def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except OSError as error:
        error.filename = "standard output"
        # What is in its buffer would fail once more at the end, which Python has an exit status of its own for.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _tell_json(told: dict[str, Any]) -> None:
    _print(json.dumps(told, separators=(",", ":")))


def _tell_error(told: dict[str, Any]) -> None:
    sys.stderr.write(json.dumps(told, separators=(",", ":")) + "\n")


def _report(error: Any, as_json: bool) -> int:
    """One line on standard error, and below it the report of Python code that failed."""
    path = getattr(error, "path", None)
    if path is None:  # the system's
        path = error.filename or ""
    text = getattr(error, "text", None) or error.strerror or str(error)
    detail = getattr(error, "detail", "")
    message = text.removeprefix(f"{path}: ") if path else text
    if as_json:
        told = {"code": errno.errorcode.get(error.errno or errno.EINVAL, "UNKNOWN"),
                "path": json_text(path), "message": message}
        _tell_error({"error": {**told, "detail": detail} if detail else told})
        return 1
    sys.stderr.write(f"dlctl: {path}{': ' if path else ''}{message}\n")
    _, _, lines = detail.partition("\n")  # the first one is for programs
    if lines:
        sys.stderr.write(re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f]", "?", lines.rstrip("\n")) + "\n")
    return 1


def main(options: dict[str, Any]) -> int:
    """Runs peek or replay by the options of dlctl; the exit status."""
    for number in (signal.SIGINT, signal.SIGPIPE):  # as of any program in C
        if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGPIPE:
            signal.signal(number, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    try:
        one = OneBatch(options)
        (_peek if options["verb"] == "peek" else _replay)(one)
    except (Refused, _client.StepError, OSError) as error:
        return _report(error, options["json"])
    except UnicodeDecodeError as error:
        return _report(Refused(errno.EINVAL, options["operand"], f"is not a loader spec: {error}"),
                       options["json"])
    except ValueError as error:  # of what is looked at: no pictures, no tokenizer
        return _report(Refused(errno.EINVAL, "", str(error)), options["json"])
    return 0
