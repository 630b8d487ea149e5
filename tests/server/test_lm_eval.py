#!/usr/bin/env python3
"""lm-eval, unchanged, runs a task of ours through /v1/completions; its log-likelihoods are those of `mlxcel logits`.

usage: test_lm_eval.py PROGRAM DATA      last line: "N passed, N failed, N skipped"; skipped where lm_eval is not installed
"""
import importlib.util
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

from harness import Server, check, finish, skip

TASK = """task: little_stories
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{start}}}}"
doc_to_choice: "{{{{ends}}}}"
doc_to_target: "{{{{right}}}}"
metric_list:
  - metric: acc
"""
STORIES = [{"start": "Once upon a time, there was a little", "ends": ["girl", "boy named Tim", "xylophone"], "right": 0},
           {"start": "Lily likes to play in the", "ends": ["park", "garden with her mom."], "right": 0},
           {"start": "The dog", "ends": ["ran.", "saw a big cat."], "right": 1}]


def rows_of(program, model, ids):
    with tempfile.NamedTemporaryFile() as f:
        subprocess.run([program, "logits", "-m", model, "--tokens", ",".join(map(str, ids)), "-o", f.name], check=True, capture_output=True)
        data = f.read()
    width = len(data) // 4 // len(ids)
    values = struct.unpack(f"<{len(data) // 4}f", data)
    return [values[i:i + width] for i in range(0, len(values), width)]


def likelihood(program, model, ids, n_context):
    """Of what stands behind the context; and whether each token is the likeliest."""
    total, greedy = 0.0, True
    for i, row in enumerate(rows_of(program, model, ids)[:-1]):
        if i + 1 >= n_context:
            top = max(row)
            total += row[ids[i + 1]] - top - math.log(sum(math.exp(x - top) for x in row))
            greedy &= row[ids[i + 1]] == top
    return total, greedy


def run(program, model, folder):
    import lm_eval
    from lm_eval.tasks import TaskManager
    with open(os.path.join(folder, "data.jsonl"), "w", encoding="utf-8") as f:
        f.write("".join(json.dumps(s) + "\n" for s in STORIES))
    with open(os.path.join(folder, "task.yaml"), "w", encoding="utf-8") as t:
        t.write(TASK.format(data=f.name))
    with Server(program, "-m", model) as s:
        args = {"model": "any", "base_url": s.url + "/v1/completions", "tokenizer": model, "tokenizer_backend": "huggingface", "tokenized_requests": True,
                "num_concurrent": 1, "max_retries": 1, "add_bos_token": False}
        return lm_eval.simple_evaluate(model="local-completions", model_args=args, tasks=["little_stories"], batch_size=4, log_samples=True,
                                       task_manager=TaskManager(include_path=folder, include_defaults=False), bootstrap_iters=0)


def main():
    program, data = os.path.abspath(sys.argv[1]), sys.argv[2]
    model = os.path.join(data, "models", "stories260K", "hf")
    missing = [n for n in ("lm_eval", "transformers", "datasets") if importlib.util.find_spec(n) is None]
    if missing or not os.path.isdir(model):
        skip(f"not here: {', '.join(missing) or model}")
        finish()
        return
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", OPENAI_API_KEY="x")
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(model)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_HOME"] = folder
        got = run(program, model, folder)
    samples = got["samples"]["little_stories"]
    check(len(samples) == len(STORIES) and "acc,none" in got["results"]["little_stories"], f"the task ran: {got['results']}")
    for sample in samples:
        story = sample["doc"]
        for end, response in zip(story["ends"], sample["resps"]):
            context = tokenizer.encode(story["start"], add_special_tokens=False)
            whole = tokenizer.encode(story["start"] + " " + end, add_special_tokens=False)
            want, greedy = likelihood(program, model, whole, len(context))
            value, is_greedy = float(response[0][0]), str(response[0][1]) == "True"
            check(abs(value - want) < 2e-3, f"{story['start']!r} {end!r}: {value} instead of {want}")
            check(is_greedy == greedy, f"{story['start']!r} {end!r}: greedy {is_greedy} instead of {greedy}")
    finish()


if __name__ == "__main__":
    main()
