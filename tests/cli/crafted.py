"""Models that say what they were made to say: after each word comes the next one of a script. One layer that adds nothing, embeddings
that name the word, an output that knows its successor."""
import json
import struct
from pathlib import Path

WIDTH = 64
GO = "<go>"     # the template's last word; the script begins behind it
BAD = "<bad>"   # a word whose embedding is no number
END = "<end>"

SCRIPT = [GO, "<think>", "Two", " and", " two", "</think>", "The", " sum", " is", " four.", END]
SCRIPT_INSIDE = [GO, "<think>", "Three", " less", " one", "</think>", "It", " leaves", " a", " pair.", END]


def bf16(values):
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def one_hot(i, value):
    return bf16(value if k == i else 0.0 for k in range(WIDTH))


def tokenizer(words):
    vocab = {word: i for i, word in enumerate(words)}
    added = [{"id": vocab[w], "content": w, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": w in (GO, END)}
             for w in words if w.startswith("<") and w != "<unk>"]
    return {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None,
            "decoder": {"type": "Fuse"}, "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}}


def tensors(words, script):
    zeros = bytes(2 * WIDTH * WIDTH)
    embed, head = {}, {}
    for i, word in enumerate(script):
        embed[word] = one_hot(i, 1.0)
        if i + 1 < len(script):
            head[script[i + 1]] = one_hot(i, 4.0)
    embed[BAD] = bf16([float("nan")] * WIDTH)
    empty = one_hot(-1, 0.0)
    layer = "model.layers.0."
    yield "model.embed_tokens.weight", [len(words), WIDTH], b"".join(embed.get(w, one_hot(WIDTH - 1, 1.0)) for w in words)
    yield "lm_head.weight", [len(words), WIDTH], b"".join(head.get(w, empty) for w in words)
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        yield layer + name + ".weight", [WIDTH, WIDTH], zeros
    for name in (layer + "input_layernorm", layer + "post_attention_layernorm", "model.norm"):
        yield name + ".weight", [WIDTH], bf16([1.0] * WIDTH)


def make(folder, script=SCRIPT, opens=""):
    """A checkpoint in `folder`; opens: what the template puts behind GO."""
    folder = Path(folder)
    folder.mkdir()
    words = ["<unk>", BAD, "hello", *dict.fromkeys(script)]
    header, body = {}, b""
    for name, shape, data in tensors(words, script):
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    config = {"model_type": "llama", "hidden_size": WIDTH, "intermediate_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 1,
              "num_key_value_heads": 1, "head_dim": WIDTH, "vocab_size": len(words), "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "eos_token_id": words.index(END)}
    template = "{% for m in messages %}{{ m.content }} {% endfor %}{% if add_generation_prompt %}" + GO + opens + "{% endif %}"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(words)))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END, "chat_template": template}))
    return folder
