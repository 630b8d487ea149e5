#!/usr/bin/env python3
"""Make the tiny quantised Llama checkpoints beside this script, one per weight format, with what they must compute.

Each folder is a checkpoint as mlx-lm would write it (config.json, generation_config.json, model.safetensors,
tokenizer.json, tokenizer_config.json), quantised by MLX itself, and golden.safetensors beside it:
  prompt_K   int64 [n]          input token ids (K = 0, 1, 2)
  logits_K   float32 [n, vocab] logits at every prompt position, from the weights dequantised in float32
  greedy_K   int64 [m]          the tokens that greedy decoding appends
  margin_K   float32 [m]        top-1 minus top-2 logit at each greedy step
The reference is the plain Llama below, in float64 but for the rope angles, which are float32 as in transformers.

Needs mlx (on Linux: pip install "mlx[cpu]"), numpy, safetensors.
usage: make_models.py                 make all folders
       make_models.py --verify DIR    check the reference against a Llama folder made by transformers
"""
import json, os, re, shutil, sys
import mlx.core as mx
import numpy as np
from safetensors.numpy import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
V, LENS, STEPS = 288, (1, 5, 16), 16
DTYPES = {'bfloat16': mx.bfloat16, 'float16': mx.float16, 'float32': mx.float32}
SLIM = dict(hidden_size=64, intermediate_size=64)    # 4 heads of 32 in both, so o_proj reads 128
WIDE = dict(hidden_size=128, intermediate_size=128)  # groups of 128
# Names of linear layers that leave the default: another width, group or mode, or not quantised at all.
MIXED = {
    r'mlp\.down_proj': dict(group_size=64, bits=6), r'self_attn\.v_proj': dict(group_size=32, bits=8),
    r'layers\.0\.mlp\.gate_proj': dict(group_size=32, bits=4, mode='mxfp4'), r'layers\.0\.self_attn\.k_proj': dict(group_size=32, bits=4),
    r'layers\.1\.mlp\.up_proj': dict(group_size=16, bits=4, mode='nvfp4'), r'layers\.1\.self_attn\.o_proj': False,
}
# name -> default quantisation, shape, dtype of the source (and so of affine scales), tied embedding, overrides
MODELS = {
    'affine-2-g32': (dict(group_size=32, bits=2), SLIM, 'bfloat16', False, {}),
    'affine-3-g128': (dict(group_size=128, bits=3), WIDE, 'bfloat16', True, {}),
    'affine-4-g64': (dict(group_size=64, bits=4), SLIM, 'bfloat16', True, {}),
    'affine-4-g128': (dict(group_size=128, bits=4, mode='affine'), WIDE, 'float16', True, {}),
    'affine-5-g64': (dict(group_size=64, bits=5, mode='affine'), SLIM, 'float16', False, {}),
    'affine-6-g32': (dict(group_size=32, bits=6), SLIM, 'float32', True, {}),
    'affine-8-g64': (dict(group_size=64, bits=8), SLIM, 'bfloat16', True, {}),
    'mxfp4': (dict(group_size=32, bits=4, mode='mxfp4'), SLIM, 'bfloat16', False, {}),
    'mxfp8': (dict(group_size=32, bits=8, mode='mxfp8'), SLIM, 'bfloat16', True, {}),
    'nvfp4': (dict(group_size=16, bits=4, mode='nvfp4'), SLIM, 'bfloat16', True, {}),
    'mixed': (dict(group_size=64, bits=4), SLIM, 'bfloat16', False, MIXED),
}


def config_of(shape, dtype, tied):
    return dict(architectures=['LlamaForCausalLM'], model_type='llama', vocab_size=V, **shape, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=1, head_dim=32, max_position_embeddings=512, rms_norm_eps=1e-6, rope_theta=500000.0, hidden_act='silu',
                attention_bias=False, mlp_bias=False, tie_word_embeddings=tied, bos_token_id=1, eos_token_id=2, pad_token_id=0, torch_dtype=dtype)


