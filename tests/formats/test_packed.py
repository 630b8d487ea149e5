#!/usr/bin/env python3
"""Checkpoints that other programs quantised: for each layout a small model made without packages, whose logits in exact precision are those of the same
model with the unpacked numbers; what is not read is refused by name.

usage: test_packed.py PROGRAM      last line: "N passed, N failed"
"""
import json, os, random, struct, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), 'gguf')]
from counting import check, finish
from layouts import FP8, LAYOUTS, floats, words
from writer import read_safetensors, safetensors_bytes

H, F, HEADS, KV, WIDTH, VOCAB = 128, 256, 4, 2, 32, 64
CONFIG = {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'vocab_size': VOCAB, 'hidden_size': H, 'intermediate_size': F, 'num_hidden_layers': 1,
          'num_attention_heads': HEADS, 'num_key_value_heads': KV, 'head_dim': WIDTH, 'max_position_embeddings': 64, 'rms_norm_eps': 1e-6, 'rope_theta': 10000.0,
          'hidden_act': 'silu', 'tie_word_embeddings': False, 'torch_dtype': 'float32'}
MATRICES = {'self_attn.q_proj': (HEADS * WIDTH, H), 'self_attn.k_proj': (KV * WIDTH, H), 'self_attn.v_proj': (KV * WIDTH, H), 'self_attn.o_proj': (H, HEADS * WIDTH),
            'mlp.gate_proj': (F, H), 'mlp.up_proj': (F, H), 'mlp.down_proj': (H, F)}


def save(folder, tensors, config):
    os.makedirs(folder, exist_ok=True)
    open(os.path.join(folder, 'model.safetensors'), 'wb').write(safetensors_bytes(tensors))
    json.dump(config, open(os.path.join(folder, 'config.json'), 'w'))
    return folder


def plain(rng, shape, around=0.0):
    n = 1
    for s in shape:
        n *= s
    return 'F32', list(shape), floats('F32', [around + rng.gauss(0, 0.1) for _ in range(n)])


def model(make):
    """The quantised tensors of a model, and the same unpacked."""
    rng = random.Random(7)
    shared = {'model.embed_tokens.weight': plain(rng, (VOCAB, H)), 'model.norm.weight': plain(rng, (H,), 1), 'lm_head.weight': plain(rng, (VOCAB, H)),
              'model.layers.0.input_layernorm.weight': plain(rng, (H,), 1), 'model.layers.0.post_attention_layernorm.weight': plain(rng, (H,), 1)}
    packed, unpacked = dict(shared), dict(shared)
    for name, (rows, columns) in MATRICES.items():
        path = 'model.layers.0.' + name
        tensors, values = make(rng, rows, columns)
        packed.update({path + suffix: t for suffix, t in tensors.items()})
        unpacked[path + '.weight'] = ('F32', [rows, columns], floats('F32', [v for row in values for v in row]))
    return packed, unpacked


def run(*command):
    done = subprocess.run(command, capture_output=True)
    return done.returncode, done.stdout.decode(errors='replace'), done.stderr.decode(errors='replace')


