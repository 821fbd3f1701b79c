"""Compares tokenizers with those of Hugging Face's library `tokenizers`, id by id: files of all the
styles that people use, trained here, and random texts of Unicode.

Usage: oracle_tokenizers.py TOKENS_PRINT [--seed N] [--cases N]

--cases is the number of texts for each file. Exits with 77 (skipped) where no interpreter has the
library (python3 -m pip install tokenizers), or the tokenizers were not built.
"""

import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unicodedata

import oracle

try:
    import tokenizers
    from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                            pre_tokenizers, processors, trainers)
except ImportError:
    tokenizers = None

TEXTS = [pathlib.Path("/usr/share/common-licenses", name)
         for name in ("GPL-3", "GFDL-1.3", "Artistic", "Apache-2.0", "MPL-2.0")]

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = CL100K % r"\p{N}{1,3}"
QWEN = CL100K % r"\p{N}"
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"

# ---- random texts -------------------------------------------------------------------------------

SCRIPTS = [(0x20, 0x7E), (0x20, 0x7E), (0x00, 0xFF), (0x100, 0x24F), (0x300, 0x36F), (0x370, 0x3FF),
           (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F),
           (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x218F), (0x2190, 0x27FF),
           (0x3000, 0x30FF), (0x3400, 0x9FFF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xE0FF),
           (0xF900, 0xFAFF), (0xFB00, 0xFDFF), (0xFE00, 0xFFFD), (0x10000, 0x103FF),
           (0x1D400, 0x1D7FF), (0x1F100, 0x1F1FF), (0x1F300, 0x1F64F), (0x20000, 0x2A6DF),
           (0x2F800, 0x2FA1D)]
BITS = ["'s", "'T", "'re", "'VE", "'m", "'ll", "'d", "'\u017f", " ", "  ", "   ", "\n", "\r\n", "\n\n",
        "\t", " \n ", "\u00a0", "\u3000", "\u2028", "\u0085", "123", "1", "45678", "3.14", "...", "!!",
        "(x)", "</s>", "<s>", "[MASK]", "[SEP]", "<|end|>", "<|start|>", "<mask>", "word", "Word",
        "\u2581", "\u2581a", "e\u0301", "\u0130", "\u03a3\u03c3\u03c2", "\u1e9b\u0323", "\ufb01", "\u2163",
        "\uff21", "\uac00\u11a8", "\U0001f468\u200d\U0001f469", "\U0001f1e9\U0001f1ea", "\u200b", "\ufeff",
        "\x00", "\x7f", "\ufffd", "<0x41>", "def f(x):\n    return x", "http://a.b/c?d=e"]

CLUSTERS = ["a", "\u00e9", "\u1e9b", "\uff76", "\uff9e", "\u0301", "\u0323", "\u0300", "\u200d", "\ufe0f", "\u20e3",
            "1", "\u0600", "\u1100", "\u1161", "\u11a8", "\U0001f468", "\U0001f3fb", "\r", "\n", "\u00a8", "\u0e33",
            "\x01", "\u0f71", "\u0915", "\u094d", "\u3099", "\u304b", "\u2126", "\u00bd"]


def is_old(character):
    """Known to every library's tables, however old they are."""
    return unicodedata.ucd_3_2_0.category(character) not in ("Cn", "Cs") or \
        0x1F300 <= ord(character) <= 0x1F5FF and unicodedata.category(character) != "Cn"


def old_characters():
    return [[chr(c) for c in range(first, last + 1) if is_old(chr(c))] for first, last in SCRIPTS]


class Texts:
    def __init__(self, rng):
        self.rng = rng
        self.scripts = [script for script in old_characters() if script]
        self.words = " ".join(text.read_text(encoding="utf-8", errors="replace")
                              for text in TEXTS if text.exists()).split()
        self.lines = [line for text in TEXTS if text.exists()
                      for line in text.read_text(encoding="utf-8", errors="replace").split("\n\n")]

    def part(self):
        rng = self.rng
        draw = rng.random()
        if draw < 0.3:
            return rng.choice(self.words)
        if draw < 0.55:
            return rng.choice(BITS)
        if draw < 0.65:
            return " "
        if draw < 0.7:  # clusters, which are normalized whole where they are short
            return "".join(rng.choice(CLUSTERS) for _ in range(rng.randint(1, 4)))
        return "".join(rng.choices(rng.choice(self.scripts), k=rng.randint(1, 6)))

    def text(self):
        rng = self.rng
        if rng.random() < 0.01:
            return rng.choice(self.lines)
        if rng.random() < 0.01:
            return self.part() * rng.randint(20, 200)
        return "".join(self.part() for _ in range(rng.randint(0, 12)))


