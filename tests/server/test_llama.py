#!/usr/bin/env python3
"""llama-server's own routes as raw HTTP, and those that vLLM shares: completions with their record, tokens, templates, props, slots, what is refused.
llama.cpp's own tests are run by llama/run_suite.py.

usage: test_llama.py PROGRAM      last line: "N passed, N failed"
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

from harness import Server, check, finish

ASK = {"prompt": "Once upon a time", "n_predict": 4, "temperature": 0}


def post(s, path, body, want=200):
    code, _, text = s.request(path, body)
    check(code == want, f"{path} {str(body)[:150]}: {code} {text[:200]}")
    return json.loads(text)


def stream(s, path, body):
    text = s.request(path, {**body, "stream": True})[2]
    return [json.loads(part[6:]) for part in text.split("\n\n") if part.startswith("data: {")]


def ids_of(s, text, **more):
    return post(s, "/tokenize", {"content": text, **more})["tokens"]


def check_completion(s):
    for path in ("/completion", "/completions"):
        r = post(s, path, ASK)
        check(r["stop"] is True and r["stop_type"] == "limit" and r["tokens_predicted"] == 4 and r["tokens_evaluated"] == 4 and r["tokens"] == [], f"{path}: {r}")
        check(r["generation_settings"]["n_predict"] == 4 and r["truncated"] is False and r["prompt"].endswith(ASK["prompt"]), f"{path}: {r}")
        check(r["timings"]["prompt_n"] + r["timings"]["cache_n"] == 4 and r["timings"]["predicted_n"] == 4, f"{path}: {r['timings']}")
    check("choices" in post(s, "/v1/completions", {"prompt": "x", "max_tokens": 1}), "/v1/completions is OpenAI's")
    whole = post(s, "/completion", {**ASK, "n_predict": 20, "return_tokens": True})
    check(len(whole["tokens"]) == 20, "return_tokens")
    frames = stream(s, "/completion", {**ASK, "n_predict": 20})
    check("".join(f["content"] for f in frames) == whole["content"], "a stream says the same")
    check([t for f in frames for t in f["tokens"]] == whole["tokens"] and all(len(f["tokens"]) == 1 for f in frames[:-1]), "a frame for each token")
    check([f["stop"] for f in frames] == [False] * 20 + [True] and "timings" in frames[-1] and "timings" not in frames[0], "the last frame is the record")
    check(all("timings" in f for f in stream(s, "/completion", {**ASK, "timings_per_token": True})), "timings_per_token")
    word = post(s, "/completion", {**ASK, "n_predict": 50, "stop": ["the", "was"]})
    check(word["stop_type"] == "word" and word["stopping_word"] in ("the", "was"), f"stopping_word: {word['stop_type']} {word['stopping_word']}")
    picked = post(s, "/completion", {**ASK, "response_fields": ["content", "generation_settings/n_predict", "nothing"]})
    check(set(picked) == {"content", "generation_settings/n_predict"} and picked["generation_settings/n_predict"] == 4, f"response_fields: {picked}")
    check(post(s, "/completion", {**ASK, "n_predict": -1, "stop": ["\n"]})["stop"], "no limit")
    check(post(s, "/completion", {**ASK, "n_predict": 0})["tokens_predicted"] == 0, "nothing but the prompt")


def check_prompts(s):
    ids = ids_of(s, ASK["prompt"], add_special=True)
    text = post(s, "/completion", ASK)["content"]
    check(post(s, "/completion", {**ASK, "prompt": ids})["content"] == text, "token ids")
    check(post(s, "/completion", {**ASK, "prompt": [ids[0], s_rest(s, ids)]})["content"] == text, "mixed")
    check([r["content"] for r in post(s, "/completion", {**ASK, "prompt": [ids, ASK["prompt"], {"prompt_string": ASK["prompt"]}]})] == [text] * 3, "several")
    for bad in (None, {}, [], [[]], [-1], [1, None], {"prompt_string": "x", "multimodal_data": ["x"]}):
        error = post(s, "/completion", {**ASK, "prompt": bad}, 400)["error"]
        check(error["code"] == 400 and "prompt" in error["message"] and error["type"] == "invalid_request_error", f"{bad}: {error}")
    long = post(s, "/completion", {**ASK, "prompt": "x " * 9000}, 400)["error"]
    check(long["type"] == "exceed_context_size_error" and long["n_prompt_tokens"] > long["n_ctx"] == 1024, f"too long: {long}")
    first, second = (post(s, "/completion", {**ASK, "prompt": "a b c " * 60, "cache_prompt": c})["timings"] for c in (True, False))
    check(second["cache_n"] == 0 and post(s, "/completion", {**ASK, "prompt": "a b c " * 60})["timings"]["cache_n"] > 0, f"cache_prompt: {first} {second}")


def s_rest(s, ids):
    return post(s, "/detokenize", {"tokens": ids[1:]})["content"]


def check_probabilities(s):
    r = post(s, "/completion", {**ASK, "n_probs": 3})
    rows = r["completion_probabilities"]
    check(len(rows) == 4 and all(len(t["top_logprobs"]) == 3 and t["logprob"] <= 0 and t["top_logprobs"][0]["id"] == t["id"] for t in rows), f"n_probs: {rows[:1]}")
    drawn = post(s, "/completion", {**ASK, "n_probs": 5, "temperature": 1, "top_k": 3, "top_p": 1, "seed": 1, "post_sampling_probs": True})["completion_probabilities"]
    check(all(len(t["top_probs"]) == 3 and abs(sum(p["prob"] for p in t["top_probs"]) - 1) < 1e-3 for t in drawn), f"behind the cuts: {drawn[:1]}")
    flat = post(s, "/completion", {**ASK, "n_probs": 5, "post_sampling_probs": True})["completion_probabilities"]
    check(all(t["prob"] == 1 and len(t["top_probs"]) == 1 for t in flat), "greedy: the one that was taken")
    frames = stream(s, "/completion", {**ASK, "n_probs": 2})
    check(all(len(f["completion_probabilities"]) == 1 for f in frames[:-1]), "in a stream")
    post(s, "/completion", {**ASK, "n_probs": 21}, 400)


def check_bias(s):
    text = post(s, "/completion", {**ASK, "n_predict": 1, "return_tokens": True})
    first, word = text["tokens"][0], text["content"]
    for bias in ({str(first): -100}, [[first, -100]], [[first, False]], [[word, -100]], {word: False}):
        r = post(s, "/completion", {**ASK, "n_predict": 1, "return_tokens": True, "logit_bias": bias})
        check(r["tokens"] != [first], f"logit_bias {bias}")
    for bias in ([1], [[1]], {"1": "x"}, [[1, 1000]], [[10 ** 9, 1]], "x"):
        check("logit_bias" in post(s, "/completion", {**ASK, "logit_bias": bias}, 400)["error"]["message"], f"logit_bias {bias}")


def check_limits(s):
    """vLLM's fields on OpenAI's routes."""
    base = {"prompt": ASK["prompt"], "max_tokens": 12, "temperature": 0}
    text = post(s, "/v1/completions", base)["choices"][0]["text"]
    ids = ids_of(s, ASK["prompt"] + text)[len(ids_of(s, ASK["prompt"])):]
    cut = post(s, "/v1/completions", {**base, "stop_token_ids": [ids[2]]})
    check(cut["choices"][0]["finish_reason"] == "stop" and cut["usage"]["completion_tokens"] == 3, f"stop_token_ids: {cut}")
    later = post(s, "/v1/completions", {**base, "stop_token_ids": [ids[2]], "min_tokens": 5})
    check(later["usage"]["completion_tokens"] >= 5, f"min_tokens: {later['usage']}")
    word = text.split()[1]
    check(word not in post(s, "/v1/completions", {**base, "bad_words": [word]})["choices"][0]["text"], f"bad_words: {word}")
    only = post(s, "/v1/completions", {**base, "allowed_token_ids": [ids[0]]})["choices"][0]["text"]
    check(len(set(ids_of(s, only))) <= 2 and only != text, f"allowed_token_ids: {only!r}")
    kept = post(s, "/v1/completions", {**base, "stop": word, "include_stop_str_in_output": True})["choices"][0]["text"]
    check(kept.endswith(word) and not post(s, "/v1/completions", {**base, "stop": word})["choices"][0]["text"].endswith(word), f"the stop string: {kept!r}")
    for more in ({"stop_token_ids": [-1]}, {"allowed_token_ids": ["x"]}, {"bad_words": [""]}, {"min_tokens": -1}, {"stop_token_ids": 1}):
        check(post(s, "/v1/completions", {**base, **more}, 400)["error"]["param"] == list(more)[0], f"{more}")


def check_echo(s, program):
    """Log-probabilities of the prompt are those of `mlxcel logits`."""
    base = {"prompt": ASK["prompt"], "temperature": 0, "echo": True, "logprobs": 2}
    ids = ids_of(s, ASK["prompt"], add_special=True)
    with tempfile.NamedTemporaryFile() as f:
        subprocess.run([program, "logits", "--tokens", ",".join(map(str, ids)), "-o", f.name], check=True, capture_output=True)
        logits = read_logits(f.name, json.loads(s.request("/v1/models")[2])["data"][0]["meta"]["n_vocab"])
    want = [row[ids[i + 1]] - math.log(sum(math.exp(x) for x in row)) for i, row in enumerate(logits[:-1])]
    for n in (0, 3):
        choice = post(s, "/v1/completions", {**base, "max_tokens": n})["choices"][0]
        lp = choice["logprobs"]
        check(choice["text"].startswith(ASK["prompt"]) and len(lp["tokens"]) == len(lp["text_offset"]) == len(ids) + n, f"echo {n}: {choice}")
        check(lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None, "the first token has none")
        got = lp["token_logprobs"][1:len(ids)]
        check(max(abs(a - b) for a, b in zip(got, want)) < 2e-3, f"echo {n}: {got} {want}")
        check(all(2 <= len(t) <= 3 for t in lp["top_logprobs"][1:]), "the most likely ones")
    parts = stream(s, "/v1/completions", {**base, "max_tokens": 3})
    check("".join(p["choices"][0]["text"] for p in parts) == choice["text"], "echo in a stream")
    check(sum(len((p["choices"][0]["logprobs"] or {"tokens": []})["tokens"]) for p in parts) == len(ids) + 3, "its log-probabilities")
    many = post(s, "/v1/completions", {**base, "prompt": [ids, ids[:3]], "max_tokens": 1})["choices"]
    check([len(c["logprobs"]["tokens"]) for c in many] == [len(ids) + 1, 4], "several prompts")


def read_logits(path, width):
    """Rows of float32."""
    with open(path, "rb") as f:
        values = struct.unpack(f"<{os.path.getsize(path) // 4}f", f.read())
    return [values[i:i + width] for i in range(0, len(values), width)]


def check_tokens(s):
    plain, special = ids_of(s, "Hello there"), post(s, "/tokenize", {"content": "Hello there", "with_pieces": True})["tokens"]
    check([t["id"] for t in special] == plain and "".join(t["piece"] for t in special).strip() == "Hello there", f"pieces: {special}")
    check(post(s, "/detokenize", {"tokens": plain}) == {"content": "Hello there", "prompt": "Hello there"}, "both names")
    check(ids_of(s, ["Hello there"]) == plain and ids_of(s, [plain[0]]) == plain[:1], "lists")
    vllm = post(s, "/tokenize", {"model": "x", "prompt": "Hello there", "return_token_strs": True})
    check(vllm["tokens"] == ids_of(s, "Hello there", add_special=True) and vllm["count"] == len(vllm["tokens"]) == len(vllm["token_strs"]) and vllm["max_model_len"] == 1024,
          f"vLLM's: {vllm}")
    chat = [{"role": "user", "content": "Hi"}]
    count = json.loads(s.request("/v1/chat/completions", {"messages": chat, "max_tokens": 1})[2])["usage"]["prompt_tokens"]
    check(post(s, "/tokenize", {"messages": chat})["count"] == count, "messages")
    check(post(s, "/chat/completions/input_tokens", {"messages": chat})["input_tokens"] == count, "input_tokens")
    for path, body in (("/tokenize", {}), ("/tokenize", {"content": 1.5}), ("/tokenize", {"prompt": 1}), ("/detokenize", {"tokens": [10 ** 9]}), ("/detokenize", {})):
        check(post(s, path, body, 400)["error"]["code"] == 400, f"{path} {body}")
    prompt = post(s, "/apply-template", {"messages": chat})["prompt"]
    short = post(s, "/apply-template", {"messages": chat, "add_generation_prompt": False})["prompt"]
    check("Hi" in prompt and prompt.startswith(short) and prompt != short, f"templates: {prompt!r} {short!r}")


def check_server(s):
    props = json.loads(s.request("/props")[2])
    check(props["total_slots"] == 2 and props["default_generation_settings"]["n_ctx"] == 1024 and "messages" in props["chat_template"], "props")
    check(props["default_generation_settings"]["params"]["seed"] == 7, "the seed that the server was started with")
    slots = json.loads(s.request("/slots")[2])
    check([x["id"] for x in slots] == [0, 1] and not slots[0]["is_processing"], f"slots: {slots}")
    check(json.loads(s.request("/lora-adapters")[2]) == [], "no adapters")
    check(json.loads(s.request("/version")[2])["version"], "version")
    check(json.loads(s.request("/v1/models")[2])["data"][0]["max_model_len"] == 1024, "max_model_len")
    same = [post(s, "/completion", {"prompt": "x", "temperature": 1})["content"] for _ in range(2)]
    check(same[0] == same[1], "--seed")
    check(post(s, "/completion", {"prompt": "x"})["tokens_predicted"] <= 9, "--n-predict")
    for path, body, want in (("/slots/0?action=save", {}, 501), ("/props", {}, 501), ("/rerank", {"query": "a", "documents": ["b"]}, 501),
                             ("/rerank", {"query": "a", "documents": []}, 400), ("/infill", {"input_prefix": "a", "input_suffix": "b"}, 501)):
        error = post(s, path, body, want)["error"]
        check(error["code"] == want and len(error["message"]) > 20, f"{path}: {error}")
    for field, path in (("content", "/embedding"), ("input", "/embeddings")):
        rows = post(s, path, {field: ["a", "b"]})
        check([r["index"] for r in rows] == [0, 1] and len(rows[0]["embedding"]) == 1 and len(rows[0]["embedding"][0]) == 256, f"{path}")


def check_chat(s):
    chat = {"messages": [{"role": "user", "content": "Hi " * 30}], "max_tokens": 3}
    r = post(s, "/v1/chat/completions", {**chat, "verbose": True})
    check(r["timings"]["predicted_n"] == 3 and "Hi Hi" in r["__verbose"]["prompt"], f"timings and __verbose: {list(r)}")
    check("__verbose" not in post(s, "/v1/chat/completions", chat), "not unless asked for")
    frames = stream(s, "/v1/chat/completions", {**chat, "return_progress": True, "cache_prompt": False})
    steps = [f["prompt_progress"] for f in frames if "prompt_progress" in f]
    check(steps[0]["processed"] == steps[0]["cache"] == 0 and steps[-1]["processed"] == steps[-1]["total"] > 30, f"progress: {steps}")
    check([x["processed"] for x in steps] == sorted({x["processed"] for x in steps}) and len(steps) > 3, f"a report for each step: {steps}")
    check("timings" in frames[-1] and "timings" not in frames[-2], "timings in the last frame")
    error = post(s, "/chat/completions", {"messages": [{"role": "user", "content": "x " * 9000}]}, 400)["error"]
    check(error["type"] == "exceed_context_size_error" and error["n_ctx"] == 1024, f"its own error: {error}")
    check(post(s, "/v1/chat/completions", {"messages": [{"role": "user", "content": "x " * 9000}]}, 400)["error"]["code"] == "context_length_exceeded", "OpenAI's")


def check_switches(program):
    with Server(program, "--no-slots", "--no-ui", "--cors-origins", "apps") as s:
        check(s.request("/slots")[0] == 501 and s.request("/")[0] == 404, "--no-slots, --no-ui")
        for origin, want in (("app://obsidian.md", 200), ("vscode-webview://1ab2", 200), ("tauri://localhost", 200), ("chrome-extension://abc", 200),
                             ("https://evil.com", 403), ("xapp://y", 403)):
            code, _, text = s.request("/health", headers={"Origin": origin})
            check(code == want and (want == 200 or "--cors-origins apps" in text), f"{origin}: {code} {text}")
    env = {"LLAMA_ARG_N_PARALLEL": "3", "LLAMA_ARG_N_PREDICT": "2", "LLAMA_API_KEY": "sesame", "LLAMA_ARG_ALIAS": "named"}
    with Server(program, env=env) as s:
        key = {"Authorization": "Bearer sesame"}
        props = json.loads(s.request("/props", headers=key)[2])
        check(props["total_slots"] == 3 and props["model_alias"] == "named" and s.request("/props")[0] == 401, f"variables of llama-server: {list(props)}")
        check(json.loads(s.request("/completion", {"prompt": "x"}, headers=key)[2])["tokens_predicted"] == 2, "LLAMA_ARG_N_PREDICT")
    with Server(program, "--allowed-hosts", "host.docker.internal") as s:
        for host, want in (("host.docker.internal:8080", 200), ("other.internal", 403)):
            code, _, text = s.request("/health", headers={"Host": host})
            check(code == want and (want == 200 or "--allowed-hosts host.docker.internal" in text), f"{host}: {code} {text}")


def check_without_pooling(program):
    text = "Once upon a time there was a fox"
    with Server(program, "--pooling", "mean") as s:
        mean = post(s, "/embeddings", {"input": text})[0]["embedding"][0]
    with Server(program, "--pooling", "none") as s:
        rows = post(s, "/embeddings", {"input": [text, "Hi"]})
        each = rows[0]["embedding"]
        check(len(each) == len(ids_of(s, text, add_special=True)) and len(rows[1]["embedding"]) < len(each), f"a vector for each token: {len(each)}")
        sums = [sum(v[k] for v in each) for k in range(len(mean))]
        length = math.sqrt(sum(x * x for x in sums))
        check(max(abs(x / length - y) for x, y in zip(sums, mean)) < 1e-5, "their mean is what --pooling mean gives")
        check(all(abs(sum(x * x for x in v) - 1) > 1e-3 for v in each), "as they are, not of length 1")
        for path, body in (("/v1/embeddings", {"input": text}), ("/api/embed", {"input": text}), ("/api/embeddings", {"prompt": text})):
            code, _, answer = s.request(path, body)
            check(code == 400 and "--pooling none" in answer, f"{path} has one vector for a text: {code} {answer}")


def check_shift(program):
    """A context of 64: answers that do not fit go on where that is asked for, and forget."""
    body = {"prompt": "Once upon a time", "n_predict": 150, "temperature": 0, "ignore_eos": True}
    with Server(program, "--ctx-size", "64") as s:
        short = post(s, "/completion", body)
        check(short["tokens_predicted"] == 60 and short["truncated"] is True and short["stop_type"] == "limit", f"without: {short['tokens_predicted']}")
    with Server(program, "--ctx-size", "64", "--context-shift") as s:
        whole = post(s, "/completion", {**body, "return_tokens": True})
        check(whole["tokens_predicted"] == 150 and len(whole["tokens"]) == 150 and whole["truncated"] is True, f"with: {whole['tokens_predicted']}")
        check(whole["content"].startswith(short["content"]), "it is the same answer, and longer")
        check(whole["timings"]["prompt_n"] + whole["timings"]["cache_n"] == 4, f"the prompt is what was given: {whole['timings']}")
        frames = stream(s, "/completion", {**body, "return_progress": True})
        check("".join(f.get("content", "") for f in frames) == whole["content"], "a stream says the same")
        kept = post(s, "/completion", {**body, "n_keep": -1})
        check(kept["tokens_predicted"] == 150 and kept["content"] != whole["content"], "n_keep -1: the prompt stays")
        check(post(s, "/completion", {**body, "n_predict": 20})["truncated"] is False, "an answer that fits forgets nothing")
        check(post(s, "/completion", {**body, "min_tokens": 100, "ignore_eos": False, "n_predict": 120})["tokens_predicted"] >= 100, "min_tokens counts what was forgotten")
        r = post(s, "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100, "ignore_eos": True})
        check(r["usage"]["completion_tokens"] == 100 and r["choices"][0]["finish_reason"] == "length", f"a chat: {r['usage']}")
        schema = {"type": "array", "items": {"type": "integer"}, "minItems": 40, "maxItems": 40}
        r = post(s, "/completion", {"prompt": "[", "n_predict": 500, "json_schema": schema, "seed": 1, "temperature": 1})
        check(r["truncated"] and (r["stop_type"] == "limit" or len(json.loads(r["content"])) == 40), f"a schema holds across it: {r['content']!r}")
        check(post(s, "/completion", {"prompt": "word " * 200}, 400)["error"]["type"] == "exceed_context_size_error", "a prompt that does not fit")
        check(s.wait_quiet()["mlxcel_kv_blocks_used"] == 0, "nothing is held")


def main():
    program = sys.argv[1]
    with Server(program) as s:
        for part in (check_completion, check_prompts, check_probabilities, check_bias, check_limits, check_tokens):
            part(s)
        check_echo(s, program)
    with Server(program, "--parallel", "2", "--seed", "7", "--n-predict", "9", "--batch-size", "16") as s:
        check_server(s)
        check_chat(s)
    check_switches(program)
    check_without_pooling(program)
    check_shift(program)
    finish()


if __name__ == "__main__":
    main()
