#!/usr/bin/env python3
"""Writes tests/speculate/heads: tiny models with heads that guess ahead, and what the heads say.

Each folder is a checkpoint as it is published: config.json and model.safetensors. The models are random; the heads have learned a little of them, so that some
guesses come true. golden.safetensors has what the reference computes in float32 from the stored weights:
  prompt_0  int64 [n]
  greedy_0  int64 [m]             the tokens that greedy decoding appends
  first_0   float32 [m, vocab]    the head's logits for each of those, which it guesses when the ones before are known; -inf: it has no such token
  second_0  float32 [m, vocab]    for the one behind that, where the first guess is taken for true

deepseek_v3 and glm4_moe: MtpModel of transformers, loaded from the stored checkpoint; generate(use_mtp=True) must say the greedy tokens. qwen3_5 and qwen3_next, whose
heads transformers drops: the same class over those models' own layers. eagle: a head in the layout of EAGLE-3, by the few lines of class Eagle below, for
eagle-target.

Needs torch, transformers (5.23) and safetensors, which no test needs: the files are kept.  usage: make_heads.py [--only TEXT]
"""
import argparse
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_layers import MtpModel

HERE = pathlib.Path(__file__).parent / "heads"
VOCAB, HIDDEN, PROMPT, NEW, TRAINED = 64, 32, 12, 24, 120
BASE = dict(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
            max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False)
