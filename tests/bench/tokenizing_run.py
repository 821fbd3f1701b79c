"""One program that makes text into tokens, or the data for it; see tokenizing.py.

    tokenizing_run.py make FOLDER            a tokenizer.json of 50,000 tokens, english.txt, english.jsonl
    tokenizing_run.py rate LIBRARY FOLDER    prints {"seconds": …, "bytes": …, "ids": …}
    tokenizing_run.py batches CLASS FOLDER   prints {"seconds": …, "tokens": …, "batches": …}

LIBRARY is tokenizers or tiktoken, and its seconds are of the processor. CLASS is torch or dloaderd.
"""

import gzip
import itertools
import json
import os
import pathlib
import sys
import time

DICTIONARY = "/usr/share/dictd/gcide.dict.dz"
TEXT_BYTES = int(os.environ.get("TOKENIZING_BYTES", 16 << 20))
VOCABULARY = 50000
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
BATCH, WORKERS, WARM = 32, 2, 20


def make(folder):
    """Paragraphs of English: definitions, with what is quoted."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    text = gzip.open(DICTIONARY).read(TEXT_BYTES).decode(errors="replace")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    texts = [" ".join(lines[i:i + 12]) for i in range(0, len(lines), 12)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCABULARY, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "english.txt").write_text("\n".join(texts) + "\n")
    (folder / "english.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))


def tiktoken_of(folder):
    """The same vocabulary: tiktoken's ranks are the ids, as the merges come in their order."""
    import tiktoken
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {chr(byte): byte for byte in shown}
    letters.update({chr(256 + i): byte for i, byte in enumerate(hidden)})
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    ranks = {bytes(letters[letter] for letter in token): rank for token, rank in vocab.items()}
    encoding = tiktoken.Encoding("ours", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={})
    return encoding.encode_ordinary


def tokenizers_of(folder):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return lambda text: tokenizer.encode(text).ids


def rate(library, folder):
    encode = {"tiktoken": tiktoken_of, "tokenizers": tokenizers_of}[library](folder)
    texts = (folder / "english.txt").read_text().splitlines(keepends=True)
    for text in texts[:500]:
        encode(text)
    texts = texts[:max(1, len(texts) // 4)]
    begin = time.process_time()
    ids = sum(len(encode(text)) for text in texts)
    return {"seconds": time.process_time() - begin,
            "bytes": sum(len(text.encode()) for text in texts), "ids": ids}


def torch_batches(folder):
    import torch
    from tokenizers import Tokenizer
    from torch.nn.utils.rnn import pad_sequence
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    class Lines(torch.utils.data.Dataset):
        def __init__(self):
            self.lines = (folder / "english.jsonl").read_text().splitlines()

        def __len__(self):
            return len(self.lines)

        def __getitem__(self, index):
            return torch.tensor(tokenizer.encode(json.loads(self.lines[index])["text"]).ids)

    loader = torch.utils.data.DataLoader(
        Lines(), batch_size=BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True,
        collate_fn=lambda some: {"tokens": pad_sequence(some, batch_first=True)})
    return lambda: iter(loader)


def dloader_batches(folder):
    import dloaderd
    loader = dloaderd.Loader({
        "dataset": {"kind": "text", "paths": str(folder / "english.jsonl"), "tokenizer": "huggingface",
                    "model": str(folder / "tokenizer.json")},
        "sampler": {"kind": "random"}, "batch": {"size": BATCH}, "seed": 1,
        "collate": {"kind": "pad", "value": 0}, "workers": {"count": WORKERS}})
    return lambda: iter(loader)


def batches(kind, folder):
    epoch = {"torch": torch_batches, "dloaderd": dloader_batches}[kind](folder)
    several = itertools.chain.from_iterable(epoch() for _ in itertools.count())
    most = WARM + int(os.environ.get("TOKENIZING_BATCHES", 300)) * (10 if kind == "dloaderd" else 1)
    tokens = 0
    for i, batch in enumerate(itertools.islice(several, most)):
        if i == WARM:
            begin = time.monotonic()
        if i >= WARM:
            tokens += batch["tokens"].shape[0] * batch["tokens"].shape[1]
    return {"seconds": time.monotonic() - begin, "tokens": tokens, "batches": most - WARM}


def main():
    folder = pathlib.Path(sys.argv[-1])
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core; and as PyTorch's workers have it
    if sys.argv[1] == "make":
        make(folder)
    else:
        print(json.dumps({"rate": rate, "batches": batches}[sys.argv[1]](sys.argv[2], folder)))


if __name__ == "__main__":
    main()
