#!/usr/bin/env python3
"""Greedy text of real models is llama.cpp's: DATA/models as GGUF files, written with the gguf package or by llama.cpp's own quantiser, continued by mlxcel and by
llama-cpp-python (pip install llama-cpp-python) from the same texts. llama.cpp rounds the inputs of its products, and we do not in
exact precision: with F32 weights and an F32 cache both compute the same, and every text must be equal; with packed types texts must be
equal until the two best tokens are nearly as likely. K types are run in the default precision, too, which rounds inputs as llama.cpp does.

Says "skipped" and exits with 0 where one of the packages is not installed.

usage: test_greedy.py PROGRAM DATA [MODEL [TYPE]]      last line: "N passed, N failed[, N skipped]"
"""
import json, os, subprocess, sys, tempfile

try:
    import gguf
    import llama_cpp
    import numpy as np
    from gguf import GGMLQuantizationType as Type, quants
except ImportError as missing:
    print(f'skipped test_greedy: {missing}\n0 passed, 0 failed, 1 skipped')
    sys.exit(0)

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
from counting import check, finish
from test_tokens import scores, vocabulary
from writer import read_safetensors

MODELS = {'minimind2-small-mlx-8bit': 'gpt-2', 'stories15M-mlx-4bit-g32': 'llama'}
TYPES = {'F32': Type.F32, 'F16': Type.F16, 'Q8_0': Type.Q8_0, 'Q4_0': Type.Q4_0}
MADE_OF_F32 = {'Q4_K_M': llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M, 'Q6_K': llama_cpp.LLAMA_FTYPE_MOSTLY_Q6_K}  # by llama.cpp
TEXTS = ['Once upon a time there was a little girl who', 'The sea is', 'One day, a dog named Max went to the park.', 'Why is the sky blue?', 'Tom and Lily liked to play']
TOKENS, NEAR = 48, 0.3  # of a logit: what int8 inputs can change
PLACES = {'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v', 'self_attn.o_proj': 'attn_output', 'mlp.gate_proj': 'ffn_gate',
          'mlp.up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down', 'input_layernorm': 'attn_norm', 'post_attention_layernorm': 'ffn_norm'}
FLOATS = {'F32': np.float32, 'F16': np.float16}


def array(tensor):
    dtype, shape, data = tensor
    if dtype == 'BF16':
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, FLOATS[dtype]).astype(np.float32).reshape(shape)


def name_of(name):
    if name.startswith('model.layers.'):
        layer, rest = name[len('model.layers.'):].split('.', 1)
        return f'blk.{layer}.{PLACES[rest[:-len(".weight")]]}.weight'
    return {'model.embed_tokens.weight': 'token_embd.weight', 'model.norm.weight': 'output_norm.weight', 'lm_head.weight': 'output.weight'}[name]


