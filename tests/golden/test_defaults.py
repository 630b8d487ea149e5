#!/usr/bin/env python3
"""Keys that config.json leaves out: they must mean what the family's class in transformers takes for them.

For every model_type that is recognised, the class's own defaults are written out as a whole config.json; the configs of the golden
fixtures are taken as they are. Then each key is left out in turn, set to null in turn where the class takes null, each switch is turned
round, and all keys are left out together. spec_text must make the same of the thinner file as of what the class makes of it, written
out whole. Every key that we read is found that way, for no list of them is needed: one that is not read makes no difference.

At the end a fault is seeded (the class's answer is changed in one key) and must be found in every family.

usage: test_defaults.py SPEC_TEXT [DATA]
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
from transformers import PreTrainedConfig  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

NO_CLASS = {"bailing_moe", "bailing_moe_v2", "deepseek", "exaone", "hunyuan", "internlm2", "internlm3", "iquestcoder", "joyai_llm_flash", "mimo", "minicpm",
            "new", "rwkv7", "xverse"}  # types that transformers does not have
ALSO_KNOWN = {"kimi_k2": "deepseek_v3"}  # types whose class has another name
NOISE = set(PreTrainedConfig().to_dict()) - {"tie_word_embeddings"} | {"bos_token_id", "eos_token_id", "use_cache"}
# The class knows one of them, and files have the others as well: left out together.
SYNONYMS = [{"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}]
# Lists that the class makes of other keys, which would hide a switch that is turned round.
DERIVED = ("layer_types", "mlp_layer_types", "no_rope_layers", "moe_layers", "layers_block_type")
WIDTHS = ("hidden_size", "n_embd", "d_model", "dim")
WINDOWS = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 3}
# Where we do otherwise on purpose.
EXCEPTIONS = {
    # The class's own length replaces the one inside the scaling; files have both or that one.
    "fixture phi3-longrope: without original_max_position_embeddings",
    # Published files say it in attn_config alone, which the class no longer reads.
    "fixture dbrx: without rope_parameters",
    "fixture dbrx: rope_parameters null",
    # So few layers that the class makes its last one full; no published file has.
    *(f"fixture olmo_hybrid-b: {what}" for what in ("attention_bias True", "without layer_types", "layer_types null", "linear_allow_neg_eigval True",
                                                    "linear_allow_neg_eigval False", "tie_word_embeddings True")),
}


def written_out(cls, values):
    """What the class makes of a config.json, as a config.json that leaves nothing out; None where it takes none of it."""
    try:
        whole = json.loads(json.dumps(cls.from_dict(json.loads(json.dumps(values))).to_dict()))
    except Exception:
        return None
    return dict(whole, model_type=values["model_type"])


class Cases:
    """Pairs of configs that must mean the same; all are resolved by one run of spec_text."""

    def __init__(self):
        self.pairs, self.lines = [], {}

    def line(self, config):
        return self.lines.setdefault(json.dumps(config), len(self.lines))

    def add(self, what, cls, thin):
        whole = written_out(cls, thin)
        if whole is not None and what not in EXCEPTIONS:
            self.pairs.append((what, self.line(thin), self.line(whole)))
        return whole

    def vary(self, name, cls, config):
        """Every key of a config left out, set to null, turned round."""
        for key in [k for k in config if k not in NOISE]:
            group = next((s for s in SYNONYMS if key in s), {key})
            self.add(f"{name}: without {key}", cls, {k: v for k, v in config.items() if k not in group})
            self.add(f"{name}: {key} null", cls, dict(config, **{key: None}))
            if isinstance(config[key], bool):
                bare = {k: v for k, v in config.items() if k not in DERIVED}
                self.add(f"{name}: {key} {not config[key]}", cls, dict(bare, **{key: not config[key]}))
        if "use_sliding_window" in config:
            bare = {k: v for k, v in config.items() if k not in DERIVED}
            self.add(f"{name}: with windows", cls, dict(bare, **WINDOWS))

    def resolve(self, program):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
            f.write("\n".join(self.lines) + "\n")
            f.flush()
            got = subprocess.run([program, f.name], capture_output=True, text=True, check=True).stdout.splitlines()
        assert len(got) == len(self.lines), (len(got), len(self.lines))
        return got


def first_difference(a, b):
    if a.startswith("error"):
        return a
    for x, y in zip(a.split(" | "), b.split(" | ")):
        xs, ys = x.split(), y.split()
        for i, (p, q) in enumerate(zip(xs, ys)):
            if p != q:
                return f"{' '.join(xs[max(0, i - 1):i + 1])}, the class has {q}"
    return "another number of parts"


def fixtures(data):
    """Configs of the golden fixtures, one of those with the same keys."""
    seen = set()
    for path in sorted(glob.glob(os.path.join(data, "golden*", "*", "config.json"))):
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        config = config.get("text_config", config)
        keys = (config.get("model_type"), *sorted(k for k in config if k not in NOISE), str(config.get("rope_parameters", {}))[:40])
        if keys not in seen:
            yield os.path.basename(os.path.dirname(path)), config
        seen.add(keys)


def class_of(family):
    """Of the text part, where the type is of a larger model."""
    family = ALSO_KNOWN.get(family, family)
    if family not in CONFIG_MAPPING:
        return None
    cls = CONFIG_MAPPING[family]
    return type(cls().text_config) if "text_config" in cls.sub_configs else cls


def collect(families, data):
    """The cases, and for every family a case with a seeded fault: its width is another in the class's answer."""
    cases, faults = Cases(), []
    for family in families:
        cls = class_of(family)
        if not cls:
            continue
        whole = cases.add(f"{family}: nothing but its type", cls, {"model_type": family})
        cases.vary(family, cls, whole)
        width = next(k for k in WIDTHS if k in whole)
        wrong = dict(whole, **{width: 8 * whole[width]})
        faults.append((family, cases.line({"model_type": family}), cases.line(wrong)))
    for name, config in fixtures(data):
        cls = class_of(config.get("model_type"))
        if cls and config["model_type"] in families:
            cases.add(f"fixture {name}: as it is", cls, config)
            cases.vary(f"fixture {name}", cls, config)
    return cases, faults


def main():
    spec_text, data = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    families = subprocess.run([spec_text, "--types"], capture_output=True, text=True, check=True).stdout.split()
    cases, faults = collect(families, data)
    got = cases.resolve(spec_text)
    problems = [f"{what}: {first_difference(got[thin], got[whole])}" for what, thin, whole in cases.pairs
                if not got[whole].startswith("error") and got[thin] != got[whole]]
    problems += [f"{family}: a seeded fault was not found" for family, thin, wrong in faults
                 if got[thin] == got[wrong] and not got[thin].startswith("error")]
    without = {f for f in families if not class_of(f)}
    if without != NO_CLASS:
        problems.append(f"types without a class are {sorted(without)}, expected {sorted(NO_CLASS)}")
    for problem in problems:
        print("FAILED", problem)
    print(f"{len(cases.pairs) + len(faults) + 1 - len(problems)} passed, {len(problems)} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
