"""Well-known checkpoints by their dimensions, for plans: config.json with true widths and few layers, and the tensors that such a file has.

A row is NAME, the members of config.json, how its matrices are stored, and its layers' tensors. Nothing but facts: there are no weights, the file of
a checkpoint is a header with a hole behind it."""
import json
import os

# ---- storage: what stands for a matrix [out, in] ------------------------------------------------------------------------


def affine(bits, group=64, dtype="BF16"):
    def put(path, lead, out, width):
        return {f"{path}.weight": ("U32", [*lead, out, width * bits // 32]), f"{path}.scales": (dtype, [*lead, out, width // group]),
                f"{path}.biases": (dtype, [*lead, out, width // group])}
    put.format = {"group_size": group, "bits": bits}
    return put


def block_format(mode, bits, group):
    def put(path, lead, out, width):
        return {f"{path}.weight": ("U32", [*lead, out, width * bits // 32]), f"{path}.scales": ("U8", [*lead, out, width // group])}
    put.format = {"group_size": group, "bits": bits, "mode": mode}
    return put


def plain(dtype):
    def put(path, lead, out, width):
        return {f"{path}.weight": (dtype, [*lead, out, width])}
    put.format = None
    return put


Q4, Q8, BF16, F16, MXFP4, MXFP8, NVFP4 = affine(4), affine(8), plain("BF16"), plain("F16"), block_format("mxfp4", 4, 32), block_format("mxfp8", 8, 32), block_format("nvfp4", 4, 16)


class Tensors:
    """The tensors of a checkpoint as they are named, and the formats of those that differ from the usual one."""

    def __init__(self, usual):
        self.all, self.usual, self.others = {}, usual, {}

    def matrix(self, path, out, width, bias=False, store=None, lead=()):
        put = store or self.usual
        self.all.update(put(path, lead, out, width))
        if put is not self.usual and put.format:
            self.others[path] = put.format
        if bias:
            self.all[f"{path}.bias"] = ("BF16", [*lead, out])

    def vector(self, name, n):
        self.all[name] = ("BF16", [n])


# ---- layers ---------------------------------------------------------------------------------------------------------------


def attention(t, at, c, bias=(), norms=0, fused=False, gate=1, sinks=False):
    """bias: which of q, k, v, o have one; norms: elements of those of queries and keys; gate: how wide the queries' product is beside them."""
    h, d, q, kv = c["hidden_size"], head_dim(c), c["num_attention_heads"], c.get("num_key_value_heads", c["num_attention_heads"])
    if fused:
        t.matrix(f"{at}.self_attn.qkv_proj", (q + 2 * kv) * d, h)
    else:
        t.matrix(f"{at}.self_attn.q_proj", gate * q * d, h, "q" in bias)
        t.matrix(f"{at}.self_attn.k_proj", kv * d, h, "k" in bias)
        t.matrix(f"{at}.self_attn.v_proj", kv * d, h, "v" in bias)
    t.matrix(f"{at}.self_attn.o_proj", h, q * d, "o" in bias)
    if norms:
        t.vector(f"{at}.self_attn.q_norm.weight", norms if norms > 0 else q * d)
        t.vector(f"{at}.self_attn.k_norm.weight", norms if norms > 0 else kv * d)
    if sinks:
        t.vector(f"{at}.self_attn.sinks", q)


def latent(t, at, c):
    h, q, rank, nope, rope, v = (c[k] for k in ("hidden_size", "num_attention_heads", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    if c["q_lora_rank"]:
        t.matrix(f"{at}.self_attn.q_a_proj", c["q_lora_rank"], h)
        t.vector(f"{at}.self_attn.q_a_layernorm.weight", c["q_lora_rank"])
        t.matrix(f"{at}.self_attn.q_b_proj", q * (nope + rope), c["q_lora_rank"])
    else:
        t.matrix(f"{at}.self_attn.q_proj", q * (nope + rope), h)
    t.matrix(f"{at}.self_attn.kv_a_proj_with_mqa", rank + rope, h)
    t.vector(f"{at}.self_attn.kv_a_layernorm.weight", rank)
    t.matrix(f"{at}.self_attn.kv_b_proj", q * (nope + v), rank)
    t.matrix(f"{at}.self_attn.o_proj", h, q * v)


def delta(t, at, c):
    h, k, v = c["hidden_size"], c["linear_num_key_heads"] * c["linear_key_head_dim"], c["linear_num_value_heads"] * c["linear_value_head_dim"]
    n = c["linear_num_value_heads"]
    t.matrix(f"{at}.linear_attn.in_proj_qkvz", 2 * k + 2 * v, h)
    t.matrix(f"{at}.linear_attn.in_proj_ba", 2 * n, h)
    t.matrix(f"{at}.linear_attn.out_proj", h, v)
    t.all[f"{at}.linear_attn.conv1d.weight"] = ("BF16", [2 * k + v, 4, 1])
    t.vector(f"{at}.linear_attn.A_log", n)
    t.vector(f"{at}.linear_attn.dt_bias", n)
    t.vector(f"{at}.linear_attn.norm.weight", c["linear_value_head_dim"])


def dense(t, at, h, inner, name="mlp", fused=False):
    if fused:
        t.matrix(f"{at}.{name}.gate_up_proj", 2 * inner, h)
    else:
        t.matrix(f"{at}.{name}.gate_proj", inner, h)
        t.matrix(f"{at}.{name}.up_proj", inner, h)
    t.matrix(f"{at}.{name}.down_proj", h, inner)


def experts(t, at, c, n, inner, module="mlp", router="gate", stack="switch_mlp", store=None, bias=False, router_store=None, correction=None, shared=0, switch=False):
    h = c["hidden_size"]
    t.matrix(f"{at}.{module}.{router}", n, h, bias, router_store)
    if correction:
        t.vector(f"{at}.{module}.{correction}", n)
    for name, out, width in (("gate_proj", inner, h), ("up_proj", inner, h), ("down_proj", h, inner)):
        t.matrix(f"{at}.{module}.{stack}.{name}", out, width, bias, store, (n,))
    if shared:
        dense(t, at, h, shared, f"{module}.shared_expert" + ("" if switch else "s"))
    if switch:
        t.matrix(f"{at}.{module}.shared_expert_gate", 1, h)


def norms(t, at, h, *names):
    for name in names:
        t.vector(f"{at}.{name}.weight", h)


TWO = ("input_layernorm", "post_attention_layernorm")
FOUR = (*TWO, "pre_feedforward_layernorm", "post_feedforward_layernorm")


def head_dim(c):
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


def ends(t, c, prefix="model"):
    t.matrix(f"{prefix}.embed_tokens", c["vocab_size"], c["hidden_size"])
    t.vector(f"{prefix}.norm.weight", c["hidden_size"])
    if not c.get("tie_word_embeddings"):
        t.matrix("lm_head", c["vocab_size"], c["hidden_size"])


def layered(layer, names=TWO):
    """A whole model of layers that are all made by one function of (tensors, path, config, number)."""
    def build(t, c):
        ends(t, c)
        for i in range(c["num_hidden_layers"]):
            at = f"model.layers.{i}"
            norms(t, at, c["hidden_size"], *names)
            layer(t, at, c, i)
    return build


# ---- families -------------------------------------------------------------------------------------------------------------


def usual(bias=(), head_norms=0, names=TWO, fused=False):
    def layer(t, at, c, i):
        attention(t, at, c, bias, head_norms, fused)
        dense(t, at, c["hidden_size"], c["intermediate_size"], fused=fused)
    return layered(layer, names)


def with_experts(bias=(), head_norms=0, n="num_experts", inner="moe_intermediate_size", first=0, **more):
    def layer(t, at, c, i):
        attention(t, at, c, bias, head_norms)
        if i < c.get("first_k_dense_replace", 0):
            dense(t, at, c["hidden_size"], c["intermediate_size"])
        else:
            experts(t, at, c, c[n], c[inner], **more)
    return layered(layer)


def latent_experts(correction):
    def layer(t, at, c, i):
        latent(t, at, c)
        if i < c["first_k_dense_replace"]:
            dense(t, at, c["hidden_size"], c["intermediate_size"])
        else:
            experts(t, at, c, c["n_routed_experts"], c["moe_intermediate_size"], router_store=BF16, correction=correction,
                    shared=c["n_shared_experts"] * c["moe_intermediate_size"])
    return layered(layer)


def gpt_oss(t, c):
    def layer(t, at, c, i):
        attention(t, at, c, "qkvo", sinks=True)
        experts(t, at, c, c["num_local_experts"], c["intermediate_size"], router="router", stack="experts", store=MXFP4, bias=True)
    layered(layer)(t, c)


def qwen3_next(t, c):
    def layer(t, at, c, i):
        if i % 4 == 3:
            attention(t, at, c, norms=head_dim(c), gate=2)
        else:
            delta(t, at, c)
        experts(t, at, c, c["num_experts"], c["moe_intermediate_size"], shared=c["shared_expert_intermediate_size"], switch=True)
    layered(layer)(t, c)


def layer_norms(build, names):
    """The same with norms that have a bias."""
    def more(t, c):
        build(t, c)
        for name in [n for n in t.all if n.endswith("norm.weight") or n.endswith("layernorm.weight")]:
            t.all[name.replace(".weight", ".bias")] = t.all[name]
    return more


def phi(t, c):
    h = c["hidden_size"]
    t.matrix("model.embed_tokens", c["vocab_size"], h)
    t.matrix("lm_head", c["vocab_size"], h, True)
    for name in ("model.final_layernorm", *(f"model.layers.{i}.input_layernorm" for i in range(c["num_hidden_layers"]))):
        t.vector(f"{name}.weight", h)
        t.vector(f"{name}.bias", h)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}"
        for name in "qkv":
            t.matrix(f"{at}.self_attn.{name}_proj", h, h, True)
        t.matrix(f"{at}.self_attn.dense", h, h, True)
        t.matrix(f"{at}.mlp.fc1", c["intermediate_size"], h, True)
        t.matrix(f"{at}.mlp.fc2", h, c["intermediate_size"], True)


def config(kind, hidden, inner, heads, kv, d, vocab, layers=2, context=32768, **more):
    return {"model_type": kind, "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": d,
            "vocab_size": vocab, "num_hidden_layers": layers, "max_position_embeddings": context, **more}


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
LLAMA_8B = config("llama", 4096, 14336, 32, 8, 128, 128256, rope_theta=5e5, rope_scaling=LLAMA3)
TIED = {"tie_word_embeddings": True}
GEMMA3 = {"sliding_window": 1024, "sliding_window_pattern": 6, "query_pre_attn_scalar": 256, **TIED}
MLA = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "norm_topk_prob": True, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "first_k_dense_replace": 1}
V3 = {**MLA, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "v_head_dim": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048}
NEXT = {"linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_num_value_heads": 32, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "partial_rotary_factor": 0.25,
        "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "norm_topk_prob": True, "full_attention_interval": 4}
MOE = {"norm_topk_prob": True, "num_experts_per_tok": 8, "num_experts": 128}
OSS = {"num_experts_per_tok": 4, "sliding_window": 128, "rope_theta": 150000.0}
GLM_AIR = {"n_routed_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1408, "n_shared_experts": 1, "first_k_dense_replace": 1, "partial_rotary_factor": 0.5, "n_group": 1, "topk_group": 1,
           "norm_topk_prob": True}

# NAME, config, storage of the matrices, what builds the tensors
CHECKPOINTS = [
    ("Llama-3.2-1B-4bit", config("llama", 2048, 8192, 32, 8, 64, 128256, rope_scaling=LLAMA3, **TIED), Q4, usual()),
    ("Llama-3.2-1B-f16", config("llama", 2048, 8192, 32, 8, 64, 128256, rope_scaling=LLAMA3, **TIED), F16, usual()),
    ("Llama-3.2-3B-4bit", config("llama", 3072, 8192, 24, 8, 128, 128256, rope_scaling=LLAMA3, **TIED), Q4, usual()),
    ("Llama-3.1-8B-4bit", LLAMA_8B, Q4, usual()),
    ("Llama-3.1-8B-8bit", LLAMA_8B, Q8, usual()),
    ("Llama-3.1-8B-3bit", LLAMA_8B, affine(3), usual()),
    ("Llama-3.1-8B-6bit", LLAMA_8B, affine(6), usual()),
    ("Llama-3.1-8B-bf16", LLAMA_8B, BF16, usual()),
    ("Llama-3.1-8B-mxfp4", LLAMA_8B, MXFP4, usual()),
    ("Llama-3.3-70B-4bit", config("llama", 8192, 28672, 64, 8, 128, 128256, rope_scaling=LLAMA3), Q4, usual()),
    ("TinyLlama-1.1B-4bit", config("llama", 2048, 5632, 32, 4, 64, 32000), Q4, usual()),
    ("SmolLM2-135M-bf16", config("llama", 576, 1536, 9, 3, 64, 49152, **TIED), BF16, usual()),
    ("Falcon3-7B-4bit", config("llama", 3072, 23040, 12, 4, 256, 131072), Q4, usual()),
    ("Mistral-7B-v0.3-4bit", config("mistral", 4096, 14336, 32, 8, 128, 32768, sliding_window=None), Q4, usual()),
    ("Mistral-Small-24B-4bit", config("mistral", 5120, 32768, 32, 8, 128, 131072, sliding_window=None), Q4, usual()),
    ("Mixtral-8x7B-4bit", config("mixtral", 4096, 14336, 32, 8, 128, 32000, num_local_experts=8, num_experts_per_tok=2), Q4,
     with_experts(n="num_local_experts", inner="intermediate_size", module="block_sparse_moe")),
    ("Qwen2.5-0.5B-4bit", config("qwen2", 896, 4864, 14, 2, 64, 151936, **TIED), Q4, usual("qkv")),
    ("Qwen2.5-7B-4bit", config("qwen2", 3584, 18944, 28, 4, 128, 152064), Q4, usual("qkv")),
    ("Qwen2.5-Coder-32B-4bit", config("qwen2", 5120, 27648, 40, 8, 128, 152064), Q4, usual("qkv")),
    ("Qwen3-0.6B-4bit", config("qwen3", 1024, 3072, 16, 8, 128, 151936, **TIED), Q4, usual(head_norms=128)),
    ("Qwen3-4B-4bit", config("qwen3", 2560, 9728, 32, 8, 128, 151936, **TIED), Q4, usual(head_norms=128)),
    ("Qwen3-8B-4bit", config("qwen3", 4096, 12288, 32, 8, 128, 151936), Q4, usual(head_norms=128)),
    ("Qwen3-32B-4bit", config("qwen3", 5120, 25600, 64, 8, 128, 151936), Q4, usual(head_norms=128)),
    ("Qwen3-30B-A3B-4bit", config("qwen3_moe", 2048, 6144, 32, 4, 128, 151936, moe_intermediate_size=768, **MOE), Q4, with_experts(head_norms=128)),
    ("Qwen3-30B-A3B-8bit", config("qwen3_moe", 2048, 6144, 32, 4, 128, 151936, moe_intermediate_size=768, **MOE), Q8, with_experts(head_norms=128)),
    ("Qwen3-235B-A22B-4bit", config("qwen3_moe", 4096, 12288, 64, 4, 128, 151936, moe_intermediate_size=1536, **MOE), Q4, with_experts(head_norms=128)),
    ("Qwen3-Next-80B-A3B-4bit", config("qwen3_next", 2048, 5120, 16, 2, 256, 151936, layers=4, **NEXT), Q4, qwen3_next),
    ("Gemma-2-9B-4bit", config("gemma2", 3584, 14336, 16, 8, 256, 256000, sliding_window=4096, query_pre_attn_scalar=256, **TIED), Q4, usual(names=FOUR)),
    ("Gemma-3-1B-4bit", config("gemma3_text", 1152, 6912, 4, 1, 256, 262144, layers=6, **GEMMA3), Q4, usual(head_norms=256, names=FOUR)),
    ("Gemma-3-4B-4bit", config("gemma3_text", 2560, 10240, 8, 4, 256, 262208, layers=6, **GEMMA3), Q4, usual(head_norms=256, names=FOUR)),
    ("Gemma-3-27B-4bit", config("gemma3_text", 5376, 21504, 32, 16, 128, 262208, layers=6, **GEMMA3), Q4, usual(head_norms=128, names=FOUR)),
    ("Phi-2-4bit", config("phi", 2560, 10240, 32, 32, 80, 51200, context=2048, partial_rotary_factor=0.4), Q4, phi),
    ("Phi-3-mini-4bit", config("phi3", 3072, 8192, 32, 32, 96, 32064, context=4096, sliding_window=2047), Q4, usual(fused=True)),
    ("Phi-4-4bit", config("phi3", 5120, 17920, 40, 10, 128, 100352, context=16384, sliding_window=None), Q4, usual(fused=True)),
    ("gpt-oss-20b-mxfp4-q8", config("gpt_oss", 2880, 2880, 64, 8, 64, 201088, num_local_experts=32, **OSS), Q8, gpt_oss),
    ("gpt-oss-120b-mxfp4-bf16", config("gpt_oss", 2880, 2880, 64, 8, 64, 201088, num_local_experts=128, **OSS), BF16, gpt_oss),
    ("GLM-4.5-Air-4bit", config("glm4_moe", 4096, 10944, 96, 8, 128, 151552, **GLM_AIR), Q4,
     with_experts("qkv", n="n_routed_experts", router_store=BF16, correction="gate.e_score_correction_bias", shared=1408)),
    ("GLM-4.7-Flash-4bit", config("glm4_moe_lite", 2048, 10240, 20, 20, None, 154880, **MLA, q_lora_rank=768, qk_nope_head_dim=192, v_head_dim=256, n_routed_experts=64, n_shared_experts=1,
                                  num_experts_per_tok=4, moe_intermediate_size=1536), Q4, latent_experts("gate.e_score_correction_bias")),
    ("DeepSeek-V2-Lite-4bit", config("deepseek_v2", 2048, 10944, 16, 16, None, 102400, **{**MLA, "topk_method": "greedy", "scoring_func": "softmax"}, q_lora_rank=None, qk_nope_head_dim=128, v_head_dim=128,
                                     n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1408), Q4, latent_experts(None)),
    ("DeepSeek-V3-4bit", config("deepseek_v3", 7168, 18432, 128, 128, None, 129280, **V3, n_routed_experts=256, n_group=8, topk_group=4), Q4, latent_experts("gate.e_score_correction_bias")),
    ("Kimi-K2-4bit", config("deepseek_v3", 7168, 18432, 64, 64, None, 163840, **V3, n_routed_experts=384, n_group=1, topk_group=1), Q4, latent_experts("gate.e_score_correction_bias")),
    ("OLMo-2-7B-4bit", config("olmo2", 4096, 11008, 32, 32, 128, 100352, context=4096), Q4, usual(head_norms=-1, names=("post_attention_layernorm", "post_feedforward_layernorm"))),
    ("Granite-3.3-8B-4bit", config("granite", 4096, 12800, 32, 8, 128, 49159, attention_multiplier=0.0078125, embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=16.0, **TIED), Q4, usual()),
    ("SmolLM3-3B-4bit", config("smollm3", 2048, 11008, 16, 4, 128, 128256, no_rope_layer_interval=4, **TIED), Q4, usual()),
]

SIZES = {"U32": 4, "BF16": 2, "F16": 2, "U8": 1}


def write(folder, row):
    """The folder of a checkpoint, as mlxcel opens one: config.json, and a file of tensors whose numbers are a hole."""
    name, settings, store, build = row
    t = Tensors(store)
    build(t, settings)
    target = os.path.join(folder, name)
    os.mkdir(target)
    quantization = {**(store.format or {"group_size": 64, "bits": 8}), **t.others}
    with open(os.path.join(target, "config.json"), "w") as f:
        json.dump({**settings, **({"quantization": quantization} if store.format or t.others else {})}, f)
    header, at = {}, 0
    for key, (dtype, shape) in t.all.items():
        n = SIZES[dtype]
        for s in shape:
            n *= s
        header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(target, "model.safetensors"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + at)
    return target
