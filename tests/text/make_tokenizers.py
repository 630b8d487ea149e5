#!/usr/bin/env python3
"""Writes tests/text/tokenizers: small tokenizers that use every component, and what the reference makes of some texts.

Each folder holds tokenizer.json (or tokenizer.model, or ranks.tiktoken) and expected.json: rows with the text, its ids,
its ids with the post-processor's tokens and with special tokens taken as text, and the decoding of the ids.

usage: make_tokenizers.py [FOLDER]      needs tokenizers==0.23.3 sentencepiece==0.2.2 tiktoken
"""
import base64
import io
import json
import sys
import tempfile
from pathlib import Path

import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders as D, models as M, normalizers as N, pre_tokenizers as P, processors as S, trainers as T

TRAINING = """The quick brown fox jumps over the lazy dog. It was the best of times, it was the worst of times; it was the age of wisdom.
def main(argc, argv):
    return [x * 2 for x in range(10) if x % 3 == 0]  # comment
Die schöne Straße führt über die Brücke nach Köln. L'été dernier, la fenêtre était fermée. Привет, мир! Как дела?
你好，世界。今天天气很好，我们去公园玩。日本語のテキスト。한국어 텍스트입니다. 12345 67890 3.14 1,000
She's here, they're there, we've won, I'll go, don't you? 'Tis hello hello world world again and again and again.
""".split("\n")
TEXTS = ["", " ", "Hello, world!", "  leading and trailing  ", "the the the", "Line one\nLine two\r\n\n\tTabbed", "naïve café Straße ÅNGSTRÖM İstanbul",
         "e\u0301 \u0041\u030a \u1100\u1161\u11a8 ﬁ ² Ⅷ", "你好世界 今天", "Привет мир", "한국어 텍스트", "😀 👍🏽 👨‍👩‍👧 🇩🇪", "a1b22c333d4444 1,000.50", "don't we've I'll 'S",
         "x<s>y</s>z", "<s> padded <mask>  spaces", "word<mask>word <mask>", "yesterday Yesterday YESTERDAY", "...!?-- (a) [b] {c}", "\u2581under\u2581 _score_",
         "zero\u200bwidth\u00a0nbsp\u3000wide", "\x00\x01\x7f\u0085control", "🜁𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐐷", "a-b-c--d", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         "if (x == 0) { return; }", "\ufeffbom \ufffd", "Ġ Ċ <0x41> ##a</w>", "the quick brown fox " * 8]


def texts(tok):
    return TEXTS + [t.content for t in tok.get_added_tokens_decoder().values()]


def rows_json(tok, more=()):
    rows = []
    for text in [*texts(tok), *more]:
        tok.encode_special_tokens = False
        ids = tok.encode(text, add_special_tokens=False).ids
        row = {"text": text, "ids": ids, "special": tok.encode(text).ids, "decoded": tok.decode(ids, skip_special_tokens=False),
               "skipped": tok.decode(ids, skip_special_tokens=True)}
        tok.encode_special_tokens = True
        row["plain"] = tok.encode(text, add_special_tokens=False).ids
        rows.append(row)
    return rows


def write(folder, name, data, rows, file="tokenizer.json"):
    to = folder / name
    to.mkdir(parents=True, exist_ok=True)
    (to / file).write_bytes(data)
    (to / "expected.json").write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


def save(folder, name, tok, change=None, more=()):
    data = json.loads(tok.to_str())
    if change:
        change(data)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    write(folder, name, text.encode(), rows_json(Tokenizer.from_str(text), more))


def trained(model, trainer, normalizer=None, pre=None):
    tok = Tokenizer(model)
    if normalizer:
        tok.normalizer = normalizer
    if pre:
        tok.pre_tokenizer = pre
    tok.train_from_iterator(TRAINING, trainer)
    return tok


