#!/usr/bin/env python3
"""A small model in GGUF files, made without packages from a checkpoint of the repository: the logits are the reference's, the ids are those of the
checkpoint's tokenizer, and a file, its parts, a folder with one and damaged ones behave as docs/gguf.md says.

usage: test_small.py PROGRAM GOLDEN_TESTS      last line: "N passed, N failed"
"""
import json, os, shutil, struct, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(ROOT, 'tests'), os.path.join(ROOT, 'bench')]
import towers
from counting import check, finish
from writer import BF16, F32, MXFP4, bf16_to_f32, gguf_bytes, pair_rows, read_safetensors

SOURCE = os.path.join(ROOT, 'tests', 'golden', 'quant', 'mxfp4')
NAMES = {'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v', 'self_attn.o_proj': 'attn_output',
         'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down', 'input_layernorm': 'attn_norm',
         'post_attention_layernorm': 'ffn_norm', 'model.embed_tokens': 'token_embd', 'model.norm': 'output_norm', 'lm_head': 'output'}


def their_name(path):
    if path.startswith('model.layers.'):
        _, _, layer, rest = path.split('.', 3)
        return f'blk.{layer}.{NAMES[rest]}.weight'
    return NAMES[path] + '.weight'


def mxfp4_rows(values, scales, n_rows):
    """Rows of words and of scales as blocks: a scale, then sixteen bytes whose low halves are the first sixteen codes."""
    rows, bytes_, groups = [], len(values) // n_rows, len(scales) // n_rows
    for r in range(n_rows):
        row = values[r * bytes_:(r + 1) * bytes_]
        codes = [c for b in row for c in (b & 15, b >> 4)]
        out = bytearray()
        for g in range(groups):
            block = codes[32 * g:32 * g + 32]
            out.append(scales[r * groups + g])
            out += bytes(block[i] | block[16 + i] << 4 for i in range(16))
        rows.append(bytes(out))
    return rows


