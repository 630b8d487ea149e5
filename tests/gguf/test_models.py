#!/usr/bin/env python3
"""Models in GGUF files, written with the gguf package.

Types: a small model whose matrices are random blocks of each packed type gives, in exact precision, the logits of the same model with the
numbers that gguf.quants.dequantize makes of the blocks; and in the default precision nearly the same.
Architectures: checkpoints of DATA/golden in F32 and BF16 give the references' logits (golden_tests), and in Q8_0 and Q4_0 those of the
dequantised numbers.

Says "skipped" and exits with 0 where gguf (pip install gguf) is not installed.

usage: test_models.py PROGRAM GOLDEN_TESTS [DATA]      last line: "N passed, N failed[, N skipped]"
"""
import json, os, shutil, subprocess, sys, tempfile

try:
    import gguf
    import numpy as np
    from gguf import GGMLQuantizationType as Type, quants
except ImportError as missing:
    print(f'skipped test_models: {missing}\n0 passed, 0 failed, 1 skipped')
    sys.exit(0)

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
from counting import check, finish
from test_blocks import HALVES, random_blocks
from writer import read_safetensors

HIDDEN, VOCAB = 256, 64
TOKENS = '1,5,9,60,33,2,7'


def write(path, arch, meta, tensors):
    """meta: keys behind the architecture's name; tensors: name -> array, or (bytes, type)."""
    w = gguf.GGUFWriter(path, arch)
    for key, value in meta.items():
        put = w.add_bool if isinstance(value, bool) else w.add_float32 if isinstance(value, float) else w.add_array if isinstance(value, list) else w.add_uint32
        w.add_string(f'{arch}.{key}', value) if isinstance(value, str) else put(f'{arch}.{key}', value)
    for name, t in tensors.items():
        data, kind = t if isinstance(t, tuple) else (t, None)
        w.add_tensor(name, data, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def logits(program, model, out, *options):
    run = subprocess.run([program, 'logits', '-m', model, '--tokens', TOKENS, '-o', out, '--device', 'cpu', *options], capture_output=True, text=True)
    if run.returncode:
        print(run.stderr.strip())
        return None
    return np.fromfile(out, np.float32)


def same(a, b, tolerance):
    return a is not None and b is not None and np.isfinite(a).all() and np.abs(a - b).max() <= tolerance * b.std()


def near(a, b, tolerance):
    """As golden_tests judges the default precision: by the mean, since one logit of a made-up model may be thrice as far off as the others."""
    return a is not None and b is not None and np.isfinite(a).all() and np.sqrt(((a - b) ** 2).mean()) <= tolerance * b.std()


# ---- types ----------------------------------------------------------------------------------------------------------------


def plain_model(rng):
    shapes = {'token_embd': (VOCAB, HIDDEN), 'output': (VOCAB, HIDDEN)}
    for name, rows in (('attn_q', HIDDEN), ('attn_k', HIDDEN // 2), ('attn_v', HIDDEN // 2), ('attn_output', HIDDEN), ('ffn_gate', HIDDEN), ('ffn_up', HIDDEN),
                       ('ffn_down', HIDDEN)):
        shapes['blk.0.' + name] = (rows, HIDDEN)
    norms = {f'{n}.weight': (1 + rng.standard_normal(HIDDEN) / 10).astype(np.float32) for n in ('output_norm', 'blk.0.attn_norm', 'blk.0.ffn_norm')}
    return shapes, norms


def blocks_of(rng, kind, shape):
    """Random blocks with numbers of the size that weights have."""
    n, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = random_blocks(rng, kind.name, shape[0] * shape[1] // n, n_bytes)
    for at in HALVES[kind.name]:
        blocks[:, at:at + 2] = (rng.uniform(0.5, 1, (len(blocks), 1)) * 2.0 ** (-14 if kind.name == 'Q6_K' else -9)).astype(np.float16).view(np.uint8)
    if kind.name == 'IQ1_M':
        for i in range(4):
            blocks[:, 49 + 2 * i] = (blocks[:, 49 + 2 * i] & 15) | (0x2000 >> 4 * i & 15) << 4
    if kind.name == 'MXFP4':
        blocks[:, 0] = rng.integers(118, 122, len(blocks), np.uint8)
    if kind.name == 'NVFP4':
        blocks[:, :4] = rng.integers(8, 24, (len(blocks), 4), np.uint8)
    return blocks.reshape(shape[0], -1)


# Types whose scales nest take inputs of one byte on some processors: steps sixteen times as large as elsewhere, measured 0.0011 to 0.023.
ONE_BYTE, BYTE = ('Q2_K', 'Q3_K', 'Q4_K', 'Q5_K', 'Q6_K', 'IQ1_M'), 3e-2


def check_types(program, folder):
    meta = {'block_count': 1, 'context_length': 64, 'embedding_length': HIDDEN, 'feed_forward_length': HIDDEN, 'attention.head_count': 4, 'attention.head_count_kv': 2,
            'attention.layer_norm_rms_epsilon': 1e-5, 'rope.freq_base': 1e4}
    for name in HALVES:
        kind = Type[name]
        if kind not in quants._type_traits:
            continue
        rng = np.random.default_rng(kind.value)
        shapes, norms = plain_model(rng)
        packed = {f'{k}.weight': blocks_of(rng, kind, s) for k, s in shapes.items()}
        paths = [os.path.join(folder, f'{name}.{n}.gguf') for n in ('packed', 'plain')]
        write(paths[0], 'llama', meta, {**{k: (b, kind) for k, b in packed.items()}, **norms})
        write(paths[1], 'llama', meta, {**{k: quants.dequantize(b, kind).astype(np.float32) for k, b in packed.items()}, **norms})
        got, want = (logits(program, p, os.path.join(folder, 'out'), '--precision', 'exact') for p in paths)
        check(same(got, want, 1e-5), f'{name}: logits')
        check(near(logits(program, paths[0], os.path.join(folder, 'out')), want, BYTE if name in ONE_BYTE else 1e-2), f'{name}: logits in the default precision')


# ---- architectures ----------------------------------------------------------------------------------------------------------


def dense_keys(c):
    rope = c.get('rope_parameters') or {}
    keys = {'block_count': c['num_hidden_layers'], 'context_length': c['max_position_embeddings'], 'embedding_length': c['hidden_size'],
            'feed_forward_length': c['intermediate_size'], 'attention.head_count': c['num_attention_heads'],
            'attention.head_count_kv': c.get('num_key_value_heads', c['num_attention_heads']), 'rope.freq_base': float(rope.get('rope_theta', 1e4))}
    if c.get('head_dim'):
        keys['attention.key_length'] = c['head_dim']
    for key in ('rms_norm_eps', 'layer_norm_eps', 'norm_epsilon'):
        if key in c:
            keys['attention.layer_norm_rms_epsilon' if key == 'rms_norm_eps' else 'attention.layer_norm_epsilon'] = float(c[key])
    if 'sliding_window' in c and c['sliding_window']:
        keys['attention.sliding_window'] = c['sliding_window']
    return keys


def expert_keys(c):
    keys = dense_keys(c)
    keys.update({'expert_count': c.get('num_experts') or c['num_local_experts'], 'expert_used_count': c['num_experts_per_tok'],
                 'expert_feed_forward_length': c['moe_intermediate_size']})
    return keys


def granite_keys(c):
    return {**dense_keys(c), 'logit_scale': float(c['logits_scaling']), 'residual_scale': float(c['residual_multiplier']),
            'embedding_scale': float(c['embedding_multiplier']), 'attention.scale': float(c['attention_multiplier'])}


def gemma_keys(c):
    return {**dense_keys(c), 'attn_logit_softcapping': float(c['attn_logit_softcapping']), 'final_logit_softcapping': float(c['final_logit_softcapping'])}


def gemma3_keys(c):
    full, local = (c['rope_parameters'][k]['rope_theta'] for k in ('full_attention', 'sliding_attention'))
    return {**dense_keys(c), 'rope.freq_base': float(full), 'rope.freq_base_swa': float(local),
            'attention.sliding_window_pattern': [t == 'sliding_attention' for t in c['layer_types']]}


# folder of DATA/golden: architecture, keys, whether rows of q and k lie in pairs, whether norms have their 1
ARCHITECTURES = {'llama': ('llama', dense_keys, True, 0), 'qwen2': ('qwen2', dense_keys, False, 0), 'qwen3': ('qwen3', dense_keys, False, 0),
                 'qwen3_moe': ('qwen3moe', expert_keys, False, 0), 'gemma2': ('gemma2', gemma_keys, False, 1), 'gemma3': ('gemma3', gemma3_keys, False, 1),
                 'olmo2': ('olmo2', dense_keys, False, 0), 'granite': ('granite', granite_keys, True, 0), 'seed_oss': ('seed_oss', dense_keys, False, 0),
                 'starcoder2': ('starcoder2', dense_keys, False, 0), 'smollm3': ('smollm3', dense_keys, True, 0)}


def to_f32(dtype, shape, data):
    if dtype == 'BF16':
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, np.float32).reshape(shape)


def in_pairs(t, heads):
    return t.reshape(heads, 2, t.shape[0] // heads // 2, *t.shape[1:]).swapaxes(1, 2).reshape(t.shape)


def split_experts(name, t):
    """One tensor for gate and up together, as the references keep them, is two."""
    if name.endswith('experts.gate_up_proj'):
        half = t.shape[1] // 2
        return {name[:-len('gate_up_proj')] + 'gate_proj.weight': t[:, :half], name[:-len('gate_up_proj')] + 'up_proj.weight': t[:, half:]}
    return {name + '.weight': t} if name.endswith('experts.down_proj') else {name: t}


def stacked(tensors):
    """Experts of their own become one tensor."""
    out, groups = {}, {}
    for name, t in tensors.items():
        parts = name.split('.experts.')
        if len(parts) == 2 and parts[1].split('.')[0].isdigit():
            number, rest = parts[1].split('.', 1)
            groups.setdefault(f'{parts[0]}.experts.{rest}', {})[int(number)] = t
        else:
            out.update(split_experts(name, t))
    for name, experts in groups.items():
        out[name] = np.stack([experts[i] for i in range(len(experts))])
    return out


def load(folder, name):
    arch, keys, pairs, one = ARCHITECTURES[name]
    config = json.load(open(os.path.join(folder, 'config.json')))
    model = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[arch]
    names = gguf.get_tensor_name_map(model, config['num_hidden_layers'])
    out = {}
    for hf, t in stacked({k: to_f32(*t) for k, t in read_safetensors(os.path.join(folder, 'model.safetensors')).items()}).items():
        theirs = names.get_name(hf, try_suffixes=('.weight', '.bias'))
        assert theirs, hf
        if pairs and ('attn_q.' in theirs or 'attn_k.' in theirs):
            t = in_pairs(t, config['num_attention_heads'] if 'attn_q.' in theirs else config['num_key_value_heads'])
        if one and theirs.endswith('norm.weight'):
            t = t + np.float32(1)
        out[theirs] = np.ascontiguousarray(t)
    return arch, keys(config), out


def as_type(t, kind):
    if t.ndim < 2 or t.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]:
        return t
    return quants.quantize(t, kind), kind


def check_architectures(program, golden, data, folder):
    for name in ARCHITECTURES:
        source = os.path.join(data, 'golden', name)
        arch, keys, tensors = load(source, name)
        for kind in (Type.F32, Type.BF16):
            place = os.path.join(folder, 'figures', f'{name}-{kind.name}')
            os.makedirs(place)
            write(os.path.join(place, 'model.gguf'), arch, keys, {k: t if kind == Type.F32 else as_type(t, kind) for k, t in tensors.items()})
            shutil.copy(os.path.join(source, 'golden.safetensors'), place)
        for kind in (Type.Q8_0, Type.Q4_0):
            packed = {k: as_type(t, kind) for k, t in tensors.items()}
            paths = [os.path.join(folder, f'{n}.gguf') for n in ('packed', 'plain')]
            write(paths[0], arch, keys, packed)
            write(paths[1], arch, keys, {k: quants.dequantize(t[0], t[1]).astype(np.float32) if isinstance(t, tuple) else t for k, t in packed.items()})
            got, want = (logits(program, p, os.path.join(folder, 'out'), '--precision', 'exact') for p in paths)
            check(same(got, want, 1e-5), f'{name} {kind.name}: logits')
    run = subprocess.run([golden, os.path.join(folder, 'figures')], capture_output=True, text=True)
    for line in run.stdout.splitlines()[:-1]:
        check(line.startswith('ok '), line)


def main():
    program, golden, data = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else ''
    with tempfile.TemporaryDirectory() as folder:
        check_types(program, folder)
        if os.path.isdir(os.path.join(data, 'golden')):
            check_architectures(program, golden, data, folder)
    return finish()


if __name__ == '__main__':
    sys.exit(main())
