"""One contender of text_peers.py: rows of raw text, from its start on. Prints JSON.

    PYTHON text_start.py NAME FOLDER SECONDS RANK WORLD
    PYTHON text_start.py make FOLDER DOCUMENTS      the corpus, about 500 bytes each, and a tokenizer trained on it
    PYTHON text_start.py again FOLDER IDS           ours: epochs with dataset.ids, and another job's, by processor time

Each is a generator of how many tokens its rows have, by what its package has for that: dloaderd and zephon whole
documents, best fit; trl likewise, over a stream of datasets'; datasets, torchtitan and megatron cut documents where
rows end. lancedb packs ids that were stored, and no texts: rows as of datasets. With SECONDS 0 it has one batch and
stays until its input ends, so that its memory can be measured.
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


def spec_of(folder, seed=1, **dataset):
    return {"dataset": {"kind": "text", "paths": f"{folder}/corpus/*.jsonl", "tokenizer": "huggingface",
                        "model": f"{folder}/tokenizer.json", **dataset},
            "sampler": {"kind": "random", "order": "native"}, "batch": {"tokens": ROW, "lengths": "lazy",
                                                                          "overlong": "truncate"},
            "collate": {"kind": "pack", "length": ROW}, "seed": seed, "workers": {"count": WORKERS}}


def dloaderd(folder, rank, world):
    from dloaderd import Loader
    with Loader(spec_of(folder), rank, world, as_="numpy") as loader:
        for epoch in itertools.count():
            loader.set_epoch(epoch)
            for batch in loader:
                yield int((batch["segment_ids"] > 0).sum())


def streamed(folder, rank, world):
    from datasets import load_dataset
    from datasets.distributed import split_dataset_by_node
    rows = load_dataset("json", data_files=f"{folder}/corpus/*.jsonl", split="train", streaming=True)
    return split_dataset_by_node(rows.shuffle(seed=1, buffer_size=4096), rank, world)


def tokenizer_of(folder):
    from tokenizers import Tokenizer
    return Tokenizer.from_file(f"{folder}/tokenizer.json")


def ids_of(tokenizer, texts):
    return [one.ids for one in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def cut(batches):
    """Rows of documents' ids, one after another."""
    ids = []
    for documents in batches:
        ids += itertools.chain.from_iterable(documents)
        while len(ids) >= ROW:
            del ids[:ROW]
            yield ROW


def datasets(folder, rank, world):
    tokenizer = tokenizer_of(folder)
    yield from cut(ids_of(tokenizer, rows["text"]) for rows in streamed(folder, rank, world).iter(batch_size=256))


def trl(folder, rank, world):
    from trl import pack_dataset
    tokenizer = tokenizer_of(folder)
    rows = streamed(folder, rank, world).map(lambda rows: {"input_ids": ids_of(tokenizer, rows["text"])}, batched=True,
                                             batch_size=256, remove_columns=["text"])
    for row in pack_dataset(rows, ROW, "bfd", {"batch_size": 4096}):
        yield len(row["input_ids"])


def torchtitan(folder, rank, world):
    from torchtitan.components.tokenizer import HuggingFaceTokenizer
    from torchtitan.hf_datasets import DatasetConfig, text_datasets

    def load(path):
        from datasets import load_dataset
        return load_dataset("json", data_files=f"{path}/corpus/*.jsonl", split="train", streaming=True)

    text_datasets.DATASETS["made"] = DatasetConfig(folder, load, lambda row: row["text"])
    kind = text_datasets.HuggingFaceTextDataLoader
    loader = kind(kind.Config(dataset="made", dataset_path=folder, num_workers=WORKERS), dp_rank=rank, seq_len=ROW,
                  dp_world_size=world, tokenizer=HuggingFaceTokenizer(tokenizer_path=folder), local_batch_size=1)
    for inputs, _ in loader:
        yield inputs["input"].numel()


def zephon(folder, rank, world):
    from zephon import Dataset, MixtureSpec, Pipeline, StaticMixtureWorkSource
    work = StaticMixtureWorkSource(datasets=[Dataset.from_path(name="made", path=f"{folder}/corpus")],
                                   mixture=MixtureSpec({"made": 1.0}), chunk_size=256, seed=1)
    pipeline = Pipeline(work).decode_text().tokenize(
        tokenizer_id=folder, field="text", parallelism=WORKERS, special_tokens="none").pack_flat(
        max_length=ROW, algorithm="best_fit", num_bins=64, pad_token_id=0).batch(microbatch_size=1).options(
        world_size=world, global_rank=rank, aggregate_dir=os.environ["TEXT_MADE"])
    for batch in pipeline:
        yield ROW - int(batch.to_training(return_padding_mask=True)["padding_mask"].sum())


