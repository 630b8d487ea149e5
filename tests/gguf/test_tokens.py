#!/usr/bin/env python3
"""Vocabularies in GGUF files: each tokenizer of DATA/text/tokenizers is written as llama.cpp's converter writes it, and `mlxcel tokenize` gives the ids that
it gives for the tokenizer.json or tokenizer.model, for the golden texts, texts made of them, pages of ours, and odd characters; and the ids of the
tokenizers package, or of sentencepiece.

Says "skipped" and exits with 0 where gguf (pip install gguf) is not installed.

usage: test_tokens.py PROGRAM DATA [NAME ...]      last line: "N passed, N failed[, N skipped]"
"""
import base64, glob, json, os, random, subprocess, sys, tarfile, tempfile

try:
    import gguf
    import numpy as np
except ImportError as missing:
    print(f'skipped test_tokens: {missing}\n0 passed, 0 failed, 1 skipped')
    sys.exit(0)

# The pre-tokenizer's name as llama.cpp's converter finds it; "llama", "bert" and "t5" are kinds of vocabularies that have none.
KINDS = {'bert-base-uncased': 'bert', 'deepseek_v3': 'deepseek-v3', 'gemma3': 'llama', 'gpt2': 'gpt-2', 'gptoss': 'gpt-4o', 'llama2': 'llama', 'llama3_2': 'llama-bpe', 'minimind2': 'gpt-2',
         'mistral_nemo': 'tekken', 'phi-3-mini': 'llama', 'qwen3': 'qwen2', 'qwen3_5': 'qwen35', 'smollm2': 'smollm', 't5-small': 't5'}
PROCESSORS = 'mistral_spm'  # five files of SentencePiece's own format
# Their added tokens are found in normalized text, or take the white space behind them: no GGUF file says so. Texts that hold one are left out.
ODD = {'llama2', 'phi-3-mini'}
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def read(data, name):
    with tarfile.open(os.path.join(data, 'text', 'tokenizers', name + '.tar.xz')) as tar:
        return {os.path.basename(m.name): tar.extractfile(m).read() for m in tar if m.isfile()}


def vocabulary(tokenizer, has_pieces):
    """Texts and types by id."""
    words = tokenizer['model']['vocab']
    by_id = {i: t for i, (t, _) in enumerate(words)} if isinstance(words, list) else {i: t for t, i in words.items()}
    added = {a['id']: a for a in tokenizer['added_tokens']}
    texts, types = [], []
    for i in range(max(max(by_id), max(added)) + 1):
        text, kind = by_id.get(i, f'[PAD{i}]'), NORMAL if i in by_id else UNUSED
        if i in added:
            text, kind = added[i]['content'], CONTROL if added[i]['special'] else USER
            if kind == USER:
                text = text.replace('\u2581', ' ')
        if has_pieces and kind != USER and len(text) == 6 and text.startswith('<0x'):
            kind = BYTE
        if has_pieces and text == '<unk>':
            kind = UNKNOWN
        texts.append(text)
        types.append(kind)
    return texts, types


def scores(tokenizer, texts):
    """A piece's place in the order of merges, as SentencePiece has it."""
    first = {}
    for i, merge in enumerate(tokenizer['model']['merges']):
        left, right = merge.split(' ') if isinstance(merge, str) else merge
        first.setdefault(left + right, -float(i))
    return [first.get(t.replace(' ', '\u2581'), -1e6) for t in texts]


class Vocab:
    """What the converter writes of a vocabulary."""

    def __init__(self, path, model):
        self.w = w = gguf.GGUFWriter(path, 'llama')
        for add, value in ((w.add_block_count, 1), (w.add_context_length, 64), (w.add_embedding_length, 32), (w.add_head_count, 1), (w.add_layer_norm_rms_eps, 1e-5)):
            add(value)
        w.add_tokenizer_model(model)

    def add(self, key, values, of):  # the writer's own functions ask each value for its type, which takes longer than the rest
        self.w.add_key_value(key, values, gguf.GGUFValueType.ARRAY, of)

    def add_tokens(self, texts, types, points=None):
        keys, types_of = gguf.Keys.Tokenizer, gguf.GGUFValueType
        self.add(keys.LIST, texts, types_of.STRING)
        self.add(keys.TOKEN_TYPE, types, types_of.INT32)
        if points:
            self.add(keys.SCORES, points, types_of.FLOAT32)
        self.n = len(texts)

    def end(self):
        self.w.add_tensor('token_embd.weight', np.zeros((self.n, 32), np.float16))
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()


