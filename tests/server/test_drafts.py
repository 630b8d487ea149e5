#!/usr/bin/env python3
"""The table of docs/speculation.md, row by row: the same requests to a server without drafts and to one with them give the same answers.

usage: test_drafts.py PROGRAM      last line: "N passed, N failed[, N skipped]"
"""
import concurrent.futures
import json
import os
import sys
import tempfile

from harness import Server, check, finish
from test_adapters import make_adapter

PROGRAM = sys.argv[1]
TALE = "Tom had a red ball. Tom liked the red ball. One day the red ball was gone. Tom looked for the red ball. "
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "names": {"type": "array", "items": {"enum": ["red ball", "red box"]}, "minItems": 3, "maxItems": 5}},
          "required": ["name", "names"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "find_ball", "parameters": {"type": "object", "properties": {"colour": {"enum": ["red", "green"]}, "where": {"type": "string", "maxLength": 30}},
                                                                             "required": ["colour", "where"]}}}

PLAIN = {"prompt": TALE * 4, "n_predict": 60, "temperature": 0, "ignore_eos": True, "return_tokens": True}
DRAWN = {**PLAIN, "temperature": 1, "seed": 5}
FEW = {"allowed_token_ids": [262, 290, 300, 311, 350]}  # so few tokens soon come again
CHAT = {"messages": [{"role": "user", "content": TALE * 3}], "max_tokens": 50, "temperature": 0}
TEMPLATE = ("{% if tools %}{{ tools | tojson }}{# <tool_call> {\"name\": ..., \"arguments\": ...} </tool_call> #}{% endif %}"
            "{% for m in messages %}{{ m.content }} {% endfor %}")
LLAMA, OPENAI, TEXT = "/completion", "/v1/chat/completions", "/v1/completions"

# row of the table, path, body
ROWS = [
    ("greedy", LLAMA, PLAIN),
    ("greedy, few", LLAMA, {**PLAIN, **FEW}),
    ("drawn", LLAMA, DRAWN),
    ("drawn, few", LLAMA, {**DRAWN, **FEW}),
    ("streaming", OPENAI, {**CHAT, "stream": True, "stream_options": {"include_usage": True}}),
    ("streaming", LLAMA, {**DRAWN, **FEW, "stream": True}),
    ("n > 1", TEXT, {"prompt": TALE * 4, "max_tokens": 40, "temperature": 1, "seed": 3, "n": 3}),
    ("stop strings", LLAMA, {**PLAIN, "stop": ["ball. Tom", "looked for"]}),
    ("stop strings", LLAMA, {**DRAWN, "stop": ["a"], "min_tokens": 9}),
    ("stop strings", LLAMA, {**DRAWN, **FEW, "stop": ["no such text"]}),
    ("limits", LLAMA, {**PLAIN, "n_predict": 1}),
    ("limits", LLAMA, {**PLAIN, "n_predict": 2}),
    ("bad words", LLAMA, {**DRAWN, "bad_words": ["ball", "red"]}),
    ("end tokens", LLAMA, {**DRAWN, "ignore_eos": False, "stop_token_ids": list(range(300, 400))}),
    ("schema", OPENAI, {**CHAT, "max_tokens": 120, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}),
    ("schema", LLAMA, {**DRAWN, "json_schema": SCHEMA, "n_predict": 120}),
    ("grammar", LLAMA, {**DRAWN, "grammar": 'root ::= ("the red ball, " | "a dog, ")+ "end"', "n_predict": 80}),
    ("tools", OPENAI, {**CHAT, "tools": [TOOL], "tool_choice": "required", "max_tokens": 120}),
    ("penalties", LLAMA, {**DRAWN, "repeat_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": 0.2, "repeat_last_n": 20}),
    ("DRY", LLAMA, {**DRAWN, "dry_multiplier": 0.8, "dry_allowed_length": 2}),
    ("mirostat", LLAMA, {**DRAWN, "mirostat": 2}),
    ("XTC", LLAMA, {**DRAWN, "xtc_probability": 0.5, "xtc_threshold": 0.1, "min_p": 0.02}),
    ("logit bias", LLAMA, {**DRAWN, "logit_bias": [[400, 2.5], [401, -3]]}),
    ("logprobs", LLAMA, {**PLAIN, "n_probs": 4}),
    ("logprobs", LLAMA, {**DRAWN, "n_probs": 3, "post_sampling_probs": True}),
    ("logprobs", LLAMA, {**PLAIN, **FEW, "n_probs": 4}),
    ("prefix cache", LLAMA, {**PLAIN, "prompt": TALE * 4 + "Then"}),
    ("prefix cache", LLAMA, {**PLAIN, "cache_prompt": False}),
    ("prefix cache", LLAMA, {**PLAIN, **FEW, "prompt": TALE * 4 + "Then"}),
    ("adapters", LLAMA, {**PLAIN, "lora": [{"id": 0, "scale": 1}]}),
    ("adapters", LLAMA, {**DRAWN, "lora": [{"id": 0, "scale": 0.5}]}),
]
NOT_COMPARED = {"timings", "id", "created", "speculative.n_max", "tokens_cached", "cached_tokens"}


