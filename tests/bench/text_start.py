"""One contender of blend_start.py --documents: rows of raw text, from its start on. Prints JSON.

    PYTHON text_start.py NAME FOLDER SECONDS RANK WORLD
    PYTHON text_start.py make FOLDER DOCUMENTS      the corpus, about 500 bytes each, and a tokenizer trained on it

NAME is dloaderd, or datasets (streaming, tokenized, and cut into rows: no document is whole). The interpreter of the
other has that package and tokenizers. With SECONDS 0 it has one batch and stays until its input ends, so that its
memory can be measured. Another contender is a generator of how many tokens each row of its has, and a name in main().
"""

import itertools
import json
import os
import pathlib
import random
import sys
import time

import private_memory
from ranks import cpu_seconds

ROW, WORKERS, FILES = 8192, 2, 8


def make(folder, documents):
    """Lengths are log-normal; words have letters by chance, and come as Zipf has it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    draw = random.Random(1)
    words = ["".join(draw.choices("etaoinshrdlcumwfgypbvk", k=draw.randint(2, 9))) for _ in range(20000)]
    weights = list(itertools.accumulate(1 / (i + 2) for i in range(len(words))))
    pathlib.Path(folder, "corpus").mkdir()
    text = draw.choices(words, cum_weights=weights, k=1 << 18)
    for part in range(FILES):
        with open(f"{folder}/corpus/{part}.jsonl", "w", encoding="ascii") as out:
            for _ in range(part, documents, FILES):
                n, at = min(20000, 1 + int(draw.lognormvariate(3.7, 1))), draw.randrange(len(text))
                out.write(f'{{"text": "{" ".join(text[at:at + n] or text[:n])}"}}\n')
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator((" ".join(text[i:i + 500]) for i in range(0, len(text), 500)), trainers.BpeTrainer(
        vocab_size=16384, special_tokens=["<pad>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    tokenizer.save(f"{folder}/tokenizer.json")


def dloaderd(folder, rank, world):
    from dloaderd import Loader
    spec = {"dataset": {"kind": "text", "paths": f"{folder}/corpus/*.jsonl", "tokenizer": "huggingface",
                        "model": f"{folder}/tokenizer.json"},
            "sampler": {"kind": "random", "order": "native"}, "batch": {"tokens": ROW, "lengths": "lazy",
                                                                          "overlong": "truncate"},
            "collate": {"kind": "pack", "length": ROW}, "seed": 1, "workers": {"count": WORKERS}}
    with Loader(spec, rank, world, as_="numpy") as loader:
        for epoch in itertools.count():
            loader.set_epoch(epoch)
            for batch in loader:
                yield int((batch["segment_ids"] > 0).sum())


def datasets(folder, rank, world):
    from datasets import load_dataset
    from datasets.distributed import split_dataset_by_node
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    rows = load_dataset("json", data_files=f"{folder}/corpus/*.jsonl", split="train", streaming=True)
    rows = split_dataset_by_node(rows.shuffle(seed=1, buffer_size=4096), rank, world)
    ids = []
    for texts in rows.iter(batch_size=256):
        for one in tokenizer.encode_batch_fast(texts["text"], add_special_tokens=False):
            ids += one.ids
        while len(ids) >= ROW:
            del ids[:ROW]
            yield ROW


def spent_by(roots):
    return sum(cpu_seconds(private_memory.descendants(roots)).values())


def main():
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]))
        return
    name, folder, seconds, rank, world = sys.argv[1:]
    begin = time.perf_counter()
    batches = {"dloaderd": dloaderd, "datasets": datasets}[name](folder, int(rank), int(world))
    tokens, rows = next(batches), 1
    first = time.perf_counter() - begin
    if float(seconds) == 0:
        print(json.dumps({"first": first}), flush=True)
        sys.stdin.read()
        return
    others = {int(pid) for pid in os.environ.get("TEXT_DAEMON", "").split()}
    at, spent = time.perf_counter(), spent_by({os.getpid()} | others)
    so_far = tokens
    while time.perf_counter() - at < float(seconds) and (more := next(batches, None)) is not None:
        tokens, rows = tokens + more, rows + 1
    took = time.perf_counter() - at
    spent = spent_by({os.getpid()} | others) - spent
    print(json.dumps({"first": first, "fill": tokens / rows / ROW, "rate": (tokens - so_far) / took,
                      "core": (tokens - so_far) / max(spent, 1e-9)}))


if __name__ == "__main__":
    main()