def bpe(size=320, normalizer=None, pre=None, alphabet=None, unk=None, **options):
    special = ["<unk>"] if unk else []
    kept = {k: options.pop(k) for k in ("continuing_subword_prefix", "end_of_word_suffix") if k in options}
    trainer = T.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=special, initial_alphabet=alphabet or [], **kept)
    return trained(M.BPE(unk_token=unk, **kept, **options), trainer, normalizer, pre)


def byte_bpe(pre, **options):
    return bpe(size=400, pre=pre, alphabet=P.ByteLevel.alphabet(), **options)


def unigram(size=260, **options):
    trainer = T.UnigramTrainer(vocab_size=size, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>")
    return trained(M.Unigram(), trainer, **options)


def words(pre, normalizer=None):
    trainer = T.WordLevelTrainer(vocab_size=300, show_progress=False, special_tokens=["[UNK]"])
    return trained(M.WordLevel(unk_token="[UNK]"), trainer, normalizer, pre)


def make_bpe(folder):
    tok = byte_bpe(P.ByteLevel(add_prefix_space=True))
    tok.add_special_tokens([AddedToken("<s>"), AddedToken("</s>"), AddedToken("<mask>", lstrip=True, normalized=False)])
    tok.add_tokens([AddedToken("yesterday", single_word=True), AddedToken("quick", rstrip=True), AddedToken("Hello, ", normalized=True)])
    tok.decoder, tok.post_processor = D.ByteLevel(), S.RobertaProcessing(("</s>", tok.token_to_id("</s>")), ("<s>", tok.token_to_id("<s>")))
    save(folder, "byte-level-roberta", tok)

    tok = byte_bpe(P.Sequence([P.Digits(True), P.ByteLevel(add_prefix_space=False)]))
    tok.decoder = D.ByteLevel()
    save(folder, "byte-level-digits", tok)

    def legacy(data):
        data["model"]["merges"] = ["#version: 0.2"] + [" ".join(m) for m in data["model"]["merges"]]
        data["model"]["ignore_merges"] = True
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tok = byte_bpe(P.Sequence([P.Split(Regex(pattern), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]))
    tok.normalizer, tok.decoder = N.NFC(), D.ByteLevel()
    tok.add_special_tokens(["<s>"])
    tok.post_processor = S.Sequence([S.ByteLevel(trim_offsets=False), S.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", tok.token_to_id("<s>"))])])
    save(folder, "byte-level-ignore-merges", tok, legacy)

    tok = bpe(unk="<unk>", byte_fallback=True, fuse_unk=True, alphabet=[], normalizer=N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]))

    def fallback(data):  # all byte tokens, at the end of the vocabulary
        vocab = data["model"]["vocab"]
        for i in range(256):
            vocab.setdefault(f"<0x{i:02X}>", len(vocab))
    tok = Tokenizer.from_str(json.dumps((lambda d: (fallback(d), d)[1])(json.loads(tok.to_str()))))
    tok.add_special_tokens([AddedToken("<s>", normalized=True), AddedToken("</s>", normalized=False, rstrip=True)])
    tok.decoder = D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
    tok.post_processor = S.TemplateProcessing("<s> $A </s>", "<s> $A $B", [("<s>", tok.token_to_id("<s>")), ("</s>", tok.token_to_id("</s>"))])
    save(folder, "byte-fallback", tok)

    for fuse in (False, True):
        tok = bpe(unk="<unk>", fuse_unk=fuse, pre=P.Whitespace())
        data = json.loads(tok.to_str())
        for c in "eаßé好":  # characters that become unknown
            data["model"]["merges"] = [m for m in data["model"]["merges"] if c not in "".join(m)]
        gone = {t for t in data["model"]["vocab"] if any(c in t for c in "eаßé好") and t != "<unk>"}
        data["model"]["vocab"] = {t: i for i, t in enumerate(t for t in data["model"]["vocab"] if t not in gone)}
        save(folder, f"unknown-{'fused' if fuse else 'apart'}", Tokenizer.from_str(json.dumps(data)))

    tok = bpe(unk="<unk>", pre=P.Whitespace(), normalizer=N.Lowercase(), continuing_subword_prefix="##", end_of_word_suffix="</w>")
    tok.decoder = D.BPEDecoder("</w>")
    save(folder, "prefix-suffix", tok)

    # white space that one added token takes and another one begins with
    for name, flags in (("kept", {}), ("left", {"lstrip": True, "rstrip": True})):
        tok = bpe(unk="<unk>", pre=P.Whitespace())
        tok.add_tokens([AddedToken("<end>", rstrip=True, normalized=False), AddedToken("  ", normalized=False, **flags), AddedToken("\n\n", rstrip=True)])
        save(folder, f"added-{name}", tok, more=["the<end>  fox", "<end>      the fox", "<end> \n\n\n\n \nthe", "a        the\n\n\n\n\n\nfox  ", "<end>  <end>  "])


def make_splits(folder):
    patterns = {"removed": ("-", "removed", False), "isolated": (Regex(r"\d{1,2}|[A-Z][a-z]+"), "isolated", False),
                "previous": (" ", "merged_with_previous", False), "next": (Regex(r"\s"), "merged_with_next", False),
                "contiguous": (Regex(r"[[:punct:]\p{S}]"), "contiguous", False), "inverted": (Regex(r"\w+"), "removed", True),
                "intersection": (Regex(r"[\p{L}&&[^\p{Lu}]]+|\h+|$"), "isolated", False)}
    for name, (pattern, behavior, invert) in patterns.items():
        tok = bpe(unk="<unk>", pre=P.Split(pattern, behavior, invert))
        save(folder, f"split-{name}", tok)
    # where Oniguruma's dialect and PCRE2's part: every piece is a token, so that the ids show the pieces
    dialects = {"script": r"\p{Han}+|[\P{Han}a]", "interval": r"\p{N}{1,3}+|(?:ab|\.){1,2}+|x{,2}", "border": r"\b|\v",
                "nested": r" ?[^(\s|[.,!?…。，、।۔،])]+", "posix": r"[[:punct:]]+|[[:digit:]]+|[[:^space:]]", "code": r"[\u4e00-\u9fa5\w]+",
                "caseless": r"(?i)\p{Lu}+|[\p{Lu}]he |(?m:e.l)", "options": r"t(?i)h|E|(?-i)q", "category": r"\p{Decimal_Number}{2}|\p{ letter }u|\p{C}",
                "optional": r"l{2}?o|\d{3}?\.", "letters": r"\pL|[\PN]+|\Q.|\V.\E|\Oz", "comment": r"(?x) h # (not a group\n | (?#nor (this) o (?-x:e l) # [or a class",
                "open-comment": r"the(?x) \ q # to the end (",
                "escape": r"\x2e{1,2}+|\u0065{2}?l|(?i)[[:upper:]]{2}"}
    more = ["你好。今天、々〆 カー・ー。", "12345678 ababab...... xxxxx", "见\ufe0f于 x-y\u205f \x0b\r\u2028", "à la carte, (oui|non)! नमस्ते।", "½² $+<=>^`|~ 🇩🇪 at\u0345\u180e"]
    for name, pattern in dialects.items():
        pre, vocab = P.Split(Regex(pattern), "isolated"), {"<unk>": 0}
        for text in TEXTS + more:
            for piece, _ in pre.pre_tokenize_str(text):
                vocab.setdefault(piece, len(vocab))
        tok = Tokenizer(M.WordLevel(vocab, unk_token="<unk>"))
        tok.pre_tokenizer = pre
        save(folder, f"split-{name}", tok, more=more)


def make_unigram(folder):
    charsmap = sentencepiece_model("unigram", rules=True)[1]
    tok = unigram(normalizer=N.Sequence([N.Precompiled(charsmap), N.Replace(Regex(" {2,}"), " ")]), pre=P.Metaspace())
    tok.decoder = D.Metaspace()
    tok.post_processor = S.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", tok.token_to_id("</s>"))])
    save(folder, "unigram-precompiled", tok)
    for scheme in ("first", "never"):
        tok = unigram(pre=P.Metaspace(prepend_scheme=scheme, split=scheme == "never"))
        tok.add_special_tokens(["<s>"])
        tok.decoder = D.Metaspace(prepend_scheme=scheme)
        save(folder, f"metaspace-{scheme}", tok)
    tok = unigram(pre=P.Sequence([P.WhitespaceSplit(), P.Metaspace()]))

    def fallback(data):
        data["model"]["byte_fallback"] = True
        data["model"]["vocab"] += [[f"<0x{i:02X}>", -20.0] for i in range(256)]
    tok.decoder = D.Sequence([D.ByteFallback(), D.Metaspace()])
    save(folder, "unigram-fallback", tok, fallback)


def make_words(folder):
    trainer = T.WordPieceTrainer(vocab_size=300, show_progress=False, special_tokens=["[UNK]", "[CLS]", "[SEP]"])
    for name, normalizer, cleanup in (("lower", N.BertNormalizer(), True), ("cased", N.BertNormalizer(clean_text=False, strip_accents=True, lowercase=False), False)):
        tok = trained(M.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20), trainer, normalizer, P.BertPreTokenizer())
        tok.decoder = D.WordPiece(cleanup=cleanup)
        tok.post_processor = S.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
        save(folder, f"wordpiece-{name}", tok)
    pres = {"whitespace": P.Whitespace(), "whitespace-split": P.WhitespaceSplit(), "punctuation": P.Sequence([P.WhitespaceSplit(), P.Punctuation("contiguous")]),
            "punctuation-removed": P.Sequence([P.Punctuation("removed"), P.WhitespaceSplit()]), "digits": P.Sequence([P.Digits(False), P.WhitespaceSplit()]),
            "delimiter": P.CharDelimiterSplit("-"), "fixed": P.FixedLength(3)}
    for name, pre in pres.items():
        save(folder, f"words-{name}", words(pre))


def make_normalizers(folder):
    norms = {"nfc": N.NFC(), "nfd": N.NFD(), "nfkc": N.NFKC(), "nfkd": N.NFKD(), "lowercase": N.Lowercase(), "strip": N.Strip(True, True), "strip-right": N.Strip(False, True),
             "strip-accents": N.Sequence([N.NFD(), N.StripAccents()]), "nmt": N.Nmt(), "replace": N.Replace(Regex(r"[aeiou]+"), "*"),
             "sequence": N.Sequence([N.NFKC(), N.Sequence([N.Lowercase(), N.Replace("  ", " ")]), N.Prepend("^"), N.Strip(True, False)])}
    alphabet = sorted({c for t in TEXTS for c in t} | set("*^"))
    for name, norm in norms.items():
        tok = bpe(size=900, normalizer=norm, alphabet=alphabet, unk="<unk>")
        tok.add_tokens([AddedToken("yesterday", normalized=True)])
        save(folder, f"norm-{name}", tok)
    tok = bpe(size=400, normalizer=N.ByteLevel(), alphabet=P.ByteLevel.alphabet())
    tok.add_tokens([AddedToken("Hello, w", normalized=True)])
    tok.decoder = D.ByteLevel()
    save(folder, "norm-byte-level", tok)


def make_decoders(folder):
    vocab = {"<pad>": 0, "|": 1, "h": 2, "e": 3, "l": 4, "o": 5, " .": 6, "hello": 7, "##lo": 8, "<0xE4>": 9, "<0xBD>": 10, "<0xA0>": 11, "▁a": 12, "a▁b": 13, "x</w>": 14, " do not": 15}
    decs = {"ctc": D.CTC(), "ctc-plain": D.CTC(cleanup=False), "fallback": D.ByteFallback(), "fuse-strip": D.Sequence([D.Fuse(), D.Strip("h", 2, 2)]), "strip": D.Strip("h", 1, 0),
            "replace": D.Replace(Regex("[el]+"), "-"), "byte-level-strip": D.Sequence([D.ByteLevel(), D.Strip("h", 1, 0)]), "suffix": D.BPEDecoder("</w>"),
            "metaspace": D.Metaspace(prepend_scheme="never"), "none": None}
    for name, decoder in decs.items():
        tok = Tokenizer(M.WordLevel(vocab, unk_token="<pad>"))
        tok.pre_tokenizer = P.CharDelimiterSplit(";")
        if decoder:
            tok.decoder = decoder
        data = tok.to_str()
        rows = []
        tok = Tokenizer.from_str(data)
        for ids in ([7], [2, 3, 4, 4, 0, 4, 5, 5, 1, 2], [9, 10, 11], [9, 10, 7], [9, 10, 11, 9, 2], [12, 13, 12], [14, 14, 14], [2, 2, 2, 7, 2], [7, 6, 15, 8], [0, 0], [99, 7]):
            rows.append({"decode": ids, "decoded": tok.decode(ids, skip_special_tokens=False)})
        write(folder, f"decode-{name}", data.encode(), rows)


RULES = ("41\t61\n42\t62\nFB01\t66 69\n41 30A\te5\ne9\t65 301\n3000\t20\na0\t20\n9\t20\na\t20\nd\t20\nad\t\n200b\t\nfeff\t\n2167\t56 49 49 49\nb2\t32\n"
         "c4\t61 308\n130\t69 307\nff01\t21\n65 301\te9\n")  # code points of a text, and of what it becomes


def sentencepiece_model(kind, **options):
    out = io.BytesIO()
    if options.pop("rules", False):
        rules = tempfile.NamedTemporaryFile("w", suffix=".tsv", delete=False)
        rules.write(RULES)
        rules.close()
        options["normalization_rule_tsv"] = rules.name
    else:
        options["normalization_rule_name"] = "identity"
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TRAINING * 3), model_writer=out, model_type=kind, vocab_size=options.pop("vocab_size", 250), minloglevel=2,
                                             hard_vocab_limit=False, **options)
    data = out.getvalue()
    return data, charsmap_of(data)


