#!/usr/bin/env python3
"""Ollama's protocol as raw HTTP: answers and streams, options, formats, tools, vectors, what is refused.

usage: test_ollama.py PROGRAM      last line: "N passed, N failed"
"""
import json
import os
import sys
import tempfile

from harness import Server, check, finish

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import crafted  # noqa: E402

TEMPLATE = ("{% if tools %}<tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>{{ tools | tojson }}{% endif %}"
            "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}\n"
            "{% endfor %}{# <think> #}<go>")
WEATHER = {"type": "function", "function": {"name": "weather", "description": "The weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Bonn", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"], "additionalProperties": False}}}

ASK = {"model": "any", "messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 4, "temperature": 0}}
COUNTS = ("total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count", "eval_duration")


def post(s, path, body, want=200, **headers):
    code, got, text = s.request(path, body, headers=headers)
    check(code == want, f"{path} {str(body)[:150]}: {code} {text[:200]}")
    return got, text


def whole(s, path, body):
    return json.loads(post(s, path, {**body, "stream": False})[1])


def lines(s, path, body):
    headers, text = post(s, path, body)
    check(headers["Content-Type"] == "application/x-ndjson", f"{path}: {headers['Content-Type']}")
    check(text.endswith("\n"), f"{path}: lines end")
    return [json.loads(line) for line in text.splitlines()]


def check_chat(s):
    one, parts = whole(s, "/api/chat", ASK), lines(s, "/api/chat", ASK)  # streams are the default
    check(one["model"] == "any" and one["message"]["role"] == "assistant" and one["done"] is True and one["done_reason"] == "length", f"chat: {one}")
    check(all(isinstance(one[k], int) for k in COUNTS) and one["eval_count"] == 4 and one["total_duration"] > 10 ** 4, f"counts: {one}")
    check("".join(p["message"]["content"] for p in parts) == one["message"]["content"], "the stream says the same")
    check([p["done"] for p in parts] == [False] * (len(parts) - 1) + [True] and parts[-1]["message"]["content"] == "", "the last line ends it")
    check(parts[-1]["eval_count"] == 4 and "eval_count" not in parts[0], "counts stand in the last line alone")
    word = one["message"]["content"].split()[1]
    cut = whole(s, "/api/chat", {**ASK, "options": {"num_predict": 40, "temperature": 0, "stop": [word]}})
    check(cut["done_reason"] == "stop" and word not in cut["message"]["content"], f"stop: {cut}")
    for more in ({"messages": []}, {"messages": None}):
        check(whole(s, "/api/chat", {**ASK, **more})["done_reason"] == "load", f"{more}: only loads")
    same = [whole(s, "/api/chat", {**ASK, "options": {"num_predict": 6, "temperature": 1.5, "seed": 3}})["message"]["content"] for _ in range(2)]
    check(same[0] == same[1], "seed")
    taken = {"num_ctx": 4096, "num_gpu": 1, "num_thread": 2, "use_mmap": True, "top_k": 1, "top_p": 0.5, "min_p": 0, "repeat_penalty": 1.1, "num_predict": 4}
    check(whole(s, "/api/chat", {**ASK, "keep_alive": "5m", "options": taken})["eval_count"] == 4, "options")
    answer = whole(s, "/api/chat", {**ASK, "logprobs": True, "top_logprobs": 2})
    check(len(answer["logprobs"]) == 4 and len(answer["logprobs"][0]["top_logprobs"]) == 2, "logprobs")


def check_format(s):
    schema = {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"], "additionalProperties": False}
    limit = {"num_predict": 300, "temperature": 0}
    for path, text in (("/api/chat", lambda r: r["message"]["content"]), ("/api/generate", lambda r: r["response"])):
        base = {**ASK, "prompt": "Hi", "options": limit}
        check(json.loads(text(whole(s, path, {**base, "format": schema}))) == {"a": "x"}, f"{path}: a schema")
        check(text(whole(s, path, {**base, "format": "json", "options": {"num_predict": 5}})).lstrip().startswith("{"), f"{path}: json")
        check(whole(s, path, {**base, "format": "", "options": {"num_predict": 1}})["done"], f"{path}: no format")
        post(s, path, {**base, "format": "xml"}, 400)


def check_generate(s):
    base = {"model": "any", "prompt": "Once upon", "options": {"num_predict": 4, "temperature": 0}}
    one, parts = whole(s, "/api/generate", base), lines(s, "/api/generate", base)
    check("".join(p["response"] for p in parts) == one["response"] and one["eval_count"] == 4, f"generate: {one}")
    chat = whole(s, "/api/chat", {**ASK, "messages": [{"role": "user", "content": "Once upon"}]})
    check(one["response"] == chat["message"]["content"], "a prompt is a conversation of one message")
    system = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Once upon"}]
    check(whole(s, "/api/generate", {**base, "system": "Be brief."})["prompt_eval_count"] == whole(s, "/api/chat", {**ASK, "messages": system})["prompt_eval_count"],
          "system")
    raw = whole(s, "/api/generate", {**base, "raw": True})
    text = json.loads(s.request("/v1/completions", {"prompt": "Once upon", "max_tokens": 4, "temperature": 0})[2])["choices"][0]["text"]
    check(raw["response"] == text, f"raw: {raw['response']!r} {text!r}")
    check(whole(s, "/api/generate", {"model": "any"})["done_reason"] == "load", "without a prompt it only loads")


def check_tools(program):
    """A model whose answer is a call, whatever it is asked."""
    script = [crafted.GO, "<think>", "Rome", "</think>", "<tool_call>", '\n{"name": "weather", "arguments": {"city": "Rome", "days": 2}}\n', "</tool_call>", crafted.END]
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "calls")
        crafted.make(model, script)
        with open(os.path.join(folder, "t.jinja"), "w", encoding="utf-8") as f:
            f.write(TEMPLATE)
        with Server(program, "-m", model, "--chat-template-file", f.name) as s:
            show = json.loads(post(s, "/api/show", {"model": "any"})[1])
            check(show["capabilities"] == ["completion", "tools", "thinking"], f"capabilities: {show['capabilities']}")
            calls = [{"function": {"name": "weather", "arguments": {"city": "Rome", "days": 2}}}]
            history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "thinking": "So", "tool_calls": calls},
                       {"role": "tool", "tool_name": "weather", "content": "sunny"}]
            for messages in (ASK["messages"], history):
                body = {"messages": messages, "tools": [WEATHER]}
                one, parts = whole(s, "/api/chat", body), lines(s, "/api/chat", body)
                call = one["message"]["tool_calls"][0]["function"]
                check(call["name"] == "weather" and call["arguments"] == {"city": "Rome", "days": 2} and one["message"]["content"] == "", f"a call: {one}")
                check(one["message"]["thinking"] == "Rome" and one["done_reason"] == "stop", f"thinking: {one}")
                streamed = [c["function"] for p in parts for c in p["message"].get("tool_calls", [])]
                check(len(streamed) == 1 and streamed[0]["arguments"] == call["arguments"], f"in a stream: {parts}")
            for think in (True, False, "low"):
                check(whole(s, "/api/chat", {**body, "think": think})["done"], f"think {think}")


def check_models(s):
    get = {path: json.loads(s.request(path)[2]) for path in ("/api/version", "/api/tags", "/api/ps")}
    check(get["/api/version"]["version"].count(".") == 2, f"version: {get['/api/version']}")
    for path in ("/api/tags", "/api/ps"):
        model = get[path]["models"][0]
        check(model["name"] == model["model"] == "built-in" and len(model["digest"]) == 64 and model["size"] > 0, f"{path}: {model}")
        check({"format", "family", "families", "parameter_size", "quantization_level"} <= set(model["details"]), f"{path}: details")
    show = json.loads(post(s, "/api/show", {"model": "any"})[1])
    kind = show["model_info"]["general.architecture"]
    check(show["model_info"][f"{kind}.context_length"] == 1024 and show["capabilities"] == ["completion"], f"show: {show}")
    post(s, "/api/show", {}, 400)
    for method, path in (("POST", "/api/pull"), ("POST", "/api/push"), ("POST", "/api/create"), ("POST", "/api/copy"), ("DELETE", "/api/delete"),
                         ("POST", "/api/blobs/sha256:0")):
        code, _, text = s.request(path, {"model": "x"}, method=method)
        check(code == 501 and ("--model" in json.loads(text)["error"] or "mlxcel import" in json.loads(text)["error"]), f"{path}: {code} {text}")


def check_vectors(s):
    two = json.loads(post(s, "/api/embed", {"model": "any", "input": ["a", "b"]})[1])
    check(len(two["embeddings"]) == 2 and abs(sum(x * x for x in two["embeddings"][0]) - 1) < 1e-3 and two["prompt_eval_count"] > 0, "embed")
    one = json.loads(post(s, "/api/embeddings", {"model": "any", "prompt": "a"})[1])
    check(one["embedding"] == two["embeddings"][0], "embeddings")
    openai = json.loads(s.request("/v1/embeddings", {"input": "a"})[2])["data"][0]["embedding"]
    check(openai == one["embedding"], "the same numbers as OpenAI's route")
    check(len(json.loads(post(s, "/api/embed", {"model": "any", "input": "a", "dimensions": 8})[1])["embeddings"][0]) == 8, "dimensions")
    check(json.loads(post(s, "/api/embed", {"model": "any", "input": ""})[1])["embeddings"][0], "an empty text")
    long = "word " * 3000
    check(json.loads(post(s, "/api/embed", {"model": "any", "input": long})[1])["prompt_eval_count"] == 1024, "too long: cut")
    post(s, "/api/embed", {"model": "any", "input": long, "truncate": False}, 400)


def check_errors(s):
    rows = [("/api/chat", {"messages": 1}, "messages"), ("/api/chat", {"options": {"temperature": "x"}}, "temperature"),
            ("/api/chat", {"options": {"num_predict": "x"}}, "num_predict"), ("/api/chat", {"options": {"warmth": 1}}, "warmth"),
            ("/api/chat", {"think": 3}, "think"), ("/api/chat", {"keep_alive": "soon"}, "keep_alive"), ("/api/generate", {"prompt": "x", "keep_alive": []}, "keep_alive"),
            ("/api/chat", {"keep_alive": "5x"}, "keep_alive"), ("/api/chat", {"keep_alive": ""}, "keep_alive"), ("/api/embed", {"input": "x", "keep_alive": "5m m"}, "keep_alive"), ("/api/chat", {"stream": "yes"}, "stream"), ("/api/chat", {"options": 1}, "options"),
            ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["AAAA"]}]}, "pictures"), ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": "AAAA"}]}, "images"),
            ("/api/generate", {"prompt": 1}, "prompt"), ("/api/generate", {"prompt": "x", "suffix": "y"}, "suffix"),
            ("/api/generate", {"prompt": "x", "template": "y"}, "template"), ("/api/generate", {"prompt": "x", "context": [1]}, "context"),
            ("/api/embed", {"input": 1}, "input"), ("/api/embeddings", {"input": "x"}, "prompt"),
            ("/api/chat", {"messages": [{"role": "user", "content": "x " * 9000}]}, "context size")]
    for path, more, name in rows:
        error = json.loads(post(s, path, {**ASK, **more}, 400)[1])
        check(list(error) == ["error"] and isinstance(error["error"], str) and name in error["error"], f"{path} {more}: {error}")
    check(list(json.loads(post(s, "/api/nothing", {}, 404)[1])) == ["error"], "an unknown path")
    check(list(json.loads(post(s, "/api/chat", b"{", 400)[1])) == ["error"], "no JSON")


