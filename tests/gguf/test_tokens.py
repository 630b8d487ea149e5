#!/usr/bin/env python3
"""Vocabularies in GGUF files: each tokenizer of DATA/text/tokenizers that has a GGUF form is written as llama.cpp's converter writes it, and
`mlxcel tokenize` gives the ids that it gives for the tokenizer.json, for the golden texts and for texts made of them.

Says "skipped" and exits with 0 where gguf (pip install gguf) is not installed.

usage: test_tokens.py PROGRAM DATA [NAME ...]      last line: "N passed, N failed[, N skipped]"
"""
import io, json, os, random, subprocess, sys, tarfile, tempfile

try:
    import gguf
    import numpy as np
except ImportError as missing:
    print(f'skipped test_tokens: {missing}\n0 passed, 0 failed, 1 skipped')
    sys.exit(0)

# The tokenizer's name as llama.cpp's converter finds it; "llama" for SentencePiece's kind.
KINDS = {'deepseek_v3': 'deepseek-v3', 'gemma3': 'llama', 'gpt2': 'gpt-2', 'gptoss': 'gpt-4o', 'llama2': 'llama', 'llama3_2': 'llama-bpe', 'minimind2': 'gpt-2',
         'mistral_nemo': 'tekken', 'phi-3-mini': 'llama', 'qwen3': 'qwen2', 'qwen3_5': 'qwen35', 'smollm2': 'smollm'}
# Their added tokens are found in normalized text, or take the white space behind them: no GGUF file says so. Texts that hold one are left out.
ODD = {'llama2', 'phi-3-mini'}
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def read(data, name):
    with tarfile.open(os.path.join(data, 'text', 'tokenizers', name + '.tar.xz')) as tar:
        return {os.path.basename(m.name): tar.extractfile(m).read() for m in tar if m.isfile()}


def vocabulary(tokenizer, has_pieces):
    """Texts and types by id."""
    by_id = {i: t for t, i in tokenizer['model']['vocab'].items()}
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


def write(path, kind, files):
    tokenizer = json.loads(files['tokenizer.json'])
    config = json.loads(files.get('tokenizer_config.json', b'{}'))
    w = gguf.GGUFWriter(path, 'llama')
    for add, value in ((w.add_block_count, 1), (w.add_context_length, 64), (w.add_embedding_length, 32), (w.add_head_count, 1), (w.add_layer_norm_rms_eps, 1e-5)):
        add(value)
    has_pieces = kind == 'llama'
    texts, types = vocabulary(tokenizer, has_pieces)
    keys, value_type = gguf.Keys.Tokenizer, gguf.GGUFValueType

    def add_array(key, values, of):  # the writer's own functions ask each value for its type, which takes longer than the rest
        w.add_key_value(key, values, value_type.ARRAY, of)

    w.add_tokenizer_model('llama' if has_pieces else 'gpt2')
    if not has_pieces:
        w.add_tokenizer_pre(kind)
        add_array(keys.MERGES, [m if isinstance(m, str) else ' '.join(m) for m in tokenizer['model']['merges']], value_type.STRING)
    else:
        add_array(keys.SCORES, scores(tokenizer, texts), value_type.FLOAT32)
        w.add_add_space_prefix('Prepend' in json.dumps(tokenizer['normalizer']))
    add_array(keys.LIST, texts, value_type.STRING)
    add_array(keys.TOKEN_TYPE, types, value_type.INT32)
    post = json.dumps(tokenizer['post_processor'])
    bos = config.get('bos_token') or ''
    bos = bos['content'] if isinstance(bos, dict) else bos
    adds = bos != '' and f'"SpecialToken": {{"id": {json.dumps(bos)}' in post
    w.add_add_bos_token(adds)
    if bos in texts:
        w.add_bos_token_id(texts.index(bos))
    w.add_tensor('token_embd.weight', np.zeros((len(texts), 32), np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def make_texts(data):
    golden = json.load(open(os.path.join(data, 'text', 'token_golden', 'texts.json')))
    r = random.Random(1)
    mixed = [''.join(r.choice(golden) for _ in range(3)) for _ in range(100)]
    return golden + mixed


def ids(program, model, texts, *options):
    lines = '\n'.join(json.dumps(t) for t in texts) + '\n'
    run = subprocess.run([program, 'tokenize', '--jsonl', *options, '-m', model], input=lines.encode(), capture_output=True)
    if run.returncode:
        raise SystemExit(f'{model}: {run.stderr.decode().strip()}\n0 passed, 1 failed')
    return [json.loads(line) for line in run.stdout.decode().splitlines()]


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
    wrong = 0
    for options in ((), ('--no-parse-special',), ('--add-special',)):
        want, got = ids(program, theirs, texts, *options), ids(program, ours, texts, *options)
        for text, a, b in zip(texts, want, got):
            if a != b:
                wrong += 1
                if wrong <= 2:
                    print(f'{name} {" ".join(options)}: {text[:80]!r}: {b[:12]}, not {a[:12]}')
    if wrong:
        print(f'{name}: {wrong} of {3 * len(texts)} texts differ')
    os.remove(ours)
    return wrong == 0


def main():
    program, data, only = sys.argv[1], sys.argv[2], sys.argv[3:]
    if not os.path.isdir(os.path.join(data, 'text', 'tokenizers')):
        print('skipped test_tokens: no tokenizers\n0 passed, 0 failed, 1 skipped')
        return 0
    texts, passed, failed = make_texts(data), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in KINDS.items():
            if only and name not in only:
                continue
            good = check(program, name, kind, data, folder, texts)
            passed, failed = passed + good, failed + (not good)
    print(f'{passed} passed, {failed} failed')
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
