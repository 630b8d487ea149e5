#!/usr/bin/env python3
"""Writes src/text/tokenizer/unicode_data.inc: the character properties that tokenizers need.

Hugging Face `tokenizers` is built on five libraries that follow five versions of Unicode: Oniguruma (categories in
regular expressions, 16.0), Rust's own characters (lower case, numbers, 17.0), the crate regex (\\w), unicode_categories
(punctuation and control characters of BERT, 8.0), unicode-normalization-alignments (NFC and friends, 9.0). To give the
same tokens for every character, the tables record what each of them says; they are asked, character by character,
through the package's own normalizers and pre-tokenizers.

Needs: pip install tokenizers==0.23.3 unicodedata2==16.0.0 regex
"""
import base64
import struct
import sys

import regex
import unicodedata2 as U
from tokenizers import Regex, normalizers as N, pre_tokenizers as P

assert U.unidata_version == "16.0.0"
CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
BLOCK = 128


def letters_apart(pre_tokenizer):
    """The characters that the pre-tokenizer splits off from the letter a on both sides."""
    found = set()
    for i in range(0, len(CODES), 2048):
        text = "a" + "a".join(map(chr, CODES[i:i + 2048])) + "a"
        found.update(ord(s) for s, _ in pre_tokenizer.pre_tokenize_str(text) if len(s) == 1 and s != "a")
    return found


def where(predicate):
    return {c for c in CODES if predicate(chr(c))}


def charsmap(keys):
    """A precompiled_charsmap that maps each of the keys to X: a double array of the layout that SentencePiece uses."""
    units = [0] * (1 << 16)
    used = [False] * len(units)
    used[0] = True
    top = 1

    def build(items, depth, node):
        nonlocal top
        labels = sorted({k[depth] if depth < len(k) else 0 for k in items})
        base = 1
        while any(used[base ^ l] for l in labels) or base ^ node >= 1 << 21:
            base += 1
        units[node] |= (base ^ node) << 10
        for l in labels:
            used[base ^ l] = True
        top = max(top, base | 255)
        for l in labels:
            child = base ^ l
            if l == 0:
                units[node] |= 1 << 8
                units[child] = 1 << 31
            else:
                units[child] |= l
                build([k for k in items if depth < len(k) and k[depth] == l], depth + 1, child)

    build([k.encode() for k in keys], 0, 0)
    blob = b"".join(struct.pack("<I", u) for u in units[:(top | 255) + 1])
    return base64.b64encode(struct.pack("<I", len(blob)) + blob + b"X\0")


def precompiled(keys):
    return N.Precompiled(base64.b64decode(charsmap(keys)))


def properties():
    cat = {c: U.category(chr(c)) for c in CODES}
    rows = {
        "LU": {c for c in CODES if cat[c] == "Lu"}, "LL": {c for c in CODES if cat[c] == "Ll"},
        "LT": {c for c in CODES if cat[c] == "Lt"}, "LM": {c for c in CODES if cat[c] == "Lm"},
        "LO": {c for c in CODES if cat[c] == "Lo"}, "M": {c for c in CODES if cat[c][0] == "M"},
        "N": {c for c in CODES if cat[c][0] == "N"}, "P": {c for c in CODES if cat[c][0] == "P"},
        "S": {c for c in CODES if cat[c][0] == "S"},
        "ND": {c for c in CODES if cat[c] == "Nd"}, "Z": {c for c in CODES if cat[c][0] == "Z"},
        "PC": {c for c in CODES if cat[c] == "Pc"}, "CN": {c for c in CODES if cat[c] == "Cn"},
    }
    spaced = P.WhitespaceSplit()
    rows["SPACE"] = where(lambda s: not spaced.pre_tokenize_str(s))
    check = P.Split(Regex(r"\s"), "removed")
    assert rows["SPACE"] == where(lambda s: not check.pre_tokenize_str(s))
    rows["NUMERIC"] = letters_apart(P.Digits(individual_digits=True))
    rows["PUNCT"] = letters_apart(P.Punctuation("isolated"))
    words = P.Whitespace()
    rows["WORD"] = where(lambda s: len(words.pre_tokenize_str("a" + s)) == 1 and s not in " " and
                         len(words.pre_tokenize_str("a" + s)[0][0]) == 2)
    bert = N.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    rows["CONTROL"] = where(lambda s: bert.normalize_str(s) == "")
    bert = N.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    rows["NONSPACING"] = where(lambda s: bert.normalize_str(s) == "")
    strip = N.StripAccents()
    rows["COMBINING"] = where(lambda s: strip.normalize_str(s) == "")
    drop = precompiled(["a"])  # a cluster of fewer than six bytes is replaced as a whole when its first letter is a key
    rows["EXTEND"] = where(lambda s: drop.normalize_str("a" + s) == "X")
    candidates = [chr(c) for c in CODES if regex.match(r"\p{GCB=Prepend}", chr(c))]
    drop = precompiled(candidates)
    rows["PREPEND"] = {ord(s) for s in candidates if drop.normalize_str(s + "a") == "X"}
    rows["BREAK"] = where(lambda s: regex.match(r"[\p{GCB=Control}\r\n]", s))
    return rows


def add_quick_checks(rows, canon, compat, ccc, pairs):
    """NFD... : characters that the form may change or move; a text without them is already in that form."""
    nfc, nfkc = N.NFC(), N.NFKC()
    hangul = set(range(0xAC00, 0xD7A4))
    second = {b for _, b, _ in pairs} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    rows["NFD"] = set(canon) | set(ccc) | hangul
    rows["NFKD"] = rows["NFD"] | set(compat)
    rows["NFC"] = where(lambda s: nfc.normalize_str(s) != s) | set(ccc) | second
    rows["NFKC"] = where(lambda s: nfkc.normalize_str(s) != s) | set(ccc) | second