def check_pull(program):
    """A model that is served is there: clients pull before each use."""
    for args, name in (((), "built-in"), (("--alias", "named"), "named"), (("-m", "one=built-in", "-m", "two=built-in"), "two"),
                       (("-m", "one=built-in", "-m", "two=built-in"), "two:latest")):
        with Server(program, *args) as s:
            statuses = [line["status"] for line in lines(s, "/api/pull", {"model": name})]
            check(statuses == ["pulling manifest", "success"], f"{name}: {statuses}")
            check(json.loads(post(s, "/api/pull", {"name": name, "stream": False})[1]) == {"status": "success"}, f"{name}: whole")
            error = json.loads(post(s, "/api/pull", {"model": "nobody"}, 501)[1])["error"]
            check("started without --model" in error, f"another one: {error}")
            post(s, "/api/pull", {}, 400)


def check_probe(s):
    for agent, want in (("ollama-python/0.6.0", "Ollama is running"), ("ollama/0.12.0 (amd64 linux)", "Ollama is running"), ("Mozilla/5.0", "<!doctype html>")):
        code, _, text = s.request("/", headers={"User-Agent": agent})
        check(code == 200 and text.startswith(want), f"GET / of {agent}: {text[:40]}")
        check(s.request("/", headers={"User-Agent": agent}, method="HEAD")[0] == 200, f"HEAD / of {agent}")


