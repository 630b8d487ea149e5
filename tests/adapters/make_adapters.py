#!/usr/bin/env python3
"""Writes tests/adapters/fixtures: small models with random weights, adapters of PEFT and mlx-lm for them, and the logits that those packages compute.

Needs torch, transformers, peft, mlx and mlx-lm, which no test needs: what they made is kept.

usage: make_adapters.py
"""
import json
import pathlib
import shutil

import mlx.core as mx
import mlx.nn as nn
import mlx.utils
import numpy as np
import torch
from mlx_lm.tuner.lora import LoRAEmbedding
from mlx_lm.tuner.utils import linear_to_lora_layers
from mlx_lm.utils import load_model, save_config
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, Phi3Config, Qwen2Config

HERE = pathlib.Path(__file__).parent / "fixtures"
IDS = [3, 17, 60, 5, 5, 44, 91, 12, 30, 8]
SHAPE = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=96,
             max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
BASES = {"llama": LlamaConfig(**SHAPE, tie_word_embeddings=False), "qwen2": Qwen2Config(**SHAPE, tie_word_embeddings=True),
         "phi3": Phi3Config(**SHAPE, tie_word_embeddings=False)}
PEFT = {
    "peft-plain": ("llama", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])),
    "peft-all": ("llama", dict(r=4, lora_alpha=6, use_rslora=True, target_modules=[*LINEAR, "lm_head", "embed_tokens"], rank_pattern={"down_proj": 2},
                               alpha_pattern={"o_proj": 3})),
    "peft-dora": ("qwen2", dict(r=3, lora_alpha=6, use_dora=True, target_modules=LINEAR)),
    "peft-fused": ("phi3", dict(r=4, lora_alpha=8, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])),
    "peft-tied": ("qwen2", dict(r=4, lora_alpha=8, target_modules=["embed_tokens", "k_proj"])),
}
MLX = {"mlx-lora": ("llama-q4", False, None), "mlx-dora": ("llama-q4", True, None), "mlx-embed": ("qwen2", False, "embed")}


def write_case(name, base, logits):
    (HERE / name / "case.json").write_text(json.dumps({"base": base, "ids": IDS}) + "\n")
    (HERE / name / "logits.f32").write_bytes(np.asarray(logits, dtype="<f4").tobytes())
    print(f"{name}: sd {np.std(logits):.3g}")


def make_bases():
    for name, config in BASES.items():
        torch.manual_seed(len(name))
        model = AutoModelForCausalLM.from_config(config)
        for p in model.parameters():
            p.data = (torch.randn_like(p) * (0.5 if p.dim() == 1 else 0.15)).to(torch.bfloat16).float()
        model.to(torch.bfloat16).save_pretrained(HERE / name)
        (HERE / name / "generation_config.json").unlink(missing_ok=True)
        saved = json.loads((HERE / name / "config.json").read_text())
        saved["rope_theta"] = saved["rope_parameters"]["rope_theta"]  # where mlx-lm looks for it
        (HERE / name / "config.json").write_text(json.dumps(saved, indent=1) + "\n")
    model, config = load_model(HERE / "llama")
    nn.quantize(model, group_size=32, bits=4)
    (HERE / "llama-q4").mkdir()
    mx.save_safetensors(str(HERE / "llama-q4" / "model.safetensors"), dict(mlx.utils.tree_flatten(model.parameters())))
    config["quantization"] = {"group_size": 32, "bits": 4}
    save_config(config, HERE / "llama-q4" / "config.json")


def make_peft(name, base, settings):
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(HERE / base, dtype=torch.float32)
    plain = model(torch.tensor([IDS])).logits[0].detach().numpy()
    model = get_peft_model(model, LoraConfig(**settings)).eval()
    for key, p in model.named_parameters():
        if "magnitude" in key:
            p.data = p.data * (1 + 0.2 * torch.rand_like(p))
        elif "lora_" in key:
            p.data = torch.randn_like(p) * 0.2
    with torch.no_grad():
        logits = model(torch.tensor([IDS])).logits[0].numpy()
    assert np.abs(logits - plain).max() > 0.1
    model.save_pretrained(HERE / name, save_embedding_layers=False)
    (HERE / name / "README.md").unlink(missing_ok=True)
    config = json.loads((HERE / name / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = base
    (HERE / name / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    write_case(name, base, logits)


def make_mlx(name, base, is_dora, also):
    mx.random.seed(2)
    model, _ = load_model(HERE / base)
    model.set_dtype(mx.float32)
    parameters = {"rank": 4, "scale": 2.5, "dropout": 0.0, "keys": [f"{'mlp' if 'gate' in k or 'up' in k or 'down' in k else 'self_attn'}.{k}" for k in LINEAR]}
    model.freeze()
    linear_to_lora_layers(model, 2, parameters, use_dora=is_dora)
    if also:
        model.model.embed_tokens = LoRAEmbedding.from_base(model.model.embed_tokens, r=4, scale=2.5)
    changed = [(k, mx.random.normal(v.shape) * 0.2 if "lora_" in k else v * (1 + 0.2 * mx.random.uniform(shape=v.shape)))
               for k, v in mlx.utils.tree_flatten(model.trainable_parameters())]
    model.load_weights(changed, strict=False)
    (HERE / name).mkdir()
    mx.save_safetensors(str(HERE / name / "adapters.safetensors"), dict(changed))
    config = {"fine_tune_type": "dora" if is_dora else "lora", "num_layers": 2, "lora_parameters": parameters}
    (HERE / name / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    model.eval()
    write_case(name, base, np.array(model(mx.array([IDS]))[0]))


def main():
    mx.set_default_device(mx.cpu)
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    make_bases()
    for name, (base, settings) in PEFT.items():
        make_peft(name, base, settings)
    for name, (base, is_dora, also) in MLX.items():
        make_mlx(name, base, is_dora, also)


if __name__ == "__main__":
    main()
