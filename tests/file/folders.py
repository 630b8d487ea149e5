"""Small model folders and what can be wrong with them: the material of fuzz_folders.py.

A folder is a dict from file name to bytes, or to a tuple that says what lies there in place of a file: ("link", TARGET), ("pipe",),
("socket",), ("folder",), ("hole", BYTES). Everything random comes from the random.Random that is passed in, so a seed gives the same folder
everywhere.
"""
import base64
import copy
import json
import os
import stat
import struct
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = (0, -1, 1, 2, 3, 7, 255, 4096, 65537, 2**24, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -2**63, 0.5, -0.0, 1e-320, 1e30, 1e308,
           -1e308, float("nan"), float("inf"))
STRINGS = ("", "a", " ", "\u2581", "<s>", "x" * 3000, "\0", "\u00e9", "\U0001f600", "..", "/etc/passwd", "%s%n", "F32", "BF16", "U8", "[", "{{", "(a|aa)+$", "a" * 200000)
LARGEST = 256 << 20  # bytes of a file; the largest that is read has a quarter of it
TYPES = {"BF16": 2, "F16": 2, "F32": 4, "U32": 4, "U8": 1, "I32": 4, "I64": 8, "F64": 8, "BOOL": 1}
SPECIAL_TARGETS = ("/dev/zero", "/dev/full", "/dev/null", "/dev/tty", "/dev/random", "/dev/stdin", "/proc/kmsg", "/proc/self/mem", "/proc/self/environ", "/proc/self/fd/0",
                   "/sys/kernel/debug/tracing/trace_pipe", "/", ".", "..", "nothing-there", "config.json", "tokenizer.json", "model.safetensors")


# ---- seeds ----------------------------------------------------------------------------------------------------------