def lancedb(folder, rank, world):
    import lancedb as lance
    import pyarrow.json
    from lancedb.streaming import StreamingDataset
    tokenizer, made = tokenizer_of(folder), f"{os.environ['TEXT_MADE']}-{rank}"
    parts = [pyarrow.json.read_json(f"{folder}/corpus/{part}.jsonl") for part in range(FILES)]
    table = lance.connect(made).create_table("made", pyarrow.concat_tables(parts))
    del parts
    rows = StreamingDataset(table, num_splits=world, shuffle_seed=1, rank=rank, world_size=world, columns=["text"],
                            read_batch_size=256, transform=lambda rows: [
                                {"ids": ids} for ids in ids_of(tokenizer, rows["text"].to_pylist())])
    yield from cut([row["ids"]] for row in rows)


def megatron(folder, rank, world):
    """Two sets, blended. Their files are made first, as its preprocessing does."""
    import numpy
    import torch
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
    tokenizer, made = tokenizer_of(folder), pathlib.Path(os.environ["TEXT_MADE"])
    made.mkdir(exist_ok=True)
    prefixes = [str(made / f"{rank}-{half}") for half in range(2)]
    total = 0
    for half, prefix in enumerate(prefixes):
        out = IndexedDatasetBuilder(f"{prefix}.bin", numpy.uint16)
        for part in range(half, FILES, 2):
            with open(f"{folder}/corpus/{part}.jsonl", encoding="ascii") as lines:
                while texts := [json.loads(line)["text"] for line in itertools.islice(lines, 1024)]:
                    for ids in ids_of(tokenizer, texts):
                        out.add_document(ids, [len(ids)])
                        total += len(ids)
        out.finalize(f"{prefix}.idx")
    plain = type("Plain", (), {"vocab_size": 16384, "eod": 0, "unique_identifiers": {"made": 1}})()
    config = GPTDatasetConfig(random_seed=1, sequence_length=ROW, blend=(prefixes, [1.0, 1.0]), split="1,0,0",
                              path_to_cache=str(made), tokenizer=plain, reset_position_ids=True,
                              reset_attention_mask=False, eod_mask_loss=False, create_attention_mask=False)
    # It asks for the rank of a group, whatever there is; the shares of ranks are dealt below.
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    blend = BlendedMegatronDatasetBuilder(GPTDataset, [total // ROW, 0, 0], lambda: True, config).build()[0]
    order = range(rank, len(blend), world)
    for batch in torch.utils.data.DataLoader(torch.utils.data.Subset(blend, order), 1, num_workers=WORKERS):
        yield batch["tokens"].numel()


OURS = "dloaderd"
CONTENDERS = {one.__name__: one for one in (dloaderd, datasets, trl, torchtitan, zephon, lancedb, megatron)}


def spent_by(roots):
    return sum(cpu_seconds(private_memory.descendants(roots)).values())


def again(folder, ids):
    """A private daemon of this process; a job has a seed of its own."""
    from dloaderd import Loader

    def epoch(loader, number, words):
        loader.set_epoch(number)
        before, at = spent_by({os.getpid()}), time.perf_counter()
        tokens = sum(int((batch["segment_ids"] > 0).sum()) for batch in loader)
        spent, took = spent_by({os.getpid()}) - before, time.perf_counter() - at
        print(f"{words:18} {tokens / 1e6:.1f} M tokens, {1e9 * spent / tokens:.0f} ns of a core each, {took:.1f} s")

    with Loader(spec_of(folder, ids=ids), as_="numpy") as loader:
        epoch(loader, 0, "first epoch")
        epoch(loader, 1, "second epoch")
        with Loader(spec_of(folder, 2, ids=ids), as_="numpy") as other:
            epoch(other, 0, "another job")


def main():
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]))
        return
    if sys.argv[1] == "again":
        again(*sys.argv[2:])
        return
    name, folder, seconds, rank, world = sys.argv[1:]
    begin, imported = time.perf_counter(), spent_by({os.getpid()})
    batches = CONTENDERS[name](folder, int(rank), int(world))
    tokens, rows = next(batches), 1
    first = time.perf_counter() - begin
    others = {int(pid) for pid in os.environ.get("TEXT_DAEMON", "").split()}
    start = spent_by({os.getpid()} | others) - imported
    if float(seconds) == 0:
        print(json.dumps({"first": first}), flush=True)
        sys.stdin.read()
        return
    at, spent = time.perf_counter(), spent_by({os.getpid()} | others)
    so_far = tokens
    while time.perf_counter() - at < float(seconds) and (more := next(batches, None)) is not None:
        tokens, rows = tokens + more, rows + 1
    took = time.perf_counter() - at
    spent = spent_by({os.getpid()} | others) - spent
    print(json.dumps({"first": first, "start": start, "fill": tokens / rows / ROW, "rate": (tokens - so_far) / took,
                      "core": (tokens - so_far) / max(spent, 1e-9)}))


if __name__ == "__main__":
    main()