def add_bos(v, texts, tokenizer, config):
    post = json.dumps(tokenizer['post_processor'])
    bos = config.get('bos_token') or ''
    bos = bos['content'] if isinstance(bos, dict) else bos
    v.w.add_add_bos_token(bos != '' and f'"SpecialToken": {{"id": {json.dumps(bos)}' in post)
    if bos in texts:
        v.w.add_bos_token_id(texts.index(bos))


def write_words(path, tokenizer):
    """Words have a mark in front, what goes on inside a word has no "##"."""
    v = Vocab(path, 'bert')
    texts, types = vocabulary(tokenizer, False)
    marked = [t if kind == CONTROL else t[2:] if t.startswith('##') else '\u2581' + t for t, kind in zip(texts, types)]
    v.w.add_tokenizer_pre('jina-v2-en')
    v.add_tokens(marked, types)
    v.end()


def write_unigram(path, tokenizer):
    v = Vocab(path, 't5')
    texts, types = vocabulary(tokenizer, True)
    v.w.add_tokenizer_pre('default')
    v.add_tokens(texts, types, [score for _, score in tokenizer['model']['vocab']])
    v.w.add_add_space_prefix(True)
    v.w.add_remove_extra_whitespaces(True)
    v.w.add_precompiled_charsmap(base64.b64decode(tokenizer['normalizer']['precompiled_charsmap']))
    v.end()


def write(path, kind, files):
    tokenizer = json.loads(files['tokenizer.json'])
    if kind in ('bert', 't5'):
        return (write_words if kind == 'bert' else write_unigram)(path, tokenizer)
    has_pieces = kind == 'llama'
    texts, types = vocabulary(tokenizer, has_pieces)
    v = Vocab(path, 'llama' if has_pieces else 'gpt2')
    if has_pieces:
        v.w.add_add_space_prefix('Prepend' in json.dumps(tokenizer['normalizer']))
    else:
        v.w.add_tokenizer_pre(kind)
        v.add(gguf.Keys.Tokenizer.MERGES, [m if isinstance(m, str) else ' '.join(m) for m in tokenizer['model']['merges']], gguf.GGUFValueType.STRING)
    v.add_tokens(texts, types, scores(tokenizer, texts) if has_pieces else None)
    add_bos(v, texts, tokenizer, json.loads(files.get('tokenizer_config.json', b'{}')))
    v.end()


def write_processor(path, processor):
    """A tokenizer.model."""
    kinds = ((processor.IsUnknown, UNKNOWN), (processor.IsControl, CONTROL), (processor.IsUnused, UNUSED), (processor.IsByte, BYTE))
    n = processor.vocab_size()
    v = Vocab(path, 'llama')
    v.w.add_tokenizer_pre('default')
    v.add_tokens([processor.IdToPiece(i) for i in range(n)], [next((k for is_it, k in kinds if is_it(i)), NORMAL) for i in range(n)],
                 [processor.GetScore(i) for i in range(n)])
    v.w.add_bos_token_id(processor.bos_id())
    v.w.add_eos_token_id(processor.eos_id())
    v.w.add_unk_token_id(processor.unk_id())
    v.end()


def odd_texts(r):
    """Characters of all planes: letters, marks, white space and control characters, pictures with joiners, and some that do not exist."""
    blocks = ((0, 0x100), (0x100, 0x600), (0x600, 0x1000), (0x1E00, 0x2100), (0x2000, 0x2070), (0x2E80, 0x3100), (0xAC00, 0xAD00), (0xF900, 0x10000), (0x1F300, 0x1FA00), (0x20000, 0x20100))
    def char():
        low, high = r.choice(blocks)
        return chr(r.randrange(low, high))
    return [''.join(char() for _ in range(r.randrange(1, 40))) for _ in range(60)] + \
           [' '.join(r.choice(('a', 'e', '\u30cf', '\u0915')) + chr(r.randrange(0x300, 0x370)) * r.randrange(3) for _ in range(8)) for _ in range(10)]