def random_weights(c, seed):
    rng = np.random.default_rng(seed)
    h, m, q, kv = c['hidden_size'], c['intermediate_size'], c['num_attention_heads'] * c['head_dim'], c['num_key_value_heads'] * c['head_dim']
    norm = lambda: 1 + 0.1 * rng.standard_normal(h)
    linear = lambda out, n: rng.standard_normal((out, n)) * 1.3 / n**0.5
    w = {'model.embed_tokens.weight': rng.standard_normal((V, h)) * (0.12 if c['tie_word_embeddings'] else 0.7), 'model.norm.weight': norm()}
    for i in range(c['num_hidden_layers']):
        p = f'model.layers.{i}.'
        w |= {p + 'input_layernorm.weight': norm(), p + 'post_attention_layernorm.weight': norm()}
        w |= {f'{p}self_attn.{n}_proj.weight': linear(a, b) for n, a, b in (('q', q, h), ('k', kv, h), ('v', kv, h), ('o', h, q))}
        w |= {f'{p}mlp.{n}_proj.weight': linear(a, b) for n, a, b in (('gate', m, h), ('up', m, h), ('down', h, m))}
    if not c['tie_word_embeddings']:
        w['lm_head.weight'] = linear(V, h)
    return w


def quantise(weights, dtype, default, overrides):
    """The checkpoint's tensors, the weights they stand for in float32, and the config entry."""
    planes, stands_for, entry = {}, {}, dict(default)
    for name, array in weights.items():
        w, path = mx.array(array.astype(np.float32)).astype(dtype), name.removesuffix('.weight')
        how = dict(default) if w.ndim == 2 else False
        for pattern, special in overrides.items():
            if re.search(pattern, path):
                how = entry[path] = special
        if how is False:
            planes[name], stands_for[name] = w, np.array(w.astype(mx.float32))
            continue
        how = dict(how, mode=how.get('mode', 'affine'))
        parts = mx.quantize(w, **how)
        for plane, part in zip(('weight', 'scales', 'biases'), parts):
            planes[f'{path}.{plane}'] = part
        exact = [parts[0]] + [p.astype(mx.float32) if how['mode'] == 'affine' else p for p in parts[1:]]
        stands_for[name] = np.array(mx.dequantize(*exact, **how, dtype=mx.float32))
    return planes, stands_for, entry


