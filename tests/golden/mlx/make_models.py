#!/usr/bin/env python3
"""Make the tiny checkpoints beside this script: types that transformers has no class for, computed by mlx-lm in float32.

Each folder is a checkpoint (config.json, model.safetensors in bf16) with golden.safetensors, as in ../quant/make_models.py. Experts of `deepseek`
lie in tensors of their own, as its authors published them; those of the others are stacked, as mlx-lm writes them.

Needs mlx-lm 0.32 (on Linux: pip install "mlx[cpu]" mlx-lm).
usage: make_models.py [NAME...]
"""
import importlib
import json
import os
import sys

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

HERE = os.path.dirname(os.path.abspath(__file__))
LENS, STEPS, VOCAB = (1, 7, 21), 8, 96
BASE = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
EXPERTS = dict(moe_intermediate_size=16, num_experts_per_tok=2, first_k_dense_replace=1)
LING = dict(EXPERTS, num_hidden_layers=3, num_experts=8, num_shared_experts=1, norm_topk_prob=True, use_qkv_bias=False)
MODELS = {
    "exaone": dict(BASE, num_layers=2, layer_norm_epsilon=1e-5, activation_function="silu", tie_word_embeddings=True),
    "deepseek": dict(BASE, **EXPERTS, n_routed_experts=6, n_shared_experts=2),
    "mimo": dict(BASE, num_nextn_predict_layers=1),
    "internlm2": dict(BASE, bias=False),
    "internlm3": dict(BASE, qkv_bias=True, head_dim=8),
    "rwkv7": dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=3, head_dim=16, norm_eps=4e-5, a_low_rank_dim=6, v_low_rank_dim=5,
                  gate_low_rank_dim=8, decay_low_rank_dim=7, tie_word_embeddings=False),
    "bailing_moe": dict(BASE, **dict(LING, num_shared_experts=2)),
    "bailing_moe-2": dict(BASE, **LING, use_qk_norm=True, partial_rotary_factor=0.5, moe_router_enable_expert_bias=True, score_function="sigmoid",
                          n_group=4, topk_group=2, routed_scaling_factor=2.5, moe_shared_expert_intermediate_size=24),
}


def weights_of(model, seed):
    rng = np.random.default_rng(seed)
    out = {}
    for name, w in tree_flatten(model.parameters()):
        if "norm" in name or name.split(".")[-2] in ("ln_1", "ln_2", "ln_f"):
            values = 1 + 0.1 * rng.standard_normal(w.shape)
        elif len(w.shape) == 1:
            values = 0.2 * rng.standard_normal(w.shape)
        else:
            scale = 0.5 if "embed" in name or "wte" in name else 1.3 / w.shape[-1] ** 0.5
            values = scale * rng.standard_normal(w.shape)
        out[name] = mx.array(values.astype(np.float32)).astype(mx.bfloat16)
    return out


def published(name, weights):
    """Experts one by one, where the folder is to have them so."""
    if name != "deepseek":
        return weights
    out = {}
    for key, w in weights.items():
        head, _, tail = key.partition(".switch_mlp.")
        if tail:
            out.update({f"{head}.experts.{i}.{tail}": w[i] for i in range(w.shape[0])})
        else:
            out[key] = w
    return out


def golden(model, seed):
    rng = np.random.default_rng(seed)
    out, worst = {}, 1e9
    for k, n in enumerate(LENS):
        ids = rng.integers(3, VOCAB, n)
        out[f"prompt_{k}"] = mx.array(ids, dtype=mx.int64)
        out[f"logits_{k}"] = model(mx.array([ids.tolist()]))[0]
        tokens, greedy, margin = ids.tolist(), [], []
        for _ in range(STEPS):
            last = np.array(model(mx.array([tokens]))[0, -1])
            order = np.argsort(-last)
            greedy.append(int(order[0]))
            margin.append(float(last[order[0]] - last[order[1]]))
            tokens.append(greedy[-1])
        worst = min(worst, *margin)
        out[f"greedy_{k}"] = mx.array(greedy, dtype=mx.int64)
        out[f"margin_{k}"] = mx.array(margin, dtype=mx.float32)
    return out, worst


def make(name, config):
    kind = name.split("-")[0]
    module = importlib.import_module(f"mlx_lm.models.{kind}")
    config = dict(config, model_type=kind)
    model = module.Model(module.ModelArgs.from_dict(config))
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    for seed in range(100, 120):  # until no choice of a token is close
        stored = weights_of(model, seed)
        model.update(tree_unflatten([(k, v.astype(mx.float32)) for k, v in stored.items()]))
        figures, worst = golden(model, seed)
        if worst > 2e-3:
            break
    mx.save_safetensors(os.path.join(folder, "model.safetensors"), published(name, stored), metadata={"format": "pt"})
    mx.save_safetensors(os.path.join(folder, "golden.safetensors"), figures)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1, sort_keys=True)
        f.write("\n")
    print(f"{name}: seed {seed}, margin {worst:.4f}")


if __name__ == "__main__":
    mx.set_default_device(mx.cpu)
    for name in sys.argv[1:] or MODELS:
        make(name, MODELS[name])