# ---- the files ----------------------------------------------------------------------------------

def bpe(special=(), size=1500, alphabet=None, **keys):
    alphabet = pre_tokenizers.ByteLevel.alphabet() if alphabet is None else alphabet
    keys.setdefault("show_progress", False)
    return trainers.BpeTrainer(vocab_size=size, special_tokens=list(special),
                               initial_alphabet=alphabet, **keys)


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(
        [text.read_text(encoding="utf-8", errors="replace") for text in TEXTS if text.exists()] +
        [bit for bit in BITS if bit != "\x00"],  # a key of JSON that libjansson does not take
        trainer)
    return tokenizer


def ids_of(tokenizer, *names):
    return [(name, tokenizer.token_to_id(name)) for name in names]


def template(tokenizer, single, *names):
    return processors.TemplateProcessing(single=single, pair=single + " $B:1",
                                         special_tokens=ids_of(tokenizer, *names))


def by_regex(*patterns):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns] +
        [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    train(tokenizer, bpe(["<|end|>"]))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def roberta():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    train(tokenizer, bpe(["<s>", "</s>", "<unk>"]))
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.post_processor = processors.RobertaProcessing(*ids_of(tokenizer, "</s>", "<s>"))
    return tokenizer


def llama3():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = by_regex(LLAMA3)
    train(tokenizer, bpe())
    tokenizer.add_special_tokens(["<s>", "<|start|>", "<|end|>"])
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), template(tokenizer, "<s> $A", "<s>")])
    return tokenizer


def qwen():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = by_regex(QWEN)
    train(tokenizer, bpe())
    tokenizer.add_special_tokens(["<|start|>", "<|end|>"])
    return tokenizer


def deepseek():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.pre_tokenizer = by_regex(r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK)
    train(tokenizer, bpe(["<s>", "</s>"]))
    tokenizer.add_tokens([AddedToken("<|start|>", normalized=True), "word", " ..."])
    tokenizer.post_processor = template(tokenizer, "<s> $A </s>", "<s>", "</s>")
    return tokenizer


def o200k():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = by_regex(O200K)
    train(tokenizer, bpe())
    tokenizer.add_special_tokens(["<|start|>", "<|end|>"])
    return tokenizer


def clip():
    tokenizer = Tokenizer(models.BPE(unk_token="<|end|>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(CLIP), "removed", invert=True),
         pre_tokenizers.ByteLevel(add_prefix_space=False)])
    train(tokenizer, bpe(["<|start|>", "<|end|>"], end_of_word_suffix="</w>"))
    tokenizer.post_processor = processors.RobertaProcessing(
        *ids_of(tokenizer, "<|end|>", "<|start|>"), trim_offsets=False, add_prefix_space=False)
    return tokenizer