def charsmap_of(data):
    """The precompiled_charsmap inside a model: field 2 of the message in field 3."""
    def fields(b):
        i = 0
        while i < len(b):
            def varint():
                nonlocal i
                v = shift = 0
                while True:
                    c = b[i]
                    i += 1
                    v |= (c & 127) << shift
                    shift += 7
                    if c < 128:
                        return v
            key = varint()
            if key & 7 == 0:
                yield key >> 3, varint()
            else:
                n = {1: 8, 5: 4}.get(key & 7) or varint()
                yield key >> 3, b[i:i + n]
                i += n
    normalizer = next(v for k, v in fields(data) if k == 3)
    return next((v for k, v in fields(normalizer) if k == 2), b"")


def make_sentencepiece(folder):
    kinds = {"unigram": {"rules": True}, "bpe": {"remove_extra_whitespaces": False, "byte_fallback": True, "vocab_size": 520},
             "bpe-user": {"rules": True, "user_defined_symbols": ["<mask>", "quick", "▁▁"], "control_symbols": ["[X]"], "vocab_size": 300},
             "unigram-fallback": {"byte_fallback": True, "vocab_size": 520, "add_dummy_prefix": False, "split_by_unicode_script": False}}
    for name, options in kinds.items():
        data, _ = sentencepiece_model(name.split("-")[0], **options)
        ref = sentencepiece.SentencePieceProcessor(model_proto=data)
        rows = []
        for text in TEXTS:
            ids = ref.encode(text)
            rows.append({"text": text, "plain": ids, "skipped": ref.decode(ids)})
        write(folder, f"spm-{name}", data, rows, "tokenizer.model")


