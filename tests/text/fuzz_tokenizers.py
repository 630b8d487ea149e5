#!/usr/bin/env python3
"""Random texts through `mlxcel tokenize` and `detokenize`, held against Hugging Face tokenizers and SentencePiece.

For each tokenizer of DATA/text/tokenizers: ids with special tokens parsed and not parsed, with the post-processor, the
decoding of those ids and of random ids. Texts mix all planes of Unicode, code, emoji, kinds of white space, combining
marks, control characters and fragments of the tokenizer's own special tokens.

usage: fuzz_tokenizers.py PROGRAM DATA [--count N] [--seed N] [--only NAME,...]     last line: "N passed, N failed"
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import sentencepiece
from tokenizers import Tokenizer

WORDS = ("the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one you "
         "were all her she there would their we him been has when who will no more if out so up said what its about than into them "
         "can only other time new some could these two may first then do any like my now over such our man me even most made after "
         "also did many off before must well back through years much where your way down should because long each just state those "
         "people too mr how little good world make very year still see own work men day get here old between both life being under "
         "three never know same last another while us might great go come since against right came take used himself few house "
         "American don't I'll we've they're it's you'd I'm HELLO World iPhone McDonald x86_64 O'Neill naïve café Straße Ångström").split()
CODE = ("def f(x):\n    return x + 1\n", "for (int i = 0; i < n; i++) {\n\t\ta[i] += b[i];\n}\n", "#include <stdio.h>\r\n", "<div class=\"x\">&nbsp;</div>",
        "SELECT * FROM t WHERE a >= 10;", "https://example.org/a/b?c=d&e=%20f#g", "0x1F 1e-10 3.14159 1,000,000 12345678901234567890", "$x->{y}[0] ||= !z;",
        "\\frac{1}{2}\\,dx", "```python\nprint('hi')\n```", "a_b_c camelCase PascalCase SCREAMING_CASE", "// ---- **** ==== #### ____", "{\"a\": [1, 2, null]}")
CJK = "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生自会那后能对着事其里所去行过家十用发天如然作方成者多日都三小军二无同么经法当起与好看学进种将还分此心前面又定见只主没公从"
SCRIPTS = [(0x20, 0x7E), (0xA0, 0xFF), (0x100, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x58F), (0x590, 0x5FF),
           (0x600, 0x6FF), (0x700, 0x7FF), (0x900, 0x97F), (0x980, 0x9FF), (0xA80, 0xB7F), (0xB80, 0xD7F), (0xE00, 0xEFF), (0xF00, 0xFFF), (0x1000, 0x109F),
           (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x139F), (0x1780, 0x17FF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x20CF),
           (0x20D0, 0x20FF), (0x2100, 0x214F), (0x2150, 0x218F), (0x2190, 0x23FF), (0x2460, 0x24FF), (0x2500, 0x27BF), (0x2C00, 0x2DFF), (0x2E00, 0x2E7F),
           (0x3000, 0x30FF), (0x3100, 0x33FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA8FF), (0xA900, 0xABFF), (0xAC00, 0xD7A3), (0xD7B0, 0xD7FF),
           (0xF900, 0xFAFF), (0xFB00, 0xFDFF), (0xFE00, 0xFE6F), (0xFE70, 0xFEFF), (0xFF00, 0xFFEF), (0xFFF0, 0xFFFF), (0x10000, 0x103FF), (0x10400, 0x10FFF),
           (0x11000, 0x11FFF), (0x12000, 0x16FFF), (0x1D000, 0x1D7FF), (0x1E000, 0x1EFFF), (0x1F000, 0x1FAFF), (0x20000, 0x2FFFF), (0x30000, 0x323AF),
           (0xE0000, 0xE01EF), (0xF0000, 0xF00FF), (0x10FF00, 0x10FFFF)]
SPACES = " \t\n\r\x0b\x0c\x85\xa0\u1680\u180e\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u200b\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
EMOJI = ("😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇺🇸🇫", "☺️", "✊🏿", "1️⃣", "🧑🏻‍🚀", "❤️‍🔥", "\u200d", "\ufe0f", "🏴\U000e0067\U000e0062\U000e007f", "🫠", "ⓂⅧ½²")
ODD = ("\u2581", "\u2581\u2581", "Ġ", "Ċ", "ĉ", "<0x0A>", "<0xE4>", "##", "</w>", "'s", "'S", "'\u017f", "'LL", "'Re", "’s", "\ufffd", "\x00", "\x01", "\x7f", "\x9f", "\u0345\u0301",
       "e\u0301", "\u0041\u030a", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0f71\u0f72", "\u0958", "\u0130", "\u1e9e", "\ufb01", "\u01c5", "\u0dda", "\u1d160", "\U0001d15e", "\u00ad",
       "\u0600", "\u0cf1", "...", "!!!", "——", "  ", "   ", "\r\n", "\n\n", " \n ", "\t\t", "\n \n\n", " \t\n")


class Texts:
    def __init__(self, seed, fragments):
        self.r = random.Random(seed)
        self.fragments = fragments or ["<s>"]

    def char(self):
        r = self.r
        low, high = r.choice(SCRIPTS)
        c = r.randint(low, high)
        return chr(c) if not 0xD800 <= c <= 0xDFFF else "?"

    def any_char(self):
        c = self.r.randrange(0x110000)
        return chr(c) if not 0xD800 <= c <= 0xDFFF else "\u00e9"

    def piece(self):
        r = self.r
        kind = r.randrange(16)
        if kind <= 3:
            return r.choice((" ", "", "", ", ", "-")) + r.choice(WORDS)
        if kind == 4:
            return r.choice(CODE)
        if kind == 5:
            return "".join(r.choice(CJK) for _ in range(r.randint(1, 12)))
        if kind == 6:
            low, high = r.choice(SCRIPTS)
            return "".join(chr(r.randint(low, high)) for _ in range(r.randint(1, 8)) if not low >= 0xD800 > high)
        if kind == 7:
            return r.choice(SPACES) * r.choice((1, 1, 1, 2, 3, 7)) + (r.choice(SPACES) if r.random() < 0.5 else "")
        if kind == 8:
            return r.choice(EMOJI)
        if kind == 9:
            return r.choice(ODD) * r.choice((1, 1, 2, 5))
        if kind == 10:
            return "".join(self.any_char() for _ in range(r.randint(1, 3)))
        if kind == 11:
            s = r.choice(self.fragments)
            if r.random() < 0.4 and len(s) > 1:
                a, b = sorted(r.sample(range(len(s) + 1), 2))
                s = s[a:b]
            return s
        if kind == 12:
            return str(r.randrange(10 ** r.randint(1, 12)))
        if kind == 13:
            return "".join(chr(r.randint(0x21, 0x7E)) for _ in range(r.randint(1, 6)))
        if kind == 14:
            return r.choice(WORDS)[:3] + "".join(chr(r.randint(0x300, 0x36F)) for _ in range(r.randint(1, 4)))
        return "".join(self.char() for _ in range(r.randint(1, 5)))

    def text(self):
        n = self.r.choice((1, 1, 2, 3, 4, 6, 9, 14))
        return "".join(self.piece() for _ in range(n))


def ask(program, args, values):
    """One JSON line in for each value, one out."""
    with tempfile.TemporaryFile() as f:
        f.write("".join(json.dumps(v) + "\n" for v in values).encode())
        f.seek(0)
        done = subprocess.run([program, *args], stdin=f, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(args)}: {done.stderr.decode('utf-8', 'replace').strip()}")
    lines = done.stdout.decode("utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


class Check:
    def __init__(self):
        self.passed = self.failed = 0

    def equal(self, name, what, inputs, got, want):
        bad = [i for i, (a, b) in enumerate(zip(got, want)) if a != b]
        if len(got) != len(want):
            print(f"FAILED {name} {what}: {len(got)} answers for {len(want)} inputs")
            self.failed += 1
        elif bad:
            self.failed += 1
            print(f"FAILED {name} {what}: {len(bad)} of {len(want)} differ")
            for i in sorted(bad, key=lambda i: len(str(inputs[i])))[:3]:
                print(f"  input {inputs[i]!r}\n  got   {got[i]!r}\n  want  {want[i]!r}")
        else:
            self.passed += 1


def decode(ref, ids, skip):
    """The reference's text; None where it panics (the decoder Strip does on tokens that are shorter than it wants)."""
    try:
        return ref.decode(ids, skip_special_tokens=skip)
    except BaseException as e:  # pyo3's PanicException is not an Exception
        if isinstance(e, (KeyboardInterrupt, SystemExit)):
            raise
        return None