def strip(value):
    """What may differ is how long it took, and where that is told."""
    if isinstance(value, dict):
        return {k: strip(v) for k, v in value.items() if k not in NOT_COMPARED}
    return [strip(v) for v in value] if isinstance(value, list) else value


def text_of(events):
    """A stream's text and its last event: tokens that come with one step are one event."""
    text = "".join(e.get("content", "") or "".join(c.get("delta", {}).get("content") or "" for c in e.get("choices", [])) for e in events)
    return text, strip({k: v for k, v in events[-1].items() if k != "content"})


def timings(text):
    return [e["timings"] for e in (json.loads(x.removeprefix("data: ")) for x in text.split("\n\n") if "{" in x) if "timings" in e]


def ask(s, path, body):
    code, _, text = s.request(path, body)
    check(code == 200, f"{path} {body}: {code} {text[:300]}")
    if not body.get("stream"):
        return strip(json.loads(text)), text
    return text_of([json.loads(x[6:]) for x in text.split("\n\n") if x.startswith("data: {")]), text


def run(adapter, *flags):
    """All rows, one after the other, and the first twelve at once; the numbers of drafts."""
    answers, drafts = [], {}
    with Server(PROGRAM, "--parallel", "8", "--adapter", adapter + ":0", *flags) as s:
        for name, path, body in ROWS:
            answer, text = ask(s, path, body)
            answers.append(answer)
            n = [(t.get("draft_n", 0), t.get("draft_n_accepted", 0)) for t in timings(text)]
            drafts[name] = n[-1] if n else (0, 0)
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers += [x[0] for x in pool.map(lambda r: ask(s, r[1], r[2]), ROWS[:12])]
        metrics = s.request("/metrics")[2]
        slots = json.loads(s.request("/slots")[2])
        refused = [s.request(LLAMA, {**PLAIN, field: value})[0] for field, value in
                   (("speculative.n_min", 3), ("speculative.p_min", 0.5), ("speculative.type", "eagle"), ("speculative.n_max", -1))]
        off = [json.loads(s.request(LLAMA, {**PLAIN, **FEW, **body})[2])["timings"].get("draft_n", 0) for body in
               ({"speculative.n_max": 0}, {"speculative.type": "none"}, {"speculative.n_max": 100})]
    figures = {line.split()[0].partition("{")[0]: float(line.split()[-1]) for line in metrics.splitlines() if line.startswith("mlxcel_draft")}
    return answers, drafts, figures, slots[0]["speculative"], refused, off


def check_small_cache():
    """Blocks run out, and jobs give way."""
    answers = []
    for kind in ("none", "ngram"):
        with Server(PROGRAM, "--parallel", "6", "--kv-tokens", "512", "--draft", kind) as s, concurrent.futures.ThreadPoolExecutor(6) as pool:
            bodies = [{**DRAWN, "prompt": TALE * 2 + str(i), "seed": i, "n_predict": 100} for i in range(6)]
            answers.append(list(pool.map(lambda b: ask(s, LLAMA, b)[0], bodies)))
            preempted = [line for line in s.request("/metrics")[2].splitlines() if line.startswith("mlxcel_preemptions_total")]
            check(float(preempted[0].split()[-1]) > 0, f"--draft {kind}: {preempted}")
    check(answers[0] == answers[1], "preemption")


def main():
    with tempfile.TemporaryDirectory() as folder:
        adapter = make_adapter(os.path.join(folder, "one"), 1)
        template = os.path.join(folder, "chat.jinja")
        with open(template, "w", encoding="utf-8") as f:
            f.write(TEMPLATE)
        plain, no_drafts, no_figures, is_off, _, _ = run(adapter, "--chat-template-file", template, "--draft", "none")
        drafted, drafts, figures, is_on, refused, off = run(adapter, "--chat-template-file", template, "--draft", "ngram")
        for i, (name, path, body) in enumerate(ROWS + ROWS[:12]):
            check(plain[i] == drafted[i], f"{name}{' in a batch' if i >= len(ROWS) else ''}: {path} {body}\n{plain[i]}\n{drafted[i]}")
        check(all(n == (0, 0) for n in no_drafts.values()), f"no drafts: {no_drafts}")
        for name in ("greedy, few", "drawn, few", "streaming", "stop strings", "logprobs", "prefix cache"):
            n, n_accepted = drafts[name]
            check(0 <= n_accepted <= n and n > 0, f"{name} had drafts: {drafts[name]}")
        check(drafts["greedy, few"][1] > 20, f"a text that repeats itself is guessed: {drafts['greedy, few']}")
        check(set(no_figures.values()) == {0} and figures["mlxcel_draft_tokens_total"] > figures["mlxcel_draft_tokens_accepted_total"] > 0, f"metrics: {figures}")
        check(is_on and not is_off, "/slots tells whether there are drafts")
        check(refused == [400] * 4, f"what is not there is refused: {refused}")
        check(off[0] == off[1] == 0 and off[2] > 0, f"speculative.n_max: {off}")
        check_small_cache()
    return finish()


if __name__ == "__main__":
    sys.exit(main())