def make_tiktoken(folder):
    tok = byte_bpe(P.ByteLevel(add_prefix_space=False))
    back = {c: b for b, c in enumerate_alphabet()}
    vocab = json.loads(tok.to_str())["model"]["vocab"]
    ranks = {bytes(back[c] for c in token): i for token, i in vocab.items()}
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ref = tiktoken.Encoding("small", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    data = "".join(f"{base64.b64encode(t).decode()} {i}\n" for t, i in sorted(ranks.items(), key=lambda x: x[1]))
    rows = [{"text": t, "ids": ref.encode(t), "special": ref.encode(t), "plain": ref.encode(t), "decoded": ref.decode(ref.encode(t)), "skipped": t} for t in TEXTS]
    write(folder, "tiktoken", data.encode(), rows, "ranks.tiktoken")

    cased, small = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
    start, ending = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    pattern = "|".join([r"[\p{Han}]+", f"{start}{cased}*{small}+{ending}", f"{start}{cased}+{small}*{ending}", r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*",
                        r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
    for word in ("好，", "。今", "世界", "://", "/\n", "的a"):  # tokens that show where a piece ends
        for end in range(1, len(word.encode()) + 1):
            ranks.setdefault(word.encode()[:end], len(ranks))
    ref = tiktoken.Encoding("kimi", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    data = "".join(f"{base64.b64encode(t).decode()} {i}\n" for t, i in sorted(ranks.items(), key=lambda x: x[1]))
    rows = [{"text": t, "plain": ref.encode(t), "decoded": t} for t in [*TEXTS, "你好，世界。今天", "https://x.org/\n的abc'S", "的aB ABc好"]]
    write(folder, "tiktoken-kimi", data.encode(), rows, "ranks.tiktoken")
    (folder / "tiktoken-kimi" / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", null]}}\n')


def make_tekken(folder):
    """The same kind of vocabulary in Mistral's form: special tokens have the first ids, named in the file or, in older ones, not."""
    back = {c: b for b, c in enumerate_alphabet()}
    vocab = json.loads(byte_bpe(P.ByteLevel(add_prefix_space=False)).to_str())["model"]["vocab"]
    tokens = [bytes(back[c] for c in token) for token, _ in sorted(vocab.items(), key=lambda x: x[1])]
    tokens.sort(key=lambda t: (len(t) > 1, t if len(t) == 1 else b""))  # bytes first and in order, as the reference wants it
    pattern = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    n_special, kept = 24, len(tokens) - 5  # the last tokens of the file do not count
    ref = tiktoken.Encoding("tekken", pat_str=pattern, mergeable_ranks={t: i for i, t in enumerate(tokens[:kept])}, special_tokens={})
    config = {"pattern": pattern, "num_vocab_tokens": len(tokens), "default_vocab_size": kept + n_special, "default_num_special_tokens": n_special, "version": "v3"}
    entries = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for i, t in enumerate(tokens)]
    named = [{"rank": i, "token_str": t, "is_control": True} for i, t in enumerate(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])]
    for name, more in (("tekken", {"special_tokens": named}), ("tekken-unnamed", {})):
        rows = []
        for text in TEXTS:
            ids = [i + n_special for i in ref.encode(text)]
            rows.append({"text": text, "plain": ids, "decoded": text})
        rows.append({"text": "a[INST]b</s>", "special": [n_special + ref.encode("a")[0], 3, n_special + ref.encode("b")[0], 2]})
        data = json.dumps({"config": config, "vocab": entries, "version": 1, "type": "Tekken", **more})
        write(folder, name, data.encode(), rows, "tekken.json")


def enumerate_alphabet():
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    n = 0
    for b in range(256):
        if b in printable:
            yield b, chr(b)
        else:
            yield b, chr(256 + n)
            n += 1


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent / "tokenizers")
    for make in (make_bpe, make_splits, make_unigram, make_words, make_normalizers, make_decoders, make_sentencepiece, make_tiktoken, make_tekken):
        make(folder)


if __name__ == "__main__":
    main()