def check_json(check, program, folder, name, args):
    ref = Tokenizer.from_file(str(folder / "tokenizer.json"))
    added = [t.content for t in ref.get_added_tokens_decoder().values()]
    texts = Texts(f"{args.seed} {name}", added)
    inputs = [texts.text() for _ in range(args.count)]
    model = ["-m", str(folder / "tokenizer.json")]
    want = [e.ids for e in ref.encode_batch_fast(inputs, add_special_tokens=False)]
    check.equal(name, "ids", inputs, ask(program, ["tokenize", "--jsonl", *model], inputs), want)
    some = max(1, args.count // 10)
    got = ask(program, ["tokenize", "--jsonl", "--add-special", *model], inputs[:some])
    check.equal(name, "ids with special tokens", inputs, got, [e.ids for e in ref.encode_batch_fast(inputs[:some])])
    ids = want[:some] + [[texts.r.randrange(ref.get_vocab_size()) for _ in range(texts.r.randint(1, 20))] for _ in range(some)]
    for flag, skip in (([], False), (["--skip-special"], True)):
        got = ask(program, ["detokenize", "--jsonl", *flag, *model], ids)
        texts_of = [decode(ref, i, skip) for i in ids]
        got = [a if b is not None else None for a, b in zip(got, texts_of)]
        check.equal(name, f"decoding, skip special {skip}", ids, got, texts_of)
    ref.encode_special_tokens = True
    got = ask(program, ["tokenize", "--jsonl", "--no-parse-special", *model], inputs)
    check.equal(name, "ids, special tokens as text", inputs, got, [e.ids for e in ref.encode_batch_fast(inputs, add_special_tokens=False)])


def check_spm(check, program, path, name, args):
    ref = sentencepiece.SentencePieceProcessor(model_file=str(path))
    pieces = [ref.id_to_piece(i) for i in range(min(1000, ref.get_piece_size()))]
    texts = Texts(f"{args.seed} {name}", [p for p in pieces if len(p) > 2])
    inputs = [texts.text() for _ in range(args.count)]
    want = [ref.encode(s) for s in inputs]
    model = ["-m", str(path)]
    check.equal(name, "ids", inputs, ask(program, ["tokenize", "--jsonl", "--no-parse-special", *model], inputs), want)
    some = max(1, args.count // 10)
    ids = want[:some] + [[texts.r.randrange(ref.get_piece_size()) for _ in range(texts.r.randint(1, 20))] for _ in range(some)]
    got = ask(program, ["detokenize", "--jsonl", "--skip-special", *model], ids)
    check.equal(name, "decoding", ids, got, [ref.decode(i) for i in ids])


def unpack(data, to, only):
    for archive in sorted((Path(data) / "text" / "tokenizers").glob("*.tar.xz")):
        if only and archive.name.split(".")[0] not in only:
            continue
        with tarfile.open(archive) as tar:
            tar.extractall(to, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(to)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("data", nargs="?")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    check = Check()
    fixtures = Path(__file__).resolve().parent / "tokenizers"
    with tempfile.TemporaryDirectory() as temp:
        if args.data:
            unpack(args.data, temp, args.only.split(",") if args.only else None)
        for folder in sorted(Path(temp).iterdir()) + sorted(fixtures.glob("*") if fixtures.exists() else []):
            if args.only and folder.name not in args.only.split(","):
                continue
            if (folder / "tokenizer.json").exists():
                check_json(check, args.program, folder, folder.name, args)
            for path in sorted(folder.glob("*.model*")):
                check_spm(check, args.program, path, f"{folder.name}/{path.name}", args)
            print(f"{folder.name}: {args.count} texts, {check.passed} passed, {check.failed} failed so far", file=sys.stderr, flush=True)
    print(f"{check.passed} passed, {check.failed} failed")
    return 1 if check.failed else 0


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    sys.exit(main())