def make_texts(data):
    golden = json.load(open(os.path.join(data, 'text', 'token_golden', 'texts.json')))
    r = random.Random(1)
    mixed = [''.join(r.choice(golden) for _ in range(3)) for _ in range(100)]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    files = sorted(glob.glob(os.path.join(root, 'docs', '*.md')) + glob.glob(os.path.join(root, 'src', 'base', '*.c')))
    pages = [open(f, encoding='utf-8').read()[:1000] for f in files]
    return golden + mixed + pages + odd_texts(r)


def ids(program, model, texts, *options):
    lines = '\n'.join(json.dumps(t) for t in texts) + '\n'
    run = subprocess.run([program, 'tokenize', '--jsonl', *options, '-m', model], input=lines.encode(), capture_output=True)
    if run.returncode:
        raise SystemExit(f'{model}: {run.stderr.decode().strip()}\n0 passed, 1 failed')
    return [json.loads(line) for line in run.stdout.decode().splitlines()]


def compare(name, label, texts, want, got):
    wrong = [(t, a, b) for t, a, b in zip(texts, want, got) if a != b]
    for text, a, b in wrong[:2]:
        at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        print(f'{name} {label}: {text[:80]!r}: from {at} on {b[at:at + 8]}, not {a[at:at + 8]}')
    if wrong:
        print(f'{name} {label}: {len(wrong)} of {len(texts)} texts differ')
    return not wrong


def package_of(path):
    """The tokenizers package; None: it is not installed."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    return Tokenizer.from_file(path)


def check(program, name, kind, data, folder, texts):
    files = read(data, name)
    theirs, ours = os.path.join(folder, name), os.path.join(folder, name + '.gguf')
    os.makedirs(theirs)
    for file, content in files.items():
        open(os.path.join(theirs, file), 'wb').write(content)
    write(ours, kind, files)
    if name in ODD:
        added = [a['content'] for a in json.loads(files['tokenizer.json'])['added_tokens']]
        texts = [t for t in texts if not any(a in t for a in added)]
    good, package = True, package_of(os.path.join(theirs, 'tokenizer.json'))
    for options in ((), ('--no-parse-special',), ('--add-special',)):
        got, label = ids(program, ours, texts, *options), ' '.join(options)
        good &= compare(name, label, texts, ids(program, theirs, texts, *options), got)
        if package and options != ('--no-parse-special',):
            want = [e.ids for e in package.encode_batch(texts, add_special_tokens=bool(options))]
            good &= compare(name, label + ' (tokenizers)', texts, want, got)
    os.remove(ours)
    return good


def check_processors(program, data, folder, texts):
    """tokenizer.model files; None: sentencepiece is not installed."""
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        return None
    # In a GGUF file "<unk>" is a token that a text can name, as in a tokenizer.json; in a tokenizer.model it is not.
    good, plain = True, [t for t in texts if '\0' not in t and '<unk>' not in t]
    for file, content in read(data, PROCESSORS).items():
        if '.model' not in file:
            continue
        theirs, ours = os.path.join(folder, file), os.path.join(folder, 'x.gguf')
        os.makedirs(theirs)
        path = os.path.join(theirs, 'tokenizer.model')
        open(path, 'wb').write(content)
        processor = SentencePieceProcessor()
        processor.LoadFromFile(path)
        write_processor(ours, processor)
        for options in ((), ('--no-parse-special',), ('--add-special',)):
            got, label = ids(program, ours, plain, *options), ' '.join(options)
            good &= compare(file, label, plain, ids(program, theirs, plain, *options), got)
            if options == ('--no-parse-special',):
                good &= compare(file, label + ' (sentencepiece)', plain, processor.Encode(plain), got)
    return good


def main():
    program, data, only = sys.argv[1], sys.argv[2], sys.argv[3:]
    if not os.path.isdir(os.path.join(data, 'text', 'tokenizers')):
        print('skipped test_tokens: no tokenizers\n0 passed, 0 failed, 1 skipped')
        return 0
    texts, results = make_texts(data), []
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in KINDS.items():
            if not only or name in only:
                results.append(check(program, name, kind, data, folder, texts))
        if not only or PROCESSORS in only:
            results.append(check_processors(program, data, folder, texts))
    passed, failed, skipped = (results.count(r) for r in (True, False, None))
    print(f'{passed} passed, {failed} failed' + (f', {skipped} skipped' if skipped else ''))
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
