#!/usr/bin/env python3
"""GET /metrics: the form, the figures, and every name of the table in docs/server.md.

usage: test_metrics.py PROGRAM      last line: "N passed, N failed[, N skipped]"
"""
import json
import os
import re
import subprocess
import sys

from harness import HANG, Server, check, finish

PROGRAM = sys.argv[1]
SAMPLE = re.compile(r'^([a-z_:0-9]+)(\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)+\})? (-?[0-9.e+-]+)$')
COLUMNS = ("mlxcel_", "vllm:", "llamacpp:")


def documented():
    """Names of the table, with the prefix of their column."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "server.md")
    section = open(path, encoding="utf-8").read().split("## Metrics\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1:4] for line in section.splitlines() if line.startswith("| ")][1:]
    return {prefix + name for row in rows for prefix, cell in zip(COLUMNS, row) for name in re.findall(r"`([a-z0-9_]+)", cell)}


def read(text):
    """{name: {labels: value}}; checks the form on the way."""
    samples, types, wrong = {}, {}, []
    for line in text.splitlines():
        words = line.split(" ")
        if line.startswith("# TYPE "):
            wrong += [line] if words[2] in types else []
            types[words[2]] = words[3]
        elif not line.startswith("# HELP "):
            m = SAMPLE.match(line)
            family = re.sub(r"_(bucket|sum|count)$", "", m[1]) if m else None
            kind = types.get(m[1]) or types.get(family) if m else None
            wrong += [] if m and kind and (m[2] or "") not in samples.get(m[1], {}) else [line]
            if m:
                samples.setdefault(m[1], {})[m[2] or ""] = float(m[3])
    check(not wrong, f"lines of another form, given twice or without their type: {wrong[:3]}")
    return samples, types


def check_histograms(samples, types):
    for name in (n for n, kind in types.items() if kind == "histogram"):
        buckets = samples[f"{name}_bucket"]
        by_model = {}
        for labels, value in buckets.items():
            by_model.setdefault(re.sub(r',?le="[^"]*"', "", labels).replace("{}", ""), []).append(value)
        for labels, values in by_model.items():
            check(values == sorted(values) and values[-1] == samples[f"{name}_count"][labels], f"{name}{labels}: {values}")


def check_one():
    with Server(PROGRAM, "--alias", 'a"b\\c') as s:
        for n in (3, 5):
            s.request("/completion", {"prompt": "Once upon a time there was", "n_predict": n, "ignore_eos": True})
        s.request("/completion", {"prompt": "x", "n_predict": 0})
        samples, types = read(s.request("/metrics")[2])
        check_histograms(samples, types)
        names = documented()
        check(names == set(types), f"names in the table alone: {sorted(names - set(types))}; at /metrics alone: {sorted(set(types) - names)}")
        named = '{model_name="a\\"b\\\\c"}'
        one = {name: values[""] for name, values in samples.items() if list(values) == [""]}
        of_vllm = {name: values[named] for name, values in samples.items() if named in values}
        check(one["mlxcel_completion_tokens_total"] == one["llamacpp:tokens_predicted_total"] == of_vllm["vllm:generation_tokens_total"] == 8, f"tokens: {one}")
        check(of_vllm["vllm:request_generation_tokens_sum"] == 8 and of_vllm["vllm:request_generation_tokens_count"] == 2, f"answers: {of_vllm}")
        check(of_vllm["vllm:e2e_request_latency_seconds_count"] == 3 and 0 < of_vllm["vllm:e2e_request_latency_seconds_sum"] < 300, "times of three requests")
        check(0 < one["llamacpp:prompt_seconds_total"] < 300 and one["llamacpp:predicted_tokens_seconds"] > 0, "rates")
        check(of_vllm["vllm:prefix_cache_queries_total"] == one["mlxcel_prompt_tokens_total"] > 0, "tokens that the cache was asked for")
        check(samples["vllm:request_success_total"][named[:-1] + ',finished_reason="length"}'] == 3, f"ends: {samples['vllm:request_success_total']}")
        info = list(samples["vllm:cache_config_info"])[0]
        check(f'num_gpu_blocks="{int(one["mlxcel_kv_blocks_total"])}"' in info and 'block_size="64"' in info, f"the cache: {info}")
        n_prompt = (one["mlxcel_generation_prompt_tokens_sum"] - 1) / 2
        check(one["llamacpp:n_tokens_max"] == n_prompt + 5, f"the longest: {one['llamacpp:n_tokens_max']}, a prompt of {n_prompt}")
        check(of_vllm["vllm:kv_cache_usage_perc"] == 0 and one["mlxcel_kv_blocks_used"] == 0, "nothing is held")


def check_several():
    with Server(PROGRAM, "-m", "one=built-in", "-m", "two=built-in", "--preload", "one", "--preload", "two") as s:
        s.wait_for(lambda m: m["mlxcel_models_loaded"] == 2)
        s.request("/completion", {"prompt": "x", "n_predict": 2, "model": "two", "ignore_eos": True})
        samples, types = read(s.request("/metrics")[2])
        check_histograms(samples, types)
        check(samples["vllm:generation_tokens_total"] == {'{model_name="one"}': 0, '{model_name="two"}': 2}, f"vLLM's: {samples['vllm:generation_tokens_total']}")
        check(samples["llamacpp:tokens_predicted_total"] == {'{model="one"}': 0, '{model="two"}': 2}, f"llama.cpp's: {samples['llamacpp:tokens_predicted_total']}")


def check_cache_ram():
    """Beginnings of prompts that the cache has no room for wait in the host's memory, and come back."""
    words = "one two three four five six seven eight nine ten".split()
    prompts = [f"{first} " * 5 + "and every day she went to the park with her dog and her ball and her friend and they played until it was dark " * 5 for first in words[:5]]

    def ask(s, prompt):
        status, _, text = s.request("/v1/completions", {"prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True})
        answer = json.loads(text) if status == 200 else {}
        return answer.get("choices", [{}])[0].get("text"), answer.get("usage", {}).get("prompt_tokens_details", {}).get("cached_tokens")
    with Server(PROGRAM, "--parallel", "1", "--ctx-size", "256", "--kv-tokens", "256", "--cache-ram", "256M") as s:
        first = [ask(s, p) for p in prompts]
        again = [ask(s, p) for p in prompts]
        one = {name: list(values.values())[0] for name, values in read(s.request("/metrics")[2])[0].items()}
        check([t for t, _ in first] == [t for t, _ in again] and None not in first[0], f"answers: {first} {again}")
        check([n for _, n in first] == [0] * 5 and all(n >= 64 for _, n in again), f"tokens that were known: {first} {again}")
        check(one["mlxcel_cache_ram_blocks"] > 0 and one["mlxcel_cache_ram_tokens_total"] >= 5 * 64, f"blocks away, tokens that came back: {one}")
    r = subprocess.run([PROGRAM, "serve", "--cache-ram", "8192"], capture_output=True, text=True, timeout=HANG)
    check(r.returncode == 2 and "write 8192M" in r.stderr, f"MiB without their letter: {r}")


def main():
    check_one()
    check_several()
    check_cache_ram()
    return finish()


if __name__ == "__main__":
    sys.exit(main())