def logits(program, path, precision='exact'):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, 'out')
        code, _, err = run(program, 'logits', '--device', 'cpu', '--precision', precision, '--tokens', '1,5,9,33,60,2', '-o', out, '-m', path)
        data = open(out, 'rb').read() if code == 0 else b''
    return struct.unpack('<%df' % (len(data) // 4), data), err


def is_near(a, b, bar):
    return len(a) == len(b) == 6 * VOCAB and all(abs(x - y) <= bar * max(map(abs, b)) for x, y in zip(a, b))


def check_layout(program, folder, name):
    make, quantization, called = LAYOUTS[name]
    packed, unpacked = model(make)
    theirs = save(os.path.join(folder, name), packed, {**CONFIG, 'quantization_config': quantization})
    reference, err = logits(program, save(os.path.join(folder, name + '-plain'), unpacked, CONFIG))
    ours, err = logits(program, theirs)
    check(is_near(ours, reference, 1e-6), f'{name}: logits {err}')
    check(('matrices are unpacked' in err) == (called in ('f16', 'bf16', 'f32')), f'{name}: log {err}')
    check_quantize(program, theirs)
    if called in ('f16', 'bf16', 'f32'):
        return
    rounded, err = logits(program, theirs, 'auto')
    check(is_near(rounded, reference, 0.05), f'{name}: rounded logits {err}')
    code, out, _ = run(program, 'inspect', '-m', theirs)
    check(code == 0 and called in out, f'{name}: inspect {out}')


def check_quantize(program, path):
    """The same bytes as out of the unpacked model."""
    results = [run(program, 'quantize', '--group-size', '32', '-m', p, '-o', p + '-mlx') for p in (path, path + '-plain')]
    written = [read_safetensors(os.path.join(p + '-mlx', 'model.safetensors')) if r[0] == 0 else r for p, r in zip((path, path + '-plain'), results)]
    check(results[0][0] == 0 and written[0] == written[1], f'quantize {path}: {results}')


def check_refusals(program, folder):
    def refused(name, tensors, quantization, text):
        path = save(os.path.join(folder, 'bad'), tensors, {**CONFIG, 'quantization_config': quantization})
        _, err = logits(program, path)
        check(text in err and err.count('\n') == 1, f'refuse {name}: {err}')
        check(run(program, 'inspect', '-m', path)[0] == 0, f'inspect {name}')

    make, quantization, _ = LAYOUTS['gptq-4']
    packed = model(make)[0]
    at = 'model.layers.0.mlp.up_proj'
    refused('another method', packed, {'quant_method': 'hqq'}, 'its layout is not known; take the unquantised checkpoint')
    refused('marlin', packed, {**quantization, 'checkpoint_format': 'marlin'}, 'checkpoint_format must be gptq or gptq_v2')
    refused('no zeros', {k: v for k, v in packed.items() if k != at + '.qzeros'}, quantization, 'qzeros or scales are missing')
    refused('short zeros', {**packed, at + '.qzeros': ('I32', [1, 32], bytes(128))}, quantization, 'do not go together')
    refused('a wrong group', {**packed, at + '.g_idx': ('I32', [128], words([99] * 128))}, quantization, 'g_idx names a group that is not there')
    make, quantization, _ = LAYOUTS['awq']
    refused('gemv', model(make)[0], {**quantization, 'version': 'gemv'}, 'only gemm is read')
    make, quantization, _ = LAYOUTS['fp8-block']
    packed = model(make)[0]
    refused('no scales', {k: v for k, v in packed.items() if k != at + '.weight_scale_inv'}, FP8, 'its scales are missing')
    refused('other blocks', packed, {**FP8, 'weight_block_size': [64, 64]}, 'its scales have another shape')
    make, quantization, _ = LAYOUTS['nf4']
    packed = model(make)[0]
    refused('no state', {**packed, at + '.weight.quant_state.bitsandbytes__nf4': ('U8', [2], b'{}')}, quantization, 'its state names no shape')
    for file in ('pytorch_model.bin', 'model.ckpt', 'model.pt'):
        path = os.path.join(folder, 'pickle-' + file)
        os.makedirs(path)
        open(os.path.join(path, file), 'wb').write(b'PK')
        json.dump(CONFIG, open(os.path.join(path, 'config.json'), 'w'))
        code, _, err = run(program, 'logits', '--tokens', '1', '-o', os.path.join(folder, 'none'), '-m', path)
        check(code == 1 and file in err and 'can run code' in err and 'save_pretrained' in err and err.count('\n') == 1, f'{file}: {err}')


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        for name in LAYOUTS:
            check_layout(program, folder, name)
        check_refusals(program, folder)
    return finish()


if __name__ == '__main__':
    sys.exit(main())