def llama(c, weights, ids):
    """Logits [n, vocab] in float64 of a plain Llama without rope scaling."""
    w = {k: v.astype(np.float64) for k, v in weights.items()}
    n, d, heads, kv = len(ids), c['head_dim'], c['num_attention_heads'], c['num_key_value_heads']
    theta = c['rope_theta'] if 'rope_theta' in c else c['rope_parameters']['rope_theta']
    frequency = (1.0 / np.float32(theta) ** (np.arange(0, d, 2, dtype=np.float32) / np.float32(d))).astype(np.float32)
    angle = (np.arange(n, dtype=np.float32)[:, None] * frequency).astype(np.float64)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    rms = lambda x, g: x / np.sqrt((x * x).mean(-1, keepdims=True) + c['rms_norm_eps']) * g
    rope = lambda x: np.concatenate([x[..., : d // 2] * cos - x[..., d // 2 :] * sin, x[..., d // 2 :] * cos + x[..., : d // 2] * sin], -1)
    x = w['model.embed_tokens.weight'][ids]
    for i in range(c['num_hidden_layers']):
        p = f'model.layers.{i}.'
        lin = lambda name, a: a @ w[f'{p}{name}_proj.weight'].T
        a = rms(x, w[p + 'input_layernorm.weight'])
        q = rope(lin('self_attn.q', a).reshape(n, heads, d))
        k = np.repeat(rope(lin('self_attn.k', a).reshape(n, kv, d)), heads // kv, axis=1)
        v = np.repeat(lin('self_attn.v', a).reshape(n, kv, d), heads // kv, axis=1)
        score = np.einsum('ihd,jhd->hij', q, k) / d**0.5 + np.triu(np.full((n, n), -np.inf), 1)
        score = np.exp(score - score.max(-1, keepdims=True))
        x = x + lin('self_attn.o', np.einsum('hij,jhd->ihd', score / score.sum(-1, keepdims=True), v).reshape(n, heads * d))
        a = rms(x, w[p + 'post_attention_layernorm.weight'])
        gate = lin('mlp.gate', a)
        x = x + lin('mlp.down', gate / (1 + np.exp(-gate)) * lin('mlp.up', a))
    return rms(x, w['model.norm.weight']) @ w.get('lm_head.weight', w['model.embed_tokens.weight']).T


def golden(c, weights, seed):
    rng, out, worst = np.random.default_rng(seed), {}, 1e9
    for k, n in enumerate(LENS):
        ids = rng.integers(5, V, n)
        tokens, margins = [], []
        for _ in range(STEPS):
            last = llama(c, weights, np.concatenate([ids, np.array(tokens, np.int64)]))[-1]
            top = np.sort(last)[-2:]
            tokens.append(int(last.argmax()))
            margins.append(top[1] - top[0])
        out |= {f'prompt_{k}': ids.astype(np.int64), f'logits_{k}': llama(c, weights, ids).astype(np.float32),
                f'greedy_{k}': np.array(tokens, np.int64), f'margin_{k}': np.array(margins, np.float32)}
        worst = min(worst, *margins)
    return out, worst


def write_tokenizer(folder):
    """288 tokens: five special ones, the 256 bytes in the printable spelling of byte-level BPE, 24 merges, 3 spare."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelling = sorted([chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))])
    special = ['<pad>', '<s>', '</s>', '<|im_start|>', '<|im_end|>']
    merges = [m.split('+') for m in 'h+e Ġ+t Ġ+a i+n r+e o+n Ġt+he e+r Ġ+s a+t e+n n+d Ġ+w o+r i+t Ġa+nd o+u i+s Ġ+h in+g l+l e+d Ġ+o a+n'.split()]
    names = special + spelling + [a + b for a, b in merges]
    names += [f'<extra_{i}>' for i in range(len(names), V)]
    added = [dict(id=i, content=s, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for i, s in enumerate(special)]
    byte_level = dict(type='ByteLevel', trim_offsets=True, use_regex=True)
    dump(folder, 'tokenizer.json', dict(
        version='1.0', truncation=None, padding=None, added_tokens=added, normalizer=None, pre_tokenizer=dict(byte_level, add_prefix_space=False),
        post_processor=None, decoder=dict(byte_level, add_prefix_space=True),
        model=dict(type='BPE', dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
                   byte_fallback=False, ignore_merges=False, vocab={s: i for i, s in enumerate(names)}, merges=merges)), indent=None)
    template = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
                "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    dump(folder, 'tokenizer_config.json', dict(bos_token='<s>', eos_token='</s>', pad_token='<pad>', tokenizer_class='PreTrainedTokenizerFast',
                                               model_max_length=512, chat_template=template))


def dump(folder, name, value, indent=1):
    with open(os.path.join(folder, name), 'w', encoding='utf-8') as f:
        json.dump(value, f, indent=indent, ensure_ascii=False)
        f.write('\n')


def make(name, default, shape, dtype, tied, overrides):
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    c = config_of(shape, dtype, tied)
    for seed in range(100):  # the first seed whose greedy steps are all clear
        planes, weights, entry = quantise(random_weights(c, seed), DTYPES[dtype], default, overrides)
        figures, worst = golden(c, weights, seed + 1000)
        sd = float(np.concatenate([figures[f'logits_{k}'] for k in range(3)]).std())
        distinct = len(set(figures['greedy_2'].tolist()))
        if worst > 0.01 * sd and distinct >= 8:
            break
    mx.save_safetensors(os.path.join(folder, 'model.safetensors'), planes, metadata=dict(format='mlx'))
    save_file(figures, os.path.join(folder, 'golden.safetensors'))
    dump(folder, 'config.json', dict(c, quantization=entry, quantization_config=entry))
    dump(folder, 'generation_config.json', dict(bos_token_id=1, eos_token_id=2, pad_token_id=0))
    write_tokenizer(folder)
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    print(f'{name}: seed {seed}, margin {worst:.4f}, logit sd {sd:.2f}, {distinct} distinct greedy, {size / 1000:.0f} kB')


def verify(folder):
    c = json.load(open(os.path.join(folder, 'config.json')))
    weights = {k: np.array(v.astype(mx.float32)) for k, v in mx.load(os.path.join(folder, 'model.safetensors')).items()}
    want = load_file(os.path.join(folder, 'golden.safetensors'))
    for k in range(3):
        d = np.abs(llama(c, weights, want[f'prompt_{k}']) - want[f'logits_{k}']).max()
        print(f'{folder}: prompt {k}: max |d| {d:.2e}')
        assert d < 1e-5


if sys.argv[1:2] == ['--verify']:
    verify(sys.argv[2])
else:
    for name, args in MODELS.items():
        make(name, *args)
