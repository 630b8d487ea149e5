#!/usr/bin/env python3
"""Makes the two small encoders beside this file: encoders/bert-st (a folder of sentence-transformers with golden.safetensors) and encoders/bert-cross (a
cross-encoder with scores.json), with what transformers computes from them in float32. Seeds are fixed: a second run gives the same bytes.

usage: make_encoders.py      needs torch and transformers of PyPI, which no test needs
"""
import json
import os
import shutil

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "encoders")
SIZES = dict(vocab_size=128, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=160, pad_token_id=0,
             hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
TEXTS = ["Hi", "The cat sat on the mat, and then it was gone.", "", "rain " * 70]
PAIRS = [("where is the cat", "the cat sat on the mat"), ("rain?", "Hi"), ("a", ""), ("who was gone", "then it was gone " * 8)]
PROMPTS = {"query": "query: ", "document": ""}
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokenizer(folder):
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    tokens = SPECIALS + list(letters) + ["##" + c for c in letters] + list(".,!?:") + "the cat sat on mat and then it was gone rain is who where".split()
    tokens += [f"[unused{i}]" for i in range(SIZES["vocab_size"] - len(tokens))]
    vocab = {t: i for i, t in enumerate(tokens)}
    t = Tokenizer(models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    t.add_special_tokens(SPECIALS)
    t.save(os.path.join(folder, "tokenizer.json"))
    write(folder, "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]",
                                            "unk_token": "[UNK]",
                                            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]})
    return PreTrainedTokenizerFast.from_pretrained(folder)


def write(folder, name, value):
    os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)


def made(cls, folder, seed, **more):
    """A model of random numbers that are exact in bfloat16."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    g = torch.Generator().manual_seed(seed)
    model = cls(BertConfig(**SIZES, **more)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(((1 if "LayerNorm.weight" in name else 0) + 0.3 * torch.randn(p.shape, generator=g)).to(torch.bfloat16).float())
    model.to(torch.bfloat16).save_pretrained(folder)
    return cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval(), tokenizer(folder)


def encoder(folder):
    model, tok = made(BertModel, folder, 1)
    out, vectors = {}, {}
    w = (0.3 * torch.randn(10, 16, generator=torch.Generator().manual_seed(2))).to(torch.bfloat16).float()
    b = torch.full((10,), 0.125)
    for prompt in [None, *PROMPTS]:
        rows = []
        for k, text in enumerate(TEXTS):
            e = tok([PROMPTS.get(prompt, "") + text], return_tensors="pt")
            with torch.no_grad():
                h = model(**{n: e[n] for n in ("input_ids", "token_type_ids", "attention_mask")}).last_hidden_state[0]
            if prompt is None:
                out[f"ids_{k}"], out[f"types_{k}"], out[f"hidden_{k}"] = e["input_ids"][0].numpy(), e["token_type_ids"][0].numpy(), h.numpy()
            skip = len(tok([PROMPTS[prompt]])["input_ids"][0]) - 1 if PROMPTS.get(prompt) else 0
            rows.append(torch.nn.functional.normalize(torch.tanh(w @ h[skip:].mean(0) + b), dim=-1).tolist())
        vectors[prompt or ""] = rows
    save_file({k: np.ascontiguousarray(v) for k, v in out.items()}, os.path.join(folder, "golden.safetensors"))
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Normalize", "Normalize")]
    write(folder, "modules.json", [{"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{t}"} for i, (p, t) in enumerate(modules)])
    write(folder, "1_Pooling/config.json", {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True, "include_prompt": False})
    write(folder, "2_Dense/config.json", {"in_features": 16, "out_features": 10, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"})
    save_torch({"linear.weight": w, "linear.bias": b}, os.path.join(folder, "2_Dense", "model.safetensors"))
    write(folder, "config_sentence_transformers.json", {"prompts": PROMPTS, "default_prompt_name": None})
    write(folder, "sentence_bert_config.json", {"max_seq_length": 100, "do_lower_case": False})
    write(folder, "vectors.json", {"texts": TEXTS, "vectors": vectors})


def cross(folder):
    model, tok = made(BertForSequenceClassification, folder, 3, num_labels=1)
    scores = []
    for query, text in PAIRS:
        e = tok([query], [text], return_tensors="pt")
        with torch.no_grad():
            scores.append(float(torch.sigmoid(model(**{n: e[n] for n in ("input_ids", "token_type_ids", "attention_mask")}).logits[0, 0])))
    write(folder, "scores.json", {"pairs": PAIRS, "scores": scores})


if __name__ == "__main__":
    encoder(os.path.join(HERE, "bert-st"))
    cross(os.path.join(HERE, "bert-cross"))