def header_bytes(header):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def made_up_weights(tensors):
    """A safetensors file of small numbers."""
    unit = {"BF16": b"\x23\x3c", "F16": b"\x1f\x21", "F32": struct.pack("<f", 0.01), "U32": b"\x5a\xa5\x96\x69", "U8": b"\x79"}
    header, data = {}, []
    at = 0
    for name, (dtype, *shape) in tensors.items():
        n = TYPES[dtype]
        for dim in shape:
            n *= dim
        data.append(unit.get(dtype, b"\1" * TYPES[dtype]) * (n // TYPES[dtype]))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    return header_bytes(header) + b"".join(data)


def read_folder(path):
    return {p.name: p.read_bytes() for p in sorted(path.iterdir()) if p.is_file() and not p.name.startswith("golden")}


def read_tree(path):
    """The same with the folders inside; their files have the folder's name before theirs."""
    inside = {f"{p.name}/{name}": data for p in sorted(path.iterdir()) if p.is_dir() for name, data in read_folder(p).items()}
    return {**read_folder(path), **inside}


class Seeds:
    """Folders that work: the built-in model, one for each storage format, one for each family, encoders with sentence-transformers' files; and tokenizers of every kind."""

    def __init__(self):
        quant = [read_folder(p) for p in sorted((ROOT / "tests/golden/quant").iterdir()) if p.is_dir()]
        self.tiny = read_folder(ROOT / "models/tiny")
        self.text_files = {name: data for name, data in quant[0].items() if name.startswith(("tokenizer", "generation"))}
        self.quant = quant
        self.families = sorted((ROOT / "tests/golden/traces").glob("*.json"))
        self.tokenizers = [read_folder(p) for p in sorted((ROOT / "tests/text/tokenizers").iterdir()) if p.is_dir()]
        self.encoders = [read_tree(p) for p in sorted((ROOT / "tests/golden/encoders").iterdir()) if p.is_dir()]
        self.modules = {name: data for e in self.encoders for name, data in e.items() if name in MODULE_FILES}
        for t in self.tokenizers:
            t.pop("expected.json", None)
        self.configs = [json.loads(p.read_text(encoding="utf-8"))["config"] for p in self.families]
        self.keys = sorted({key for c in self.configs for key in c})
        with_map = json.loads(ROOT.joinpath("tests/text/tokenizers/unigram-precompiled/tokenizer.json").read_bytes())
        self.charsmap = base64.b64decode(next(owner[key] for owner, key in places(with_map["normalizer"]) if key == "precompiled_charsmap"))

    def pick(self, r):
        kind = r.random()
        if kind < 0.02:
            folder = dict(self.tiny)
        elif kind < 0.08:
            folder = dict(r.choice(self.encoders))
        elif kind < 0.5:
            folder = dict(r.choice(self.quant))
        else:
            trace = json.loads(r.choice(self.families).read_text(encoding="utf-8"))
            folder = dict(self.text_files)
            folder["config.json"] = json.dumps(trace["config"]).encode()
            folder["model.safetensors"] = made_up_weights(trace["tensors"])
        if r.random() < 0.3:
            folder = {name: data for name, data in folder.items() if not name.startswith("tokenizer")}
            folder.update(r.choice(self.tokenizers))
        return folder


# ---- JSON -----------------------------------------------------------------------------------------------------------

def places(value, found=None):
    """The (container, key) pairs of a JSON value; of large ones the first and the last."""
    found = [] if found is None else found
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys if len(keys) < 200 else [*keys[:100], *keys[-100:]]:
        found.append((value, key))
        if isinstance(value[key], (dict, list)) and len(found) < 5000:
            places(value[key], found)
    return found


def nested(r):
    value = r.choice(NUMBERS + STRINGS)
    for _ in range(r.choice((1, 3, 40, 700))):
        value = [value] if r.random() < 0.5 else {"a": value}
    return value


def hostile(r):
    kind = r.randrange(12)
    if kind < 6:
        return r.choice(NUMBERS)
    if kind < 8:
        return r.choice(STRINGS)
    if kind == 8:
        return r.choice((True, False, None, [], {}, [[]], [None]))
    if kind == 9:
        return nested(r)
    item = r.choice(NUMBERS + STRINGS[:5] + ([], {}))
    n = r.choice((2, 100, 5000, 100000))
    return [item] * n if r.random() < 0.7 else {f"{item!s:.20}{i}": item for i in range(min(n, 20000))}


def times(r, value, choices):
    """How often something may be repeated within four megabytes."""
    return min(r.choice(choices), max(1, (4 << 20) // (len(json.dumps(value)) + 1)))


def mutate_value(r, root):
    spots = places(root)
    if not spots:
        return
    owner, key = r.choice(spots)
    kind = r.randrange(9)
    if kind < 4:
        owner[key] = hostile(r)
    elif kind == 4:
        del owner[key]
    elif kind == 5:
        other, place = r.choice(spots)
        try:
            owner[key] = copy.deepcopy(other[place])
        except (KeyError, IndexError):
            pass
    elif kind == 6 and isinstance(owner, list):
        owner *= times(r, owner, (2, 50, 2000, 100000))
    elif kind == 7 and isinstance(owner[key], (int, float)):
        owner[key] = owner[key] * r.choice((0, -1, 2, 3, 0.5, 1000)) + r.choice((0, 1, -1))
    elif kind == 8 and isinstance(owner[key], str):
        text = owner[key]
        at = r.randrange(len(text) + 1)
        owner[key] = text[:at] + r.choice(STRINGS) + text[at + r.randrange(3):]


def mutate_text(r, data):
    """Bytes, whatever they mean."""
    data = bytearray(data)
    kind = r.randrange(10)
    if kind == 0:
        return bytes(data[:r.randrange(len(data) + 1)])
    if kind == 1:
        return b""
    if kind == 2:
        return r.choice((b"\xef\xbb\xbf", b"\0", b" " * 4096, b"[" * 5000, b"{\"a\":" * 2000, b"\xff\xfe")) + bytes(data)
    if kind == 3:
        return bytes(data) + r.choice((b"\0", b"x", b"\n" * 100000, bytes(data)))
    for _ in range(r.choice((1, 1, 2, 8, 60))):
        if data:
            at = r.randrange(min(len(data), r.choice((64, 2048, len(data)))))
            if kind < 7:
                data[at] = r.choice((0, 1, 0x22, 0x2C, 0x5B, 0x7B, 0x80, 0xFF, r.randrange(256)))
            elif kind == 7:
                del data[at:at + r.randrange(1, 9)]
            else:
                data[at:at] = data[at:at + r.randrange(1, 40)]
    return bytes(data)


def json_of(data):
    try:
        value = json.loads(data)
    except (ValueError, TypeError):
        return None
    return value if isinstance(value, (dict, list)) else None


def edit_json(r, folder, name, edit):
    data = folder.get(name)
    value = json_of(data) if isinstance(data, bytes) else None
    if value is None or r.random() < 0.12:
        folder[name] = mutate_text(r, data if isinstance(data, bytes) else b"{}")
        return
    for i in range(r.choice((1, 1, 2, 4))):
        if i:
            value = json.loads(json.dumps(value))  # what was repeated is no longer one thing, which an edit would blow up in all its places
        edit(value)
    folder[name] = json.dumps(value, ensure_ascii=r.random() < 0.5).encode("utf-8", "replace")


# ---- config.json and its like ---------------------------------------------------------------------------------------

def config(r, folder, seeds):
    def edit(value):
        if isinstance(value, dict) and r.random() < 0.3:
            other = r.choice(seeds.configs)
            key = r.choice(seeds.keys)
            value[key] = copy.deepcopy(other.get(key, hostile(r)))
        else:
            mutate_value(r, value)
    edit_json(r, folder, "config.json", edit)


def generation(r, folder, seeds):
    keys = ("eos_token_id", "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "do_sample", "suppress_tokens", "bad_words_ids", "max_new_tokens",
            "max_length", "pad_token_id", "bos_token_id", "stop_strings", "forced_eos_token_id")
    def edit(value):
        if isinstance(value, dict):
            value[r.choice(keys)] = r.choice((hostile(r), list(range(r.choice((3, 2000, 100000)))), r.choice(NUMBERS)))
        mutate_value(r, value)
    edit_json(r, folder, "generation_config.json", edit)


TEMPLATES = ("{{ messages[0].content * 10**9 }}", "{% for a in range(10**9) %}{% for b in range(10**9) %}x{% endfor %}{% endfor %}", "{{ 'a' * 2**40 }}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
             "{% if 1 %}" * 20000, "{{ " + "(" * 20000, "{{ messages }}", "", "{{ 1 // 0 }}", "{% set x = [1] %}{% for i in range(64) %}{% set x = [x, x] %}{% endfor %}{{ x }}", "{{ bos_token }}<s>" * 5000)


def tokenizer_config(r, folder, seeds):
    def edit(value):
        kind = r.randrange(4)
        if kind == 0 and isinstance(value, dict):
            value["chat_template"] = r.choice(TEMPLATES + STRINGS)
        elif kind == 1 and isinstance(value, dict):
            value["added_tokens_decoder"] = {str(r.choice((i, i + 1000, 2**24 - 1, -1))): {"content": r.choice(STRINGS[:9]) + str(i), "special": r.random() < 0.5}
                                             for i in range(r.choice((1, 300, 20000)))}
        else:
            mutate_value(r, value)
    edit_json(r, folder, "tokenizer_config.json", edit)


# ---- tokenizers -----------------------------------------------------------------------------------------------------

def charsmap(r, seeds):
    """A map of SentencePiece: the real one with some bytes changed, or one that sends every byte somewhere."""
    if r.random() < 0.4:
        data = bytearray(seeds.charsmap)
        for _ in range(r.choice((1, 5, 100, 3000))):
            data[r.randrange(len(data))] = r.choice((0, 0x80, 0xBF, 0xC3, 0xF0, 0xFF, r.randrange(256)))
        return bytes(data)
    if r.random() < 0.5:  # characters, so that the map is taken
        pool = "".join(r.choice(("\u00e9", "a", "aa", "\u2581", " ", "\U0001f600", "b" * r.choice((1, 200)), "")) + "\0" for _ in range(r.randrange(1, 40))).encode()
    else:
        pool = b"".join(r.choice((b"\x80", b"\xc3", b"\xf0\x9f", b"a", b"aa", b"\xe2\x96\x81", b"\xff", b" ", b"\xbf\xbf", b"b" * r.choice((1, 300, 100000)))) + r.choice((b"\0", b"\0", b""))
                        for _ in range(r.randrange(1, 40)))
    units = [256 << 10] + [0] * 1023
    for byte in range(1, 256):
        node, slot = 256 ^ byte, r.choice((512 + r.randrange(512), 256, 256 + byte))
        units[node] = byte | r.choice((0, 1 << 8, 1 << 8)) | (node ^ slot) << 10
        if slot >= 512:
            units[slot] = r.choice((r.randrange(len(pool)), r.randrange(len(pool)), 0, len(pool), 2**31 - 1))
    array = b"".join(struct.pack("<I", u) for u in units)
    return struct.pack("<I", len(array)) + array + pool


PATTERNS = (r"\p{L}+|\p{N}|.", r"(a|a)*b|.", r"(?:(?:a|a){18}c)?.", r"(?=.*z)?.", r"\b" * 3000, r"[\p{L}\p{M}]+" * 300, "(" * 300, "[", r"(?i)\w+", r"\s+(?!\S)|\s+", "", "a", r"(?<=a)b\K", "x{1,1000}{1,1000}", "[a-z]*+")


def pattern(r):
    return {"Regex": r.choice(PATTERNS)} if r.random() < 0.7 else {"String": r.choice(STRINGS[:6])}


def part(r, seeds, kind):
    """One component of tokenizer.json, most of them sound and some of them not."""
    text = r.choice(("a", "aa", " ", "", "\u2581", "b" * r.choice((1, 2000, 300000))))
    behavior = r.choice(("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous", "No"))
    number = r.choice((0, 1, 2, 3, 1000, 2**31, 2**62, -1))
    parts = {
        "normalizer": [{"type": t} for t in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel", "Strip", "BertNormalizer")] + [
            {"type": "Replace", "pattern": r.choice(({"String": "a"}, pattern(r))), "content": text},
            {"type": "Prepend", "prepend": text},
            {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap(r, seeds)).decode()},
            {"type": "Precompiled", "precompiled_charsmap": text}],
        "pre_tokenizer": [{"type": t} for t in ("ByteLevel", "Whitespace", "WhitespaceSplit", "BertPreTokenizer", "Metaspace", "Punctuation", "Digits")] + [
            {"type": "Split", "pattern": pattern(r), "behavior": behavior, "invert": r.random() < 0.3},
            {"type": "Metaspace", "replacement": r.choice(("\u2581", "a", "aa", "")), "prepend_scheme": r.choice(("always", "first", "never", "x")), "split": r.random() < 0.5},
            {"type": "CharDelimiterSplit", "delimiter": text[:1]}, {"type": "FixedLength", "length": number}],
        "decoder": [{"type": t} for t in ("ByteLevel", "ByteFallback", "Fuse", "WordPiece", "BPEDecoder", "CTC", "Metaspace")] + [
            {"type": "Replace", "pattern": r.choice(({"String": "a"}, pattern(r))), "content": text},
            {"type": "Strip", "content": r.choice((" ", "a", "aa")), "start": number, "stop": number},
            {"type": "WordPiece", "prefix": text, "cleanup": True}, {"type": "CTC", "pad_token": text, "word_delimiter_token": text}],
        "post_processor": [
            {"type": "ByteLevel"}, {"type": "BertProcessing", "sep": ["a", number], "cls": ["b", number]},
            {"type": "TemplateProcessing", "single": ([{"SpecialToken": {"id": "a"}}] * r.choice((1, 1000, 30000)) + [{"Sequence": {"id": "A"}}]) * r.choice((1, 1, 2)),
             "special_tokens": {"a": {"id": "a", "ids": [1] * r.choice((0, 1, 1000))}}}],
    }[kind]
    one = r.choice(parts)
    if r.random() < 0.4:
        names = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders", "post_processor": "processors"}
        many = [one] * times(r, one, (2, 12, 40, 3000)) if r.random() < 0.5 else [r.choice(parts) for _ in range(r.randrange(5))]
        one = {"type": "Sequence", names[kind]: many}
    return one


def vocabulary(r, model):
    """Tokens that are long, many, far apart, or the same."""
    long_token = r.choice(("a", "\u00e9", "ab")) * r.choice((600, 5000, 1000000))
    vocab = model.get("vocab")
    if isinstance(vocab, list):
        vocab += r.choice(([[long_token, -1.0]], [["a" * i, -float(i)] for i in range(1, 400)], [["a", 1e308]] * 3, [["", 0.0]], [["z", "z"]]))
    elif isinstance(vocab, dict):
        vocab.update(r.choice(({long_token: len(vocab)}, {"far": r.choice((2**24 - 1, 2**24, 2**40, -1))}, {"a" * i: len(vocab) + i for i in range(1, 600)}, {"": len(vocab)})))
    if isinstance(model.get("merges"), list) and r.random() < 0.4:
        model["merges"] += r.choice((["a a"] * 1000, [["a", "a"]], ["aa"], [[]], [long_token[:100] + " a"], ["#version"] * 5))
    for key in ("max_input_chars_per_word", "unk_id", "continuing_subword_prefix", "end_of_word_suffix", "unk_token", "byte_fallback", "fuse_unk", "ignore_merges"):
        if r.random() < 0.1:
            model[key] = hostile(r)


def tokenizer(r, folder, seeds):
    def edit(value):
        kind = r.randrange(7)
        if not isinstance(value, dict):
            mutate_value(r, value)
        elif kind < 3:
            name = r.choice(("normalizer", "pre_tokenizer", "decoder", "post_processor"))
            value[name] = part(r, seeds, name)
        elif kind == 3 and isinstance(value.get("model"), dict):
            vocabulary(r, value["model"])
        elif kind == 4:
            value["added_tokens"] = [{"id": r.choice((i, 2**24, -5)), "content": r.choice(("<x%d>", "a" * 3000 + "%d", "a%d", " %d", "\u4e2d%d")) % i, "special": r.random() < 0.5,
                                      "normalized": r.random() < 0.5, "lstrip": r.random() < 0.3, "rstrip": r.random() < 0.3, "single_word": r.random() < 0.2}
                                     for i in range(r.choice((1, 40, 5000)))]
        else:
            mutate_value(r, value)
    if "tokenizer.json" not in folder and r.random() < 0.7:
        return other_tokenizer(r, folder, seeds)
    edit_json(r, folder, "tokenizer.json", edit)


def map_in_front(r, folder, seeds):
    """A charsmap in front of a model that reads characters."""
    value = json_of(r.choice([t["tokenizer.json"] for t in seeds.tokenizers if b'"Unigram"' in t.get("tokenizer.json", b"") or b"byte_fallback\": true" in t.get("tokenizer.json", b"")]))
    value["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap(r, seeds)).decode()}
    value["pre_tokenizer"] = None
    folder["tokenizer.json"] = json.dumps(value).encode()


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes((n & 127 | 128,)), n >> 7
    return out + bytes((n,))


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def sentencepiece(r, seeds):
    pieces = ["<unk>", "<s>", "</s>"] + [chr(c) for c in range(33, 120)] + ["\u2581", "\u2581the", "aa", "ab"] + r.choice(([], ["a" * n for n in range(3, 300)], ["b" * 1000000]))
    out = b""
    for i, piece in enumerate(pieces):
        kind = 2 if i == 0 else 3 if i < 3 else r.choice((1, 1, 1, 1, 4, 6, r.randrange(9)))
        out += field(1, field(1, piece.encode()) + b"\x15" + struct.pack("<f", r.choice((-1.0, -float(i), 0.0, 1e30))) + b"\x18" + varint(kind))
    out += field(2, b"\x18" + varint(r.choice((1, 1, 2, 2, 3))) + b"\x98\x02" + varint(r.randrange(2)))
    out += field(3, r.choice((b"", field(2, charsmap(r, seeds)), field(2, charsmap(r, seeds)))) + b"\x18" + varint(r.randrange(2)) + b"\x20" + varint(r.randrange(2)) + b"\x28" + varint(r.randrange(2)))
    return out


def other_tokenizer(r, folder, seeds):
    """tokenizer.model or a file of ranks in place of tokenizer.json."""
    folder.pop("tokenizer.json", None)
    old = next((t for name, t in folder.items() if name.endswith((".model", ".tiktoken")) and isinstance(t, bytes)), None)
    kind = r.randrange(3)
    if kind == 0 and old:
        folder["tokenizer.model"] = mutate_text(r, old)
    elif kind == 1:
        lines = [b"%s %d" % (base64.b64encode(bytes((b,))), b) for b in range(256)]
        lines += [b"%s %d" % (base64.b64encode(b"a" * n), 256 + n) for n in range(2, r.choice((3, 300, 600)))]
        lines += r.choice(([], [b"%s 99999" % base64.b64encode(b"b" * 1000000)], [b"YQ== 16777215"], [b"!!"], [b"YQ== -1"]))
        folder["tokenizer.model"] = b"\n".join(lines)
    else:
        data = sentencepiece(r, seeds)
        folder["tokenizer.model"] = data if r.random() < 0.7 else mutate_text(r, data)


# ---- weights --------------------------------------------------------------------------------------------------------

def split_weights(data):
    if not isinstance(data, bytes) or len(data) < 8:
        return None, b""
    n = struct.unpack("<Q", data[:8])[0]
    return json_of(data[8:8 + n]) if n < len(data) else None, data[8 + n:]


def weights(r, folder, seeds):
    name = r.choice([n for n in folder if n.endswith(".safetensors")] or ["model.safetensors"])
    header, data = split_weights(folder.get(name))
    kind = r.randrange(8)
    if not isinstance(header, dict) or not header or kind == 0:
        folder[name] = mutate_text(r, folder.get(name) if isinstance(folder.get(name), bytes) else b"")
        return
    if kind == 1:  # numbers that are none
        data = bytearray(data)
        for _ in range(r.choice((1, 100, 5000))):
            if data:
                data[r.randrange(len(data))] = r.choice((0x7F, 0xFF, 0x80, 0, r.randrange(256)))
        folder[name] = header_bytes(header) + bytes(data)
        return
    if kind == 2:  # the length of the header lies
        folder[name] = struct.pack("<Q", r.choice((0, 1, 7, 10**8, 10**8 + 1, 2**31, 2**63, 2**64 - 1, r.randrange(5000)))) + (folder[name][8:] if isinstance(folder[name], bytes) else b"")
        return
    tensor = header[r.choice(list(header))]
    if kind == 3 and isinstance(tensor, dict):
        tensor["shape"] = r.choice(([1] * r.choice((9, 65, 300000)) + [64], [0], [], [2**62, 4], [-1], [64] * 3, "64", tensor.get("shape", [])[::-1]))
    elif kind == 4 and isinstance(tensor, dict):
        tensor["dtype"] = r.choice(tuple(TYPES) + ("F8_E4M3", "F8_E5M2", "I8", "", "X"))
    elif kind == 5 and isinstance(tensor, dict):
        tensor["data_offsets"] = r.choice(([0, len(data)], [len(data), 0], [2**63, 2**63], [0, 2**64 - 1], [0], [1, 1], None))
    elif kind == 6:
        header[r.choice(("x" * 100000, "model.layers.99999999999.x", "", "__metadata__", "model.layers.0.mlp.extra.weight"))] = r.choice((tensor, {}, {"a": "b"}, {"a": 1}))
    else:
        mutate_value(r, header)
    folder[name] = header_bytes(header) + data


def index(r, folder, seeds):
    """Splits the weights into shards with an index, then breaks the one or the other."""
    header, data = split_weights(folder.get("model.safetensors"))
    if not isinstance(header, dict) or not all(isinstance(t, dict) and isinstance(t.get("data_offsets"), list) for t in header.values()):
        return
    n = r.choice((1, 2, 3))
    shards, names = [({}, []) for _ in range(n)], [f"model-{i + 1:05}-of-{n:05}.safetensors" for i in range(n)]
    weight_map = {}
    for key, tensor in header.items():
        at = r.randrange(n)
        begin, end = tensor["data_offsets"][:2] if len(tensor["data_offsets"]) >= 2 else (0, 0)
        piece = data[begin:end] if isinstance(begin, int) and isinstance(end, int) and 0 <= begin <= end else b""
        start = sum(len(p) for p in shards[at][1])
        shards[at][0][key] = dict(tensor, data_offsets=[start, start + len(piece)])
        shards[at][1].append(piece)
        weight_map[key] = names[at]
    del folder["model.safetensors"]
    for name, (part_header, pieces) in zip(names, shards):
        folder[name] = header_bytes(part_header) + b"".join(pieces)
    whole = {"metadata": {"total_size": len(data)}, "weight_map": weight_map}
    kind = r.randrange(8)
    if kind == 0:
        weight_map[r.choice(list(weight_map) or ["a"])] = r.choice(("../x.safetensors", "/dev/zero", "CON.safetensors", "", "x" * 300, "nothing.safetensors", 5, None))
    elif kind == 1:
        weight_map.update({f"extra.{i}": f"s{i}.safetensors" for i in range(r.choice((1, 50000)))})
    elif kind == 2:
        folder["model-00001-of-99999.safetensors"] = folder.pop(names[0])
    elif kind == 3:
        folder[names[-1]] = folder[names[0]]
    elif kind == 4:
        mutate_value(r, whole)
    if kind != 5:
        folder["model.safetensors.index.json"] = json.dumps(whole).encode()
    if kind == 6:
        folder["model.safetensors.index.json"] = mutate_text(r, folder["model.safetensors.index.json"])


# ---- sentence-transformers' files -----------------------------------------------------------------------------------

MODULE_FILES = ("modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors", "config_sentence_transformers.json", "sentence_bert_config.json")


def modules(r, folder, seeds):
    """What makes vectors of a model's states, beside any model."""
    for name, data in seeds.modules.items():
        folder.setdefault(name, data)
    name = r.choice(MODULE_FILES)
    if name.endswith(".json"):
        edit_json(r, folder, name, lambda value: mutate_value(r, value))
    elif isinstance(folder[name], bytes):
        folder[name] = mutate_text(r, folder[name])


# ---- what lies in the folder ----------------------------------------------------------------------------------------

FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json", "tokenizer.model",
         "model.safetensors", "model.safetensors.index.json")


def special(r, folder, seeds):
    name = r.choice(FILES)
    folder[name] = r.choice((("link", r.choice(SPECIAL_TARGETS)), ("link", r.choice(SPECIAL_TARGETS)), ("pipe",), ("socket",), ("folder",), ("link", name),
                             ("hole", r.choice((0, 10, 70 << 20, 2 << 30, 1 << 40)))))


def names(r, folder, seeds):
    kind = r.randrange(4)
    if kind == 0:
        folder.pop(r.choice(list(folder)), None)
    elif kind == 1:
        for i in range(r.choice((10, 3000))):
            folder[f"model-{i:05}-of-03000.safetensors"] = b""
    elif kind == 2:
        old = r.choice(list(folder))
        folder[r.choice(FILES)] = folder.pop(old)
    else:
        folder[os.fsdecode(r.choice((b"\xff\xfe", b"a" * 250, b"model\n.safetensors", "\U0001f600".encode())))] = b"x"


MUTATIONS = (config, config, config, generation, tokenizer_config, tokenizer, tokenizer, tokenizer, tokenizer, map_in_front, other_tokenizer, weights, weights, weights, index, modules, special, special, names)


def make(r, seeds):
    """A folder with one to three faults, and their names."""
    folder = seeds.pick(r)
    done = []
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        mutation = r.choice(MUTATIONS)
        mutation(r, folder, seeds)
        done.append(mutation.__name__)
    largest = max((len(data) for data in folder.values() if isinstance(data, bytes)), default=0)
    assert largest < LARGEST, f"{done} made a file of {largest} bytes: the mutator is at fault, not the program"
    return folder, done


def write(folder, path):
    os.makedirs(path)
    for name, data in folder.items():
        file = os.path.join(path, name)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        if isinstance(data, bytes):
            with open(file, "wb") as f:
                f.write(data)
        elif data[0] == "link":
            os.symlink(data[1], file)
        elif data[0] == "pipe":
            os.mkfifo(file)
        elif data[0] == "socket":
            os.mknod(file, stat.S_IFSOCK | 0o600)
        elif data[0] == "folder":
            os.makedirs(file)
        elif data[0] == "hole":
            with open(file, "wb") as f:
                f.truncate(data[1])