def llama2():
    """No pre-tokenizer: a text is one word. What is not in the vocabulary becomes bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    train(tokenizer, bpe(["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))],
                         alphabet=[]))
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.post_processor = template(tokenizer, "<s> $A", "<s>")
    return tokenizer


def metaspace(scheme, split, fuse):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    train(tokenizer, bpe(["<unk>", "<s>"], alphabet=[], limit_alphabet=80))
    tokenizer.add_tokens([AddedToken("<|end|>", rstrip=True), AddedToken("[MASK]", lstrip=True, rstrip=True)])
    return tokenizer


def metaspace_first():
    return metaspace("first", True, True)


def metaspace_whole():
    return metaspace("always", False, False)


def prefixed():
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Strip(), normalizers.NFD(), normalizers.StripAccents()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    train(tokenizer, bpe(["[UNK]"], alphabet=[], continuing_subword_prefix="##", limit_alphabet=90))
    return tokenizer


def bert(cased):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    train(tokenizer, trainers.WordPieceTrainer(
        vocab_size=1500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        show_progress=False))
    tokenizer.decoder = decoders.WordPiece()
    if cased:
        tokenizer.post_processor = processors.BertProcessing(*ids_of(tokenizer, "[SEP]", "[CLS]"))
    else:
        tokenizer.post_processor = template(tokenizer, "[CLS] $A [SEP]", "[CLS]", "[SEP]")
    return tokenizer


def bert_uncased():
    return bert(False)


def bert_cased():
    return bert(True)


def word_level():
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous"),
         pre_tokenizers.Digits(individual_digits=True)])
    train(tokenizer, trainers.WordLevelTrainer(special_tokens=["[UNK]"], vocab_size=3000,
                                               show_progress=False))
    tokenizer.add_tokens([AddedToken("word", single_word=True), AddedToken("DEF", normalized=True)])
    return tokenizer


def behaviors(behavior):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=9))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\w+|\b"), behavior), pre_tokenizers.Punctuation(behavior),
         pre_tokenizers.Split(" ", behavior), pre_tokenizers.Split("e", behavior, invert=True),
         pre_tokenizers.Digits()])
    train(tokenizer, trainers.WordPieceTrainer(vocab_size=900, special_tokens=["[UNK]"],
                                               limit_alphabet=100, show_progress=False))
    return tokenizer


def contiguous():
    return behaviors("contiguous")


def with_next():
    return behaviors("merged_with_next")


def with_previous():
    return behaviors("merged_with_previous")


def charsmap(rule):
    """What SentencePiece compiles of a rule that it has, as a tokenizer.json has it."""
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder, "text")
        text.write_text("\n".join(f"word{i} and {chr(97 + i % 26)}" for i in range(500)), encoding="utf-8")
        subprocess.run(["spm_train", f"--input={text}", f"--model_prefix={folder}/m", "--vocab_size=60",
                        f"--normalization_rule_name={rule}", "--minloglevel=2"], check=True,
                       stderr=subprocess.DEVNULL)
        model = pathlib.Path(folder, "m.model").read_bytes()
    return field_of(field_of(model, 3), 2)


def field_of(message, wanted):
    """The bytes of a field of a Protocol Buffers message."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            value |= (message[at] & 127) << shift
            shift += 7
            at += 1
            if message[at - 1] < 128:
                return value
    while True:
        head = number()
        if head & 7 != 2:
            at += {0: 0, 1: 8, 5: 4}[head & 7]
            if head & 7 == 0:
                number()
            continue
        size = number()
        if head >> 3 == wanted:
            return message[at:at + size]
        at += size


def unigram(normalizer, pre_tokenizer, **keys):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    return train(tokenizer, trainers.UnigramTrainer(
        vocab_size=1200, unk_token="<unk>", show_progress=False,
        special_tokens=["<pad>", "</s>", "<unk>", "<s>"], **keys))


def precompiled(rule):
    return normalizers.Precompiled(charsmap(rule))


def t5():
    tokenizer = unigram(precompiled("nmt_nfkc"), pre_tokenizers.Metaspace())
    tokenizer.post_processor = template(tokenizer, "$A </s>", "</s>")
    return tokenizer


def xlm_roberta():
    tokenizer = unigram(precompiled("nmt_nfkc"), pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]))
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.post_processor = template(tokenizer, "<s> $A </s>", "<s>", "</s>")
    return tokenizer


def albert():
    return unigram(normalizers.Sequence(
        [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
         normalizers.Lowercase(), precompiled("nmt_nfkc_cf")]), pre_tokenizers.Metaspace())


def unigram_first():
    tokenizer = unigram(precompiled("nmt_nfkc"), pre_tokenizers.Metaspace(prepend_scheme="first"))
    tokenizer.add_tokens([AddedToken("<|end|>", rstrip=True), AddedToken("[MASK]", lstrip=True)])
    return tokenizer


def unigram_never():
    return unigram(normalizers.Sequence([precompiled("nfkc"), normalizers.Replace(Regex(" {2,}"), "\u2581")]),
                   pre_tokenizers.Metaspace(prepend_scheme="never"))