def paired(w, heads):
    """Rows of the two halves of a head by turns, as the converter has them."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def put_tokens(w, kind, tokenizer, config):
    pieces = kind == 'llama'
    texts, types = vocabulary(tokenizer, pieces)
    w.add_tokenizer_model('llama' if pieces else 'gpt2')
    w.add_tokenizer_pre('default' if pieces else kind)
    w.add_token_list(texts)
    w.add_token_types(types)
    if pieces:
        w.add_token_scores(scores(tokenizer, texts))
    else:
        w.add_token_merges([m if isinstance(m, str) else ' '.join(m) for m in tokenizer['model']['merges']])
    w.add_bos_token_id(config['bos_token_id'])
    w.add_eos_token_id(config['eos_token_id'])
    w.add_add_bos_token(pieces)


def write(path, folder, plain, kind, dtype):
    config = json.load(open(os.path.join(folder, 'config.json')))
    w = gguf.GGUFWriter(path, 'llama')
    heads, kv_heads = config['num_attention_heads'], config['num_key_value_heads']
    w.add_block_count(config['num_hidden_layers'])
    w.add_context_length(config['max_position_embeddings'])
    w.add_embedding_length(config['hidden_size'])
    w.add_feed_forward_length(config['intermediate_size'])
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_layer_norm_rms_eps(config['rms_norm_eps'])
    w.add_rope_freq_base(config['rope_theta'])
    w.add_rope_dimension_count(config['head_dim'])
    w.add_vocab_size(config['vocab_size'])
    put_tokens(w, kind, json.load(open(os.path.join(folder, 'tokenizer.json'))), config)
    for name, tensor in read_safetensors(os.path.join(plain, 'model.safetensors')).items():
        values = array(tensor)
        if 'q_proj' in name or 'k_proj' in name:
            values = paired(values, heads if 'q_proj' in name else kv_heads)
        is_matrix = values.ndim == 2
        data = quants.quantize(np.ascontiguousarray(values), dtype if is_matrix else Type.F32)
        w.add_tensor(name_of(name), data, raw_dtype=dtype if is_matrix else Type.F32)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def quantize(source, path, kind):
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = kind, 2
    if llama_cpp.llama_model_quantize(source.encode(), path.encode(), params):
        raise SystemExit(f'llama.cpp does not write {path}')


def ours(program, path, text, precision):
    run = subprocess.run([program, 'generate', '-m', path, '-p', text, '-n', str(TOKENS), '--temperature', '0', '--no-chat-template', '--precision', precision,
                          '--device', 'cpu', '-c', '256'], capture_output=True, text=True)
    return run.stdout if run.returncode == 0 else None


class Llama:
    def __init__(self, path):
        self.model = llama_cpp.Llama(path, n_ctx=256, n_threads=2, verbose=False, logits_all=True, type_k=0, type_v=0)

    def text(self, prompt):
        out = self.model.create_completion(prompt, max_tokens=TOKENS, temperature=0, top_k=1, repeat_penalty=1.0)
        return out['choices'][0]['text']

    def is_near(self, prompt, shared):
        """Whether the best two tokens behind prompt and shared text are nearly as likely; the text may end within a token."""
        ids = self.model.tokenize((prompt + shared).encode())
        self.model.reset()
        self.model.eval(ids)
        rows = np.sort(np.array(self.model._scores[max(len(ids) - 3, 0):len(ids)]), axis=1)
        return bool((rows[:, -1] - rows[:, -2]).min() < NEAR)


def compare(program, path, label, strict, precision='exact'):
    llama, equal = Llama(path), 0
    for text in TEXTS:
        mine, his = ours(program, path, text, precision), llama.text(text)
        if mine is None:
            check(False, f'{label}: mlxcel fails on {text!r}')
            continue
        mine = mine[len(text):] if mine.startswith(text) else mine
        mine, his = mine.rstrip(), his.rstrip()
        equal += mine == his
        fine = mine == his or (not strict and llama.is_near(text, os.path.commonprefix([mine, his])))
        check(fine, f'{label}, {text!r}: {mine!r} is not {his!r}')
    print(f'{label}: {equal} of {len(TEXTS)} texts equal')


def main():
    program, data, *only = sys.argv[1:]
    with tempfile.TemporaryDirectory() as root:
        for model, kind in MODELS.items():
            if only and only[0] != model:
                continue
            folder, plain = os.path.join(data, 'models', model), os.path.join(root, model)
            subprocess.run([program, 'fuse', '-m', folder, '--dequantize', '-o', plain], check=True, capture_output=True)
            has_spans = json.load(open(os.path.join(folder, 'config.json')))['hidden_size'] % 256 == 0  # else few matrices are of a K type
            for label, dtype in (TYPES | MADE_OF_F32 if has_spans else TYPES).items():
                if only[1:] and only[1] != label:
                    continue
                path, f32 = (os.path.join(root, f'{model}-{kind_}.gguf') for kind_ in (label, 'F32'))
                if not os.path.exists(f32) and label in MADE_OF_F32:
                    write(f32, folder, plain, kind, Type.F32)
                if label in MADE_OF_F32:
                    quantize(f32, path, dtype)
                    compare(program, path, f'{model} {label}, default precision', False, 'auto')
                else:
                    write(path, folder, plain, kind, dtype)
                compare(program, path, f'{model} {label}', label == 'F32')
    finish()


if __name__ == '__main__':
    main()