def loaded(s):
    """Names, and when they go."""
    return {m["name"]: m["expires_at"] for m in json.loads(s.request("/api/ps")[2])["models"]}


def check_keep_alive(program):
    """Of several models: 0 lets one go at once, -1 keeps it, a time is told by /api/ps."""
    def ask(name, **more):
        return whole(s, "/api/generate", {"model": name, "prompt": "Hi", "options": {"num_predict": 2}, **more})

    def wait_gone(name):
        s.wait_for(lambda _: name not in loaded(s))
        return name not in loaded(s)

    with Server(program, "-m", "one=built-in", "-m", "two=built-in", "-m", "three=built-in") as s:
        for forever in (-1, "-1", "-5m"):
            ask("one", keep_alive=forever)
            check(loaded(s)["one"].startswith("2318-"), f"keep_alive {forever!r}: it stays, {loaded(s)}")
        soon = {keep: (ask("two", keep_alive=keep), loaded(s)["two"])[1] for keep in (60, "1m", "1h30m", "90s", 3600.5)}
        check(soon[60][:16] <= soon["90s"][:16] < soon["1h30m"] and not soon["1m"].startswith("2318"), f"when it goes: {soon}")
        check(soon[60] < soon[3600.5] < soon["1h30m"], f"in the order of the times: {soon}")
        check(ask("two", keep_alive=0)["done"] and wait_gone("two"), "keep_alive 0: it goes behind its answer")
        check("one" in loaded(s), "and no other")
        check(ask("two")["done"] and "two" in loaded(s), "the next request brings it back, with the time of its settings")
        n_loads = s.metrics()["mlxcel_model_loads_total"]
        gone = whole(s, "/api/generate", {"model": "two", "keep_alive": 0})
        check(gone["done_reason"] == "unload" and wait_gone("two"), f"a request that only unloads: {gone}")
        gone = whole(s, "/api/chat", {"model": "three", "messages": [], "keep_alive": "0s"})
        check(gone["done_reason"] == "unload" and s.metrics()["mlxcel_model_loads_total"] == n_loads, "and loads nothing for that")
        post(s, "/api/show", {"model": "three", "keep_alive": 0})
        for path, body in (("/api/embeddings", {"prompt": "", "keep_alive": 0}), ("/api/embed", {"input": "x", "keep_alive": 0})):
            post(s, path, {"model": "three", **body})
            check(wait_gone("three"), f"{path}: it goes behind its vectors")
    with Server(program) as s:
        check(ask("any", keep_alive=0)["done"] and ask("any")["done"] and list(loaded(s).values())[0].startswith("2318-"), "one model alone stays")


def main():
    program = sys.argv[1]
    with Server(program) as s:
        for part in (check_chat, check_format, check_generate, check_models, check_vectors, check_errors, check_probe):
            part(s)
    check_tools(program)
    check_keep_alive(program)
    check_pull(program)
    finish()


if __name__ == "__main__":
    main()
