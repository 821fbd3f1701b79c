"""Tokens of the tokenizer sentencepiece beside those of the real spm_encode, with models that
spm_train makes of real text, line by line.

Usage: real_pieces.py CHECK_PIECES. Exits with 77 (skipped) where the programs of the package
sentencepiece are not installed, or the tokenizer was not built.
"""

import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

CHECK_PIECES = sys.argv.pop(1)
TEXTS = [pathlib.Path("/usr/share/common-licenses", name)
         for name in ("GPL-3", "GFDL-1.3", "Artistic", "Apache-2.0", "MPL-2.0")]
DICTIONARY = pathlib.Path("/usr/share/dictd/gcide.index")
# Where a tokenizer may differ: blanks, what is no text, what is not in the model, composed letters.
ODD = [b"", b" ", b"  two  blanks  ", b"\ttab\t", b"\xff\xfe", b"caf\xc3", b"caf\xc3\xa9",
       b"cafe\xcc\x81", "日本語 данные λόγος".encode(), "😀👩‍👩‍👧".encode(), "ﬁ ① Ⅳ ｆｕｌｌ".encode(),
       "\u2581 \u2581\u2581x".encode(), b"<s> </s> <unk> <0x41>", b"a\x00b", b"\xed\xa0\x80",
       b"x" * 5000, b"the " * 2000, "\ufffd\u200b\u00a0.".encode(), b"\x01\x7f", b"\xef\xbb\xbfmark"]


def real_lines():
    lines = [line for text in TEXTS if text.exists() for line in text.read_bytes().split(b"\n")]
    if DICTIONARY.exists():
        lines += random.Random(1).sample(DICTIONARY.read_bytes().split(b"\n"), 3000)
    return lines


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE,
                          **options).stdout


class Pieces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.lines = real_lines()
        cls.corpus = cls.write("corpus.txt", cls.lines)

    @classmethod
    def write(cls, name, lines):
        path = cls.folder / name
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    def train(self, name, *options):
        run("spm_train", f"--input={self.corpus}", f"--model_prefix={self.folder / name}",
            "--minloglevel=2", "--num_threads=1", *options, stderr=subprocess.DEVNULL)
        return self.folder / f"{name}.model"

    def tokens(self, model, path, max_length=0):
        return run(CHECK_PIECES, model, max_length, path).decode().split("\n")[:-1]

    def compare(self, model, lines):
        path = self.write("lines.txt", lines)
        want = run("spm_encode", f"--model={model}", "--output_format=id", path)
        want = want.decode().split("\n")[:-1]
        got = self.tokens(model, path)
        self.assertEqual(len(got), len(lines))
        for line, ours, theirs in zip(lines, got, want):
            self.assertEqual(ours, theirs, line)

    def check_model(self, name, *options):
        model = self.train(name, *options)
        self.assertGreater(len(self.lines), 2000)
        self.compare(model, self.lines)
        self.compare(model, ODD)

    def test_unigram(self):
        self.check_model("unigram", "--vocab_size=800")

    def test_bpe_with_bytes(self):
        self.check_model("bpe", "--vocab_size=900", "--model_type=bpe", "--byte_fallback=true")

    def test_characters_as_they_are(self):
        self.check_model("char", "--vocab_size=60", "--model_type=char", "--hard_vocab_limit=false",
                         "--normalization_rule_name=identity", "--add_dummy_prefix=false",
                         "--remove_extra_whitespaces=false")

    def test_max_length_keeps_the_first(self):
        model = self.train("short", "--vocab_size=500")
        whole = self.tokens(model, self.corpus)
        self.assertGreater(max(len(line.split()) for line in whole), 9)
        self.assertEqual(self.tokens(model, self.corpus, 9),
                         [" ".join(line.split()[:9]) for line in whole])

    def test_a_field_of_json(self):
        model = self.train("json", "--vocab_size=500")
        lines = [line for line in self.lines[:500] if line.isascii()]
        plain = self.write("plain.txt", lines)
        wrapped = self.write("wrapped.jsonl", [json.dumps({"text": line.decode()}).encode()
                                               for line in lines])
        self.assertEqual(self.tokens(model, wrapped), self.tokens(model, plain))

    def test_damaged_models_are_told_or_work(self):
        """A model has no checksum: one that was damaged may still be one. It must be told, or work;
        a crash is neither.
        """
        good = self.train("good", "--vocab_size=500").read_bytes()
        rng = random.Random(7)
        text = self.write("few.txt", self.lines[:50])
        refused = 0
        for i in range(20):
            bad = bytearray(good)
            if i < 8:
                del bad[len(bad) * i // 8:]
            else:  # among the pieces, which come first
                bad[rng.randrange(5000)] ^= 1 << rng.randrange(8)
            path = self.folder / "bad.model"
            path.write_bytes(bad)
            done = subprocess.run([CHECK_PIECES, str(path), "0", str(text)], check=False,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            if done.returncode:
                self.assertIn(f"{path}: ", done.stderr)
                self.assertIn("not a SentencePiece model", done.stderr)
            refused += done.returncode
        self.assertGreaterEqual(refused, 8)


def main():
    if not shutil.which("spm_train") or not shutil.which("spm_encode"):
        print("skipped: no spm_train and spm_encode (Debian: sentencepiece)")
        return 77
    if subprocess.run([CHECK_PIECES, "/dev/null", "0", "/dev/null"], check=False,
                      stderr=subprocess.DEVNULL).returncode == 77:
        print("skipped: built without SentencePiece (Debian: libsentencepiece-dev)")
        return 77
    return unittest.main()


if __name__ == "__main__":
    sys.exit(main())