def tensors(config):
    stored = read_safetensors(os.path.join(SOURCE, 'model.safetensors'))
    heads = {'attn_q': config['num_attention_heads'], 'attn_k': config['num_key_value_heads']}
    out = []
    for name, (dtype, shape, data) in stored.items():
        if not name.endswith('.weight'):
            continue
        path = name[:-len('.weight')]
        theirs = their_name(path)
        if len(shape) == 1:
            out.append((theirs, F32, shape, bf16_to_f32(data) if dtype == 'BF16' else data))
            continue
        if path + '.scales' in stored:
            kind, width, rows = MXFP4, shape[1] * 8, mxfp4_rows(data, stored[path + '.scales'][2], shape[0])
        else:
            kind, width = (BF16 if dtype == 'BF16' else F32), shape[1]
            rows = [data[r * len(data) // shape[0]:(r + 1) * len(data) // shape[0]] for r in range(shape[0])]
        base = theirs.split('.')[-2]
        if base in heads:
            rows = pair_rows(rows, heads[base])
        out.append((theirs, kind, [shape[0], width], b''.join(rows)))
    return out


def vocabulary(size):
    tokenizer = json.load(open(os.path.join(SOURCE, 'tokenizer.json')))
    by_id = {i: t for t, i in tokenizer['model']['vocab'].items()}
    added = {a['id']: a for a in tokenizer['added_tokens']}
    texts = [added[i]['content'] if i in added else by_id.get(i, f'[PAD{i}]') for i in range(size)]
    types = [3 if i in added and added[i]['special'] else 4 if i in added else 1 if i in by_id else 5 for i in range(size)]
    template = json.load(open(os.path.join(SOURCE, 'tokenizer_config.json')))['chat_template']
    merges = [m if isinstance(m, str) else ' '.join(m) for m in tokenizer['model']['merges']]
    return {'tokenizer.ggml.model': 'gpt2', 'tokenizer.ggml.pre': 'gpt-2', 'tokenizer.ggml.tokens': texts, 'tokenizer.ggml.token_type': types,
            'tokenizer.ggml.bos_token_id': 1, 'tokenizer.ggml.eos_token_id': 2, 'tokenizer.ggml.add_bos_token': False, 'tokenizer.chat_template': template,
            **({'tokenizer.ggml.merges': merges} if merges else {})}


def metadata(config):
    a = 'llama.'
    return {'general.architecture': 'llama', a + 'block_count': config['num_hidden_layers'], a + 'context_length': config['max_position_embeddings'],
            a + 'embedding_length': config['hidden_size'], a + 'feed_forward_length': config['intermediate_size'],
            a + 'attention.head_count': config['num_attention_heads'], a + 'attention.head_count_kv': config['num_key_value_heads'],
            a + 'attention.key_length': config['head_dim'], a + 'rope.dimension_count': config['head_dim'], a + 'rope.freq_base': float(config['rope_theta']),
            a + 'attention.layer_norm_rms_epsilon': float(config['rms_norm_eps']), **vocabulary(config['vocab_size'])}


def run(*command, given=None):
    done = subprocess.run(command, input=given, capture_output=True)
    return done.returncode, done.stdout.decode(errors='replace'), done.stderr.decode(errors='replace')


def save(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, 'wb').write(data)
    return path


def check_figures(golden, folder, model):
    """The reference's logits; out of one file, and out of two parts."""
    figures = os.path.join(SOURCE, 'golden.safetensors')
    for name, files in model.items():
        for file, data in files.items():
            save(os.path.join(folder, 'figures', name, file), data)
        shutil.copy(figures, os.path.join(folder, 'figures', name))
    code, out, _ = run(golden, os.path.join(folder, 'figures'))
    check(code == 0 and f'{len(model)} passed, 0 failed, 0 skipped' in out, out)


def check_ids(program, path):
    given = '\n'.join(json.dumps(t) for t in ('hello world', 'a <s> b', '', 'naïve 123\n\n x')).encode()
    ours, theirs = (run(program, 'tokenize', '--jsonl', '-m', m, given=given) for m in (path, SOURCE))
    check(ours[0] == 0 and ours[1] == theirs[1], f'ids {ours} {theirs}')


def check_text(program, path):
    check_ids(program, path)
    ours, theirs = (run(program, 'generate', '--temp', '0', '-n', '12', '-p', 'hello', '-m', m) for m in (path, SOURCE))
    check(ours[0] == 0 and ours[1] == theirs[1], f'text {ours} {theirs}')


def check_quantize(program, path, target):
    """A folder of MLX's out of the file: 8 bits in place of 4 change little, and the tokenizer comes along."""
    code, _, err = run(program, 'quantize', '--bits', '8', '-m', path, '-o', target)
    check(code == 0 and '16 matrices quantised' in err, f'quantize: {err}')
    check_ids(program, target)
    rows = []
    for m in (path, target):
        out = m + '.logits'
        code, _, err = run(program, 'logits', '--tokens', '1,5,9,60', '-o', out, '-m', m)
        rows.append(struct.unpack('<1152f', open(out, 'rb').read()) if code == 0 else err)
    check(all(abs(a - b) < 0.02 * max(map(abs, rows[0])) for a, b in zip(*rows)), 'quantize: logits')


def check_refusals(program, folder, meta, all_tensors, whole):
    def refused(name, data, words, path=None):
        code, _, err = run(program, 'inspect', '-m', path or save(os.path.join(folder, 'bad', name), data))
        check(code == 1 and words in err and err.count('\n') == 1, f'{name}: {err}')

    refused('cut.gguf', whole[:-100], 'the file is cut short')
    refused('old.gguf', gguf_bytes(meta, [], version=1), 'GGUF version 1')
    refused('other.gguf', gguf_bytes({**meta, 'general.architecture': 'martian'}, all_tensors), 'the architecture "martian" are not read')
    refused('key.gguf', gguf_bytes({**meta, 'llama.attention.mystery': 1}, all_tensors), 'llama.attention.mystery is not known here')
    refused('part-00001-of-00002.gguf', whole, 'part-00002-of-00002.gguf')
    refused('other way.gguf', gguf_bytes({**meta, 'llama.attention.causal': False}, all_tensors), 'attention.causal')
    save(os.path.join(folder, 'both', 'a.gguf'), whole)
    save(os.path.join(folder, 'both', 'b.gguf'), whole)
    refused('both', None, 'several GGUF files', os.path.join(folder, 'both'))
    tower = os.path.join(folder, 'bad', 'mmproj.gguf')
    towers.write('gemma-3-4b', 1, tower)
    refused('mmproj', None, 'the architecture "clip" are not read', tower)
    picture, model = save(os.path.join(folder, 'a.png'), b'x'), save(os.path.join(folder, 'seeing', 'model.gguf'), whole)
    code, _, err = run(program, 'generate', '--image', picture, '-p', 'x', '-n', '1', '-m', model)
    check(code == 1 and 'mmproj files) are not read' in err.splitlines()[-1], f'a picture for a GGUF file: {err}')


def main():
    program, golden = sys.argv[1:3]
    config = json.load(open(os.path.join(SOURCE, 'config.json')))
    meta, all_tensors = metadata(config), tensors(config)
    whole = gguf_bytes(meta, all_tensors)
    split = {'split.count': 2, 'split.tensors.count': len(all_tensors)}
    half = len(all_tensors) // 2
    parts = {'model-00001-of-00002.gguf': gguf_bytes({**meta, **split, 'split.no': 0}, all_tensors[:half]),
             'model-00002-of-00002.gguf': gguf_bytes({'split.no': 1, **split}, all_tensors[half:])}
    with tempfile.TemporaryDirectory() as folder:
        check_figures(golden, folder, {'one': {'model.gguf': whole}, 'wide': {'model.gguf': gguf_bytes({**meta, 'general.alignment': 64}, all_tensors, 2, 64)}})
        path = save(os.path.join(folder, 'one', 'some name.gguf'), whole)
        check_text(program, path)
        check_text(program, os.path.dirname(path))
        for name, data in parts.items():
            last = save(os.path.join(folder, 'parts', name), data)
        check_text(program, last)
        check_text(program, os.path.dirname(last))
        code, out, _ = run(program, 'inspect', '--json', '-m', path)
        seen = json.loads(out) if code == 0 else {}
        check(seen.get('model_type') == 'llama' and 'mxfp4' in out, out)
        check_quantize(program, path, os.path.join(folder, 'quantised'))
        check_refusals(program, folder, meta, all_tensors, whole)
    return finish()


if __name__ == '__main__':
    sys.exit(main())