def unigram_bytes():
    """Nothing cuts a text; what is unknown becomes bytes, or does not where one of them is missing."""
    tokenizer = unigram(precompiled("nfkc_cf"), pre_tokenizers.Metaspace(split=False))
    state = json.loads(tokenizer.to_str())
    state["model"]["vocab"] += [[f"<0x{byte:02X}>", -9] for byte in range(256) if byte != 0xF0]
    state["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(state))


def unigram_plain():
    """With tokens that are parts of others, of equal scores, and twice; a byte-level one."""
    tokenizer = Tokenizer(models.Unigram(
        [("<unk>", 0.0), ("a", -1.0), ("aa", -2.0), ("aaa", -3.0), ("b", -1.5), ("ab", -2.5), ("ba", -2.5),
         ("\u0120", -1.0), ("e", -2.0), ("word", -1.0), ("b", -4.0), ("the", -3.25)], 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return tokenizer


def truncated(make, most, **keys):
    def made():
        tokenizer = make()
        tokenizer.enable_truncation(most, **keys)
        return tokenizer
    made.__name__ = f"{make.__name__}_{most}"
    return made


FILES = [gpt2, roberta, llama3, qwen, deepseek, o200k, clip, llama2, metaspace_first, metaspace_whole,
         prefixed, bert_uncased, bert_cased, word_level, contiguous, with_next, with_previous,
         truncated(bert_cased, 3), truncated(bert_uncased, 9, stride=2), truncated(roberta, 20),
         truncated(llama3, 7, strategy="only_first"), truncated(gpt2, 1), truncated(llama2, 12),
         unigram_plain]
if shutil.which("spm_train"):
    FILES += [t5, xlm_roberta, albert, unigram_first, unigram_never, unigram_bytes, truncated(t5, 5)]

# ---- comparing ----------------------------------------------------------------------------------


def answers(program, path, texts):
    request = b"".join(struct.pack("=I", len(text)) + text for text in texts)
    done = subprocess.run([program, path], input=request, stdout=subprocess.PIPE, check=False)
    if done.returncode == oracle.SKIPPED:
        print("skipped: built without tokenizers (Debian: libpcre2-dev, libutf8proc-dev)")
        sys.exit(oracle.SKIPPED)
    if done.returncode:
        sys.exit("%s %s: exit status %d" % (program, path, done.returncode))
    lines = done.stdout.decode().split("\n")[:-1]
    if len(lines) != len(texts):
        sys.exit("%d texts, %d answers" % (len(texts), len(lines)))
    return lines


def compare_file(arguments, make, texts, folder):
    path = str(pathlib.Path(folder, make.__name__ + ".json"))
    make().save(path)
    theirs = Tokenizer.from_file(path).encode_batch(texts)
    ours = answers(arguments.program, path, [text.encode() for text in texts])
    for text, want, got in zip(texts, theirs, ours):
        if got != " ".join(map(str, want.ids)):
            sys.exit("seed %d: %s: %r\n  tokenizers %s: %s %s\n  ours: %s" % (
                arguments.seed, make.__name__, text, tokenizers.__version__, want.ids, want.tokens, got))


def compare(arguments):
    rng = random.Random(arguments.seed)
    source = Texts(rng)
    with tempfile.TemporaryDirectory() as folder:
        for make in FILES:
            for first in range(0, arguments.cases, 20000):
                count = min(20000, arguments.cases - first)
                compare_file(arguments, make, [source.text() for _ in range(count)], folder)
    print("tokenizers %s: %d files, %d texts each, equal (--seed %d)" % (
        tokenizers.__version__, len(FILES), arguments.cases, arguments.seed), flush=True)


def main():
    arguments = oracle.parse_arguments(2000)
    others = [] if arguments.this_one else [
        python for python in os.environ.get("DLOADER_TORCH_PYTHONS", "").split(":") if python]
    if tokenizers:
        compare(arguments)
    if not oracle.compare_elsewhere(arguments, others) and not tokenizers:
        print("skipped: no interpreter has the package tokenizers")
        sys.exit(oracle.SKIPPED)


if __name__ == "__main__":
    main()
