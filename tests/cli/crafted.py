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
SCRIPT_MARKS = [GO, "It", " is", " **bold**", " and", " `code`.", END]
SCRIPT_BREAKS = [GO, "One", " two", BAD, END]  # what follows cannot be computed
SCRIPT_INSIDE = [GO, "<think>", "Three", " less", " one", "</think>", "It", " leaves", " a", " pair.", END]


# calls of two tools as many models write them: what a tool has said brings the answer
AGAIN = "<again>"  # the template's last word behind a result
WEATHER_CALL = '\n{"name": "weather", "arguments": {"city": "Bonn", "days": 2}}\n'
AGENT = [[GO, "Let", " me", " see.", "<tool_call>", WEATHER_CALL, "</tool_call>", END], [AGAIN, "It", " is", " sunny", " in", " Bonn.", END]]
# one that gets the types wrong, and letters to write it right
WRONG_CALL = '\n{"name": "weather", "arguments": {"city": "Bonn", "days": "two"}}\n'
WRONG_AGENT = [GO, "Let", " me", " see.", "<tool_call>", WRONG_CALL, "</tool_call>", END]
LETTERS = [chr(c) for c in range(32, 127)] + ["\n"]
AGENT_TEMPLATE = ("{% if tools %}<tools>{{ tools | tojson }}</tools>{# <tool_call> {\"name\": ..., \"arguments\": ...} </tool_call> #}{% endif %}"
                  "{% for m in messages %}{{ m.content }} {% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
                  "{% endfor %}{% if add_generation_prompt %}{{ '" + AGAIN + "' if messages[-1].role == 'tool' else '" + GO + "' }}{% endif %}")


def bf16(values):
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def one_hot(i, value):
    return some_hot({i}, value)


def some_hot(those, value):
    return bf16(value if k in those else 0.0 for k in range(WIDTH))


def chains_of(script):
    """A script is a list of words, or several of them, which share no word but END."""
    return [script] if isinstance(script[0], str) else script


def tokenizer(words):
    vocab = {word: i for i, word in enumerate(words)}
    added = [{"id": vocab[w], "content": w, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": w in (GO, END)}
             for w in words if w.startswith("<") and w != "<unk>"]
    return {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None,
            "decoder": {"type": "Fuse"}, "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}}


def tensors(words, script):
    zeros = bytes(2 * WIDTH * WIDTH)
    embed, before, i = {}, {}, 0
    for chain in chains_of(script):
        for word, following in zip(chain, [*chain[1:], None]):
            embed[word] = one_hot(i, 1.0)
            before.setdefault(following, set()).add(i)
            i += 1
    head = {word: some_hot(those, 4.0) for word, those in before.items()}
    embed[BAD] = bf16([float("nan")] * WIDTH)
    empty = one_hot(-1, 0.0)
    layer = "model.layers.0."
    yield "model.embed_tokens.weight", [len(words), WIDTH], b"".join(embed.get(w, one_hot(WIDTH - 1, 1.0)) for w in words)
    yield "lm_head.weight", [len(words), WIDTH], b"".join(head.get(w, empty) for w in words)
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        yield layer + name + ".weight", [WIDTH, WIDTH], zeros
    for name in (layer + "input_layernorm", layer + "post_attention_layernorm", "model.norm"):
        yield name + ".weight", [WIDTH], bf16([1.0] * WIDTH)


def make(folder, script=SCRIPT, opens="", template=None, more_words=()):
    """A checkpoint in `folder`; opens: what the template puts behind GO; more_words: that the model knows and never says by itself."""
    folder = Path(folder)
    folder.mkdir()
    words = list(dict.fromkeys(["<unk>", BAD, "hello", *(word for chain in chains_of(script) for word in chain), *more_words]))
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
    template = template or "{% for m in messages %}{{ m.content }} {% endfor %}{% if add_generation_prompt %}" + GO + opens + "{% endif %}"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(words)))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END, "chat_template": template}))
    return folder