def normal_forms():
    nfd, nfkd, nfc = N.NFD(), N.NFKD(), N.NFC()
    hangul = range(0xAC00, 0xD7A4)
    canon = {c: nfd.normalize_str(chr(c)) for c in CODES if c not in hangul}
    canon = {c: s for c, s in canon.items() if s != chr(c)}
    compat = {c: nfkd.normalize_str(chr(c)) for c in CODES if c not in hangul}
    compat = {c: s for c, s in compat.items() if s != chr(c) and s != canon.get(c)}
    ccc = {c: U.combining(chr(c)) for c in CODES if U.combining(chr(c))}
    ccc = {c: v for c, v in ccc.items() if c == 0x345 or nfd.normalize_str("\u0345" + chr(c))[-1] == "\u0345"}
    pairs = []
    for c in canon:
        raw = U.decomposition(chr(c)).split()
        if len(raw) == 2 and not raw[0].startswith("<"):
            a, b = (int(x, 16) for x in raw)
            if nfc.normalize_str(chr(a) + chr(b)) == chr(c):
                pairs.append((a, b, c))
    lower = N.Lowercase()
    lowered = {c: lower.normalize_str(chr(c)) for c in CODES}
    return canon, compat, ccc, sorted(pairs), {c: s for c, s in lowered.items() if s != chr(c)}


def write_rows(out, items, per_line):
    for i in range(0, len(items), per_line):
        out.write("    " + ", ".join(items[i:i + per_line]) + ",\n")


def two_stage(values):
    """Blocks of 128 values, each stored once; the class of c is blocks[index[c / 128]][c % 128]."""
    blocks, index, seen = [], [], {}
    for i in range(0, 0x110000, BLOCK):
        block = tuple(values[i:i + BLOCK])
        if block not in seen:
            seen[block] = len(blocks)
            blocks.append(block)
        index.append(seen[block])
    return blocks, index


def write_classes(out, rows):
    names = list(rows)
    flags = [0] * 0x110000
    for bit, name in enumerate(names):
        for c in rows[name]:
            flags[c] |= 1 << bit
    kinds = sorted(set(flags))
    number = {f: i for i, f in enumerate(kinds)}
    assert len(kinds) < 256
    blocks, index = two_stage([number[f] for f in flags])
    assert len(blocks) < 65536
    out.write(f"const uint32_t tok_uni_flags[{len(kinds)}] = {{\n")
    write_rows(out, [hex(k) for k in kinds], 16)
    out.write("};\n\nconst uint32_t tok_uni_ascii[128] = {\n")
    write_rows(out, [hex(f) for f in flags[:128]], 16)
    out.write(f"}};\n\nconst uint16_t tok_uni_index[{len(index)}] = {{\n")
    write_rows(out, [str(i) for i in index], 128)
    out.write(f"}};\n\nconst uint8_t tok_uni_class[{len(blocks)} * {BLOCK}] = {{\n")
    for b in blocks:
        write_rows(out, [str(v) for v in b], BLOCK)
    out.write("};\n\n")
    return names


def write_map(out, name, table):
    """Sorted code points with their replacement in UTF-8: offsets into one pool."""
    pool, rows = bytearray(), []
    for c in sorted(table):
        text = table[c].encode()
        at = pool.find(text)
        if at < 0:
            at = len(pool)
            pool += text
        rows.append("{0x%x, %d, %d}" % (c, at, len(text)))
    assert len(pool) < 65536
    out.write(f"static const struct tok_uni_row {name}_rows[{len(rows)}] = {{\n")
    write_rows(out, rows, 24)
    out.write(f"}};\n\nstatic const uint8_t {name}_pool[{len(pool)}] = {{\n")
    write_rows(out, [str(b) for b in pool], 128)
    out.write(f"}};\n\nconst struct tok_uni_map tok_uni_{name} = {{{name}_rows, {len(rows)}, {name}_pool}};\n\n")


def main(path):
    rows = properties()
    canon, compat, ccc, pairs, lower = normal_forms()
    add_quick_checks(rows, canon, compat, ccc, pairs)
    with open(path, "w") as out:
        out.write("/* Character properties, written by tools/make_unicode.py: do not edit. Included by unicode.c. */\n\n")
        names = write_classes(out, rows)
        write_map(out, "canonical", canon)
        write_map(out, "compatible", compat)
        write_map(out, "lower", lower)
        out.write(f"const struct tok_uni_ccc tok_uni_ccc[{len(ccc)}] = {{\n")
        write_rows(out, ["{0x%x, %d}" % (c, ccc[c]) for c in sorted(ccc)], 32)
        out.write(f"}};\nconst size_t tok_uni_n_ccc = {len(ccc)};\n\n")
        out.write(f"const struct tok_uni_pair tok_uni_pairs[{len(pairs)}] = {{\n")
        write_rows(out, ["{0x%x, 0x%x, 0x%x}" % p for p in pairs], 16)
        out.write(f"}};\nconst size_t tok_uni_n_pairs = {len(pairs)};\n")
    print("flags, from bit 0:", " ".join(names), file=sys.stderr)
    print({n: len(r) for n, r in rows.items()}, len(canon), len(compat), len(ccc), len(pairs), len(lower), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "src/text/tokenizer/unicode_data.inc")
