#!/usr/bin/env python3
"""`mlxcel export --gguf`: files of small models give the logits of their folders bit for bit, ids and texts are the same, and what no type of GGUF holds is
refused by name. Where the `gguf` package is installed it unpacks the file to the folder's numbers. With DATA also real models and other kinds of rope;
where llama-cpp-python is installed its greedy text of a file is that of the folder, but for near ties.

usage: test_export.py PROGRAM [DATA]      last line: "N passed, N failed[, N skipped]"
"""
import array, itertools, json, os, shutil, subprocess, sys, tempfile

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
from counting import check, finish, skip

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
QUANT = os.path.join(ROOT, 'tests', 'golden', 'quant')
HELD = {'affine-4-g128': 'Q4_1', 'affine-4-g64': 'Q4_1', 'affine-5-g64': 'Q5_1', 'mxfp4': 'MXFP4', 'nvfp4': 'NVFP4'}
REFUSED = {'affine-2-g32': 'affine 2-bit g32', 'affine-3-g128': 'affine 3-bit g128', 'affine-6-g32': 'affine 6-bit g32', 'affine-8-g64': 'affine 8-bit g64', 'mxfp8': 'mxfp8'}
EXACT = ('llama', 'llama-bias', 'llama-linear-rope', 'qwen2', 'qwen3', 'qwen3-q4-g32')  # of DATA/golden
TEXTS = ('Once upon a time there was a little girl who', 'One day, a dog named Max went to the park.', 'Tom and Lily liked to play')
TOKENS, NEAR = 24, 0.3  # of a logit: what inputs of eight bits can change


def run(*command, given=None):
    done = subprocess.run(command, input=given, capture_output=True)
    return done.returncode, done.stdout.decode(errors='replace'), done.stderr.decode(errors='replace')


def export(program, source, target):
    code, _, err = run(program, 'export', '-m', source, '--gguf', target)
    check(code == 0 and os.path.exists(target) and not os.path.exists(target + '.part'), f'{source}: {err}')
    return target


def logits(program, model, folder, ids=(1, 5, 9, 17, 33, 20)):
    out = os.path.join(folder, 'logits')
    code, _, err = run(program, 'logits', '-m', model, '-o', out, '--tokens', ','.join(map(str, ids)), '--precision', 'exact', '--device', 'cpu')
    return open(out, 'rb').read() if code == 0 else err


def check_same(program, source, path, folder):
    ours, theirs = logits(program, path, folder), logits(program, source, folder)
    check(isinstance(ours, bytes) and ours == theirs, f'{source}: logits {ours if isinstance(ours, str) else "differ"}')
    given = '\n'.join(json.dumps(t) for t in ('hello world', 'a <s> b', '', 'naïve 123\n\n x', ' two  blanks')).encode()
    ids = [run(program, 'tokenize', '--jsonl', '-m', m, given=given) for m in (path, source)]
    check(ids[0][0] == 0 and ids[0][1] == ids[1][1], f'{source}: ids {ids}')


def types_of(path):
    import gguf
    return {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}


def check_package(path, kind):
    try:
        found = types_of(path)
    except ImportError:
        skip(f'{kind}: gguf is not installed')
        return
    packed = {t for n, t in found.items() if n.endswith('.weight') and not n.endswith('norm.weight')}
    check(kind in packed and packed <= {kind, 'F32', 'F16', 'BF16'}, f'{path}: {found}')


def check_refusals(program, folder):
    for name, words in REFUSED.items():
        target = os.path.join(folder, name + '.gguf')
        code, _, err = run(program, 'export', '-m', os.path.join(QUANT, name), '--gguf', target)
        check(code == 1 and words in err and 'fuse --dequantize' in err and not os.path.exists(target), f'{name}: {err}')
    source = os.path.join(folder, 'changed')
    there = os.path.join(folder, 'mxfp4.gguf')

    def refused(words, target=os.path.join(folder, 'none.gguf'), **keys):
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(os.path.join(QUANT, 'mxfp4'), source)
        config = json.load(open(os.path.join(source, 'config.json')))
        json.dump({**config, **keys}, open(os.path.join(source, 'config.json'), 'w'))
        code, _, err = run(program, 'export', '-m', source, '--gguf', target)
        check(code != 0 and words in err and err.count('\n') == 1, f'{keys}: {err}')

    refused('is there already', target=there)
    refused('models of type gemma are not written', model_type='gemma')
    refused('sliding_window', sliding_window=32)
    refused('hidden_act', hidden_act='gelu')
    refused('rope_scaling of type yarn', rope_scaling={'rope_type': 'yarn', 'factor': 4.0})
    refused('is beyond vocab_size', vocab_size=5)
    code, _, err = run(program, 'export', '-m', there, '--gguf', os.path.join(folder, 'none.gguf'))
    check(code == 2 and 'is a GGUF file already' in err, err)
    code, _, err = run(program, 'export', '-m', source)
    check(code == 2 and '--gguf FILE is missing' in err, err)


def check_llama(path, program, source, folder):
    """llama.cpp rounds the inputs of products, so that it may take another token where two are nearly as likely: each of its tokens must be the best, or nearly, of ours."""
    try:
        import llama_cpp
    except ImportError:
        skip(f'{source}: llama-cpp-python is not installed')
        return
    model = llama_cpp.Llama(path, n_ctx=256, n_threads=2, verbose=False)
    for text in TEXTS:
        ids = model.tokenize(text.encode())
        whole = ids + list(itertools.islice(model.generate(ids, top_k=1, temp=0.0, repeat_penalty=1.0), TOKENS))
        rows = array.array('f', logits(program, source, folder, whole))
        n = len(rows) // len(whole)
        short = [max(rows[i * n:i * n + n]) - rows[i * n + whole[i + 1]] for i in range(len(ids) - 1, len(whole) - 1)]
        check(max(short) < NEAR and sum(s == 0 for s in short) >= TOKENS - 3, f'{source}: {text!r}: {short}')


def main(program, data=None):
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in HELD.items():
            path = export(program, os.path.join(QUANT, name), os.path.join(folder, name + '.gguf'))
            check_same(program, os.path.join(QUANT, name), path, folder)
            check_package(path, kind)
        check_refusals(program, folder)
        sources = [os.path.join(data, 'golden', n) for n in EXACT] if data else []
        sources += [os.path.join(data, *n) for n in (('models', 'stories15M-mlx-4bit-g32'), ('tiny', 'tiny-stories-7m-4bit'))] if data else []
        if not data:
            skip('no DATA')
        for source in sources:
            path = export(program, source, os.path.join(folder, os.path.basename(source) + '.gguf'))
            check_same(program, source, path, folder)
            if 'stories' in source:
                check_llama(path, program, source, folder)
    finish()


main(*sys.argv[1:])