MOE = dict(num_experts=4, n_routed_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
LINEAR = dict(linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=16, linear_value_head_dim=16)
CASES = {
    "deepseek_v3": ("deepseek_v3", dict({**BASE, **MOE, "head_dim": 8, "num_key_value_heads": 2}, first_k_dense_replace=1, n_shared_experts=1, kv_lora_rank=16, q_lora_rank=16, qk_rope_head_dim=8,
                                        qk_nope_head_dim=16, v_head_dim=16, n_group=2, topk_group=1)),
    "glm4_moe": ("glm4_moe", dict(BASE, **MOE, first_k_dense_replace=1, n_shared_experts=1, n_group=1, topk_group=1, use_qk_norm=True)),
    "qwen3_5": ("qwen3_5_text", dict(BASE, **LINEAR, layer_types=["linear_attention", "full_attention"])),
    "qwen3_next": ("qwen3_next", dict({**BASE, **MOE, "moe_intermediate_size": 8}, **LINEAR, shared_expert_intermediate_size=16, layer_types=["linear_attention", "full_attention"])),
    "eagle-target": ("llama", {**BASE, "num_hidden_layers": 7, "intermediate_size": 24}),
}
EAGLE_VOCAB = 40


def scatter(module, spread):
    """Random matrices. Most of what comes next depends on the last token, which a head can learn quickly; the layers have their say, too. Norms stay near one."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            if "embed_tokens" in name:
                p.normal_(0, 1)
            elif p.dim() > 1:
                p.normal_(0, (3.5 if "lm_head" in name else spread) / p.shape[-1] ** 0.5)
            elif "norm" in name:
                p.add_(torch.randn_like(p) * 0.1)


def texts(model, n, length):
    ids = torch.randint(3, VOCAB, (n, 4))
    with torch.no_grad():
        return model.generate(ids, max_new_tokens=length, do_sample=True, temperature=0.7, top_k=0, eos_token_id=None, pad_token_id=0,
                              attention_mask=torch.ones_like(ids))


def states_of(model, ids, which=(-1,)):
    with torch.no_grad():
        out = model(ids, output_hidden_states=True, use_cache=False)
    return [out.hidden_states[i] for i in which], out.logits


class Own:
    """The head of a checkpoint: one layer of the model's kind behind two norms."""

    def __init__(self, model, head):
        self.model, self.head, self.which = model, head, (-1,)

    def rows(self, ids, states):
        """States of all rows: row i has token i and the model's state of the row before."""
        position = torch.arange(1, ids.shape[1] + 1)[None].expand(ids.shape[0], -1)
        return self.head.forward_layer(0, states[0], position, None, input_ids=ids)

    def logits(self, own):
        return self.head._project_to_logits(own)


class Eagle(nn.Module):
    """A head of EAGLE-3: a layer of Llama whose attention reads the normed embedding and the normed state side by side."""

    def __init__(self, model):
        super().__init__()
        c, d = model.config, HIDDEN // 2
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.fc = linear(3 * HIDDEN, HIDDEN)
        self.midlayer = nn.ModuleDict(dict(
            hidden_norm=nn.RMSNorm(HIDDEN, c.rms_norm_eps), input_layernorm=nn.RMSNorm(HIDDEN, c.rms_norm_eps),
            post_attention_layernorm=nn.RMSNorm(HIDDEN, c.rms_norm_eps),
            self_attn=nn.ModuleDict(dict(q_proj=linear(2 * HIDDEN, 2 * d), k_proj=linear(2 * HIDDEN, d), v_proj=linear(2 * HIDDEN, d), o_proj=linear(2 * d, HIDDEN))),
            mlp=nn.ModuleDict(dict(gate_proj=linear(HIDDEN, 48), up_proj=linear(HIDDEN, 48), down_proj=linear(48, HIDDEN)))))
        self.norm = nn.RMSNorm(HIDDEN, c.rms_norm_eps)
        self.lm_head = linear(HIDDEN, EAGLE_VOCAB)
        self.model = [model]  # no part of this module
        n = c.num_hidden_layers
        self.which = (2, n // 2, n - 3)  # what goes into these layers
        self.register_buffer("d2t", torch.zeros(EAGLE_VOCAB, dtype=torch.long))

    def attend(self, x):
        a, (b, n, _), d = self.midlayer["self_attn"], x.shape, HIDDEN // 2
        rotary = self.model[0].model.rotary_emb
        cos, sin = rotary(x, torch.arange(n)[None])
        turn = lambda t: t * cos[:, None] + torch.cat([-t[..., d // 2:], t[..., :d // 2]], -1) * sin[:, None]
        q, k, v = (a[m](x).view(b, n, -1, d).transpose(1, 2) for m in ("q_proj", "k_proj", "v_proj"))
        q, k = turn(q), turn(k).expand(-1, 2, -1, -1)
        y = nn.functional.scaled_dot_product_attention(q, k, v.expand(-1, 2, -1, -1), is_causal=True)
        return a["o_proj"](y.transpose(1, 2).reshape(b, n, -1))

    def layer(self, ids, x):
        m = self.midlayer
        e = m["input_layernorm"](self.model[0].model.embed_tokens(ids))
        x = x + self.attend(torch.cat([e, m["hidden_norm"](x)], -1))
        y, f = m["post_attention_layernorm"](x), m["mlp"]
        return x + f["down_proj"](nn.functional.silu(f["gate_proj"](y)) * f["up_proj"](y))

    def rows(self, ids, states):
        return self.layer(ids, self.fc(torch.cat(states, -1)))

    def logits(self, own):
        own_logits = self.lm_head(self.norm(own))
        out = torch.full((*own.shape[:-1], VOCAB), float("-inf"))
        out[..., torch.arange(EAGLE_VOCAB) + self.d2t] = own_logits
        return out


def learn(model, head, steps):
    """The head learns the tokens that the model itself would say."""
    params = [p for n, p in (head if isinstance(head, Eagle) else head.head).named_parameters() if not n.startswith(("embed_tokens", "shared_head", "model"))]
    for p in model.parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.Adam(params, 1e-2)
    data = texts(model, 24, 24)
    states, logits = states_of(model, data, head.which)
    want = logits.argmax(-1)
    for step in range(steps):
        pick = torch.randint(0, len(data), (12,))
        out = head.logits(head.rows(data[pick, 1:], [s[pick, :-1] for s in states]))
        labels = want[pick, 1:]
        ok = torch.isfinite(out.gather(-1, labels[..., None]))[..., 0]
        loss = nn.functional.cross_entropy(out[ok], labels[ok])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def reference(model, head, ids):
    """The head's logits for the first and the second token behind every place of the answer."""
    states, _ = states_of(model, ids, head.which)
    first, second = [], []
    with torch.no_grad():
        for n in range(PROMPT, PROMPT + NEW):
            rows = [s[:, :n - 1] for s in states]
            own = head.rows(ids[:, 1:n], rows)
            first.append(head.logits(own[:, -1:])[0, 0])
            guess = first[-1].argmax()[None, None]
            second.append(second_of(head, torch.cat([ids[:, 1:n], guess], 1), rows, own))
    return torch.stack(first), torch.stack(second)


def second_of(head, ids, rows, own):
    """Rows of the model's tokens keep its states; the row behind them has the head's own."""
    if isinstance(head, Eagle):
        x = torch.cat([head.fc(torch.cat(rows, -1)), own[:, -1:]], 1)
        return head.logits(head.layer(ids, x)[:, -1:])[0, 0]
    return head.logits(head.rows(ids, [torch.cat([rows[0], own[:, -1:]], 1)])[:, -1:])[0, 0]


def published(state, n_layers, beside):
    """Names of a head in a checkpoint; experts lie one by one."""
    out = {}
    for name, t in state.items():
        if not name.startswith("layers.0."):
            continue
        name = name[len("layers.0."):]
        if beside:
            fixed = {"enorm.weight": "mtp.pre_fc_norm_embedding.weight", "hnorm.weight": "mtp.pre_fc_norm_hidden.weight", "eh_proj.weight": "mtp.fc.weight",
                     "post_norm.weight": "mtp.norm.weight"}
            name = fixed.get(name) or name.replace("mtp_block.", "mtp.layers.0.")
        else:
            fixed = {"post_norm.weight": "shared_head.norm.weight"}
            name = f"model.layers.{n_layers}." + (fixed.get(name) or name.replace("mtp_block.", ""))
        if name.endswith("experts.gate_up_proj"):
            for i, e in enumerate(t):
                gate, up = e.chunk(2)
                out[name.replace("gate_up_proj", f"{i}.gate_proj.weight")] = gate.clone()
                out[name.replace("gate_up_proj", f"{i}.up_proj.weight")] = up.clone()
        elif name.endswith("experts.down_proj"):
            for i, e in enumerate(t):
                out[name.replace("down_proj", f"{i}.down_proj.weight")] = e.clone()
        else:
            out[name] = t
    return out


def own_head(model, n=1):
    model.config.num_mtp_layers = n
    if getattr(model.config, "layer_types", None):
        model.config.mtp_layer_types = ["full_attention"] * n
    return MtpModel(model, n)


def write_golden(folder, model, head):
    ids = torch.randint(3, VOCAB, (1, PROMPT))
    greedy = dict(max_new_tokens=NEW + 1, do_sample=False, eos_token_id=None, pad_token_id=0, attention_mask=torch.ones_like(ids))
    tokens = model.generate(ids, **greedy)[:, :PROMPT + NEW]
    first, second = reference(model, head, tokens)
    hits = (first.argmax(-1) == tokens[0, PROMPT:]).sum().item()
    save_file({"prompt_0": tokens[0, :PROMPT].contiguous(), "greedy_0": tokens[0, PROMPT:].contiguous(), "first_0": first.contiguous(),
               "second_0": second.contiguous()}, folder / "golden.safetensors")
    return ids, greedy, tokens, hits


def bf16(state):
    return {k: v.detach().to(torch.bfloat16 if v.is_floating_point() else v.dtype).contiguous() for k, v in state.items()}


def make_own(case):
    model_type, keys = CASES[case]
    folder = HERE / case
    config = AutoConfig.for_model(model_type, **keys)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    scatter(model, 0.7)
    head = own_head(model)
    scatter(head.layers, 0.7)
    loss = learn(model, Own(model, head), TRAINED)
    shutil.rmtree(folder, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    beside = case.startswith("qwen")
    state = load_file(folder / "model.safetensors")
    state.update(bf16(published(head.state_dict(), config.num_hidden_layers, beside)))
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    (folder / "generation_config.json").unlink(missing_ok=True)
    if not beside:
        type(model)._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{config.num_hidden_layers}\..*"]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    if beside:
        again = own_head(model)
        again.load_state_dict({k: v.to(torch.bfloat16).float() for k, v in head.state_dict().items()})
        head = again.eval()
    else:
        head = MtpModel.from_pretrained(model).eval()
    ids, greedy, tokens, hits = write_golden(folder, model, Own(model, head))
    if not beside:
        assert torch.equal(model.generate(ids, use_mtp=True, **greedy)[:, :PROMPT + NEW], tokens), case
    return loss, hits


def make_eagle(case):
    model_type, keys = CASES[case]
    folder, target = HERE / "eagle", HERE / case
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **keys), attn_implementation="eager").eval()
    scatter(model, 0.7)
    shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(target)
    (target / "generation_config.json").unlink(missing_ok=True)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32, attn_implementation="eager").eval()
    head = Eagle(model)
    scatter(head, 0.7)
    used = torch.zeros(VOCAB)
    used.index_add_(0, texts(model, 24, 24).flatten(), torch.ones(24 * 28))
    kept = used.topk(EAGLE_VOCAB).indices.sort().values
    head.d2t.copy_(kept - torch.arange(EAGLE_VOCAB))
    loss = learn(model, head, TRAINED)
    state = bf16(head.state_dict())
    state["t2d"] = torch.zeros(VOCAB, dtype=torch.bool)
    state["t2d"][kept] = True
    folder.mkdir(parents=True)
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    c = dict(model.config.to_dict(), architectures=["LlamaForCausalLMEagle3"], num_hidden_layers=1, intermediate_size=48, draft_vocab_size=EAGLE_VOCAB)
    keep = ("architectures", "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
            "max_position_embeddings", "rms_norm_eps", "rope_parameters", "hidden_act", "vocab_size", "draft_vocab_size", "tie_word_embeddings")
    (folder / "config.json").write_text(json.dumps({k: c[k] for k in keep}, indent=2) + "\n")
    head.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in state.items() if k != "t2d"})
    *_, hits = write_golden(folder, model, head)
    return loss, hits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for case in CASES:
        if args.only not in case:
            continue
        torch.manual_seed(31)
        loss, hits = (make_eagle if case.startswith("eagle") else make_own)(case)
        sizes = sum(f.stat().st_size for f in (HERE / case).iterdir())
        print(f"{case}: loss {loss:.2f}, {hits} of {NEW} first guesses are true, {sizes} bytes", flush=True)


if __name__ == "__main__":
    main()
