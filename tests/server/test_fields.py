#!/usr/bin/env python3
"""What requests may say: fields that are refused, passed over or taken leniently; keys, paths and names; texts that go on with their prompts.

usage: test_fields.py PROGRAM      last line: "N passed, N failed[, N skipped]"
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import harness
from harness import SLOW, Server, check
from test_life import long_stream, read_all, send

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHAT, TEXT, EMBED = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
BASE = {CHAT: {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}, TEXT: {"prompt": "Hi", "max_tokens": 2}, EMBED: {"input": "Hi"}}


def frames(text):
    return [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]


# ---- fields -----------------------------------------------------------------------------------------------------------------

def listed(heading):
    """The names in the paragraph of docs/server.md that begins so: what the guide says is what is tried."""
    with open(os.path.join(ROOT, "docs", "server.md"), encoding="utf-8") as f:
        part = f.read().partition(f"**{heading}**")[2].partition("\n\n")[0]
    return re.findall(r"`([a-z_]+)`", part)


# values that ask for nothing: clients send the defaults of their own server
HARMLESS = {"min_tokens": 0, "stop_token_ids": [], "bad_words": [], "allowed_token_ids": [], "use_beam_search": False, "length_penalty": 1.0, "skip_special_tokens": True,
            "include_stop_str_in_output": False, "add_generation_prompt": True, "continue_final_message": False, "grammar": "", "modalities": ["text"],
            "tool_choice": "auto", "function_call": "none", "n_probs": 0, "top_n_sigma": -1, "reasoning_format": "auto", "include_reasoning": True,
            "vllm_xargs": {}, "return_token_ids": False, "suffix": "", "n_cmpl": 1, "verbosity": "medium", "min_keep": 0, "t_max_predict_ms": -1}
# values for fields whose other values are not refused
ASKS = {"tool_choice": "required", "skip_special_tokens": False, "include_reasoning": False, "use_activation": False,
        "normalize": False, "tools": [{"type": "function", "function": {"name": "f"}}], 
        "echo": True, "modalities": ["text", "audio"]}


def check_refused(s):
    """Every field that the guide lists as refused is, by its name."""
    for path, heading in ((CHAT, "Refused in chats"), (TEXT, "Refused in completions"), (EMBED, "Refused in embeddings")):
        names = listed(heading) + (listed("Refused in both") if path != EMBED else [])
        check(len(names) > 5, f"the guide lists fields: {heading}")
        for name in names:
            value = ASKS.get(name, False if name == "add_special_tokens" and path != CHAT else True)
            code, _, text = s.request(path, {**BASE[path], name: value})
            error = json.loads(text).get("error", {})
            check(code == 400 and error.get("param") == name and name in error["message"], f"{path} {name}: {code} {text[:200]}")
            check(s.request(path, {**BASE[path], name: None})[0] == 200, f"{path} {name}: null")
    for name, value in HARMLESS.items():
        code, _, text = s.request(TEXT if name == "suffix" else CHAT, {**BASE[CHAT], **BASE[TEXT], name: value})
        check(code == 200, f"{name} {value!r} asks for nothing: {code} {text[:200]}")
    code, _, text = s.request(CHAT, b'{"messages":[{"role":"user","content":"Hi"}],"max_tokens":2,"samplers":"","samplers":"top_k"}')
    check(code == 400 and json.loads(text)["error"]["param"] == "samplers", f"a field twice: {code} {text[:200]}")
    code, _, text = s.request(CHAT, {**BASE[CHAT], "tools": ASKS["tools"], "tool_choice": "none"})
    check(code == 200, f"tools that are not to be used: {code} {text[:200]}")


def check_passed_over(s):
    """Every field that the guide lists as one without effect has none, and nor has one that nobody knows."""
    names = listed("Taken without effect")
    check(len(names) > 20, f"the guide lists fields without effect: {names}")
    for path in (CHAT, TEXT):
        want = json.loads(s.request(path, {**BASE[path], "temperature": 0})[2])["choices"]
        for name in [*names, "unknown_field"]:
            code, _, text = s.request(path, {**BASE[path], "temperature": 0, name: 7})
            check(code == 200 and json.loads(text)["choices"] == want, f"{path} {name}: {code} {text[:200]}")


def check_lenient(s):
    """What clients send and mean nothing bad by; and what beside it is still wrong."""
    tool = {"messages": [{"role": "user", "content": "Hi"}, {"role": "tool", "content": None, "tool_call_id": "a"}, {"role": "function", "name": "f"}]}
    rows = [(CHAT, {"top_k": None}, 200), (CHAT, {"min_p": None, "typical_p": None, "repetition_penalty": None, "mirostat": None, "ignore_eos": None}, 200),
            (CHAT, {"dry_sequence_breakers": None, "chat_template_kwargs": None, "reasoning_effort": None, "temp": None}, 200),
            (CHAT, {"max_tokens": -1, "stop": [" "]}, 200), (CHAT, {"max_tokens": None, "max_completion_tokens": -1, "stop": [" "]}, 200),
            (TEXT, {"max_tokens": -1, "stop": [" "]}, 200), (CHAT, {"max_tokens": 0}, 400), (CHAT, {"max_tokens": -2}, 400), (TEXT, {"max_tokens": -2}, 400),
            (CHAT, {"stop": ""}, 200), (TEXT, {"stop": ""}, 200), (CHAT, {"stop": [""]}, 400), (CHAT, {"stop": [1]}, 400), (CHAT, {"n_predict": 2, "n_cmpl": 1}, 200), (TEXT, {"n_predict": 2}, 200),
            (CHAT, {"stream_options": {"include_usage": True}}, 200), (TEXT, {"stream_options": {"include_usage": True}, "stream": False}, 200),
            (CHAT, {"stream_options": {}}, 200), (CHAT, {"stream_options": {"include_usage": 1}}, 400), (CHAT, {"stream_options": 1}, 400),
            (CHAT, {"top_logprobs": 0}, 200), (CHAT, {"top_logprobs": 0, "logprobs": False}, 200), (CHAT, {"top_logprobs": 1}, 400),
            (CHAT, {"top_logprobs": 0, "logprobs": True}, 200), (CHAT, tool, 200), (CHAT, {"messages": [{"role": "user", "content": None}]}, 400),
            (CHAT, {"reasoning_effort": "low"}, 200), (CHAT, {"reasoning_effort": "none"}, 200), (CHAT, {"reasoning_effort": 1}, 400)]
    for path, more, want in rows:
        code, _, text = s.request(path, {**BASE[path], **more})
        check(code == want, f"{path} {more}: {code} {text[:200]}")
    code, _, text = s.request(CHAT, {**BASE[CHAT], "max_tokens": -2})
    check("-1 for no limit" in text, f"the message names -1: {text}")
    code, _, text = s.request(TEXT, {**BASE[TEXT], "max_tokens": -1, "stop": " the"})
    check(code == 200 and '"finish_reason":"stop"' in text, f"no limit: {text}")
    parts = frames(s.request(CHAT, {**BASE[CHAT], "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}})[2])
    counts = [(p.get("usage") or {}).get("completion_tokens", 0) for p in parts]
    check(counts == sorted(counts) and counts[-1] == 2 and counts[0] > 0, f"usage in each piece: {counts}")


def check_effort(program):
    """reasoning_effort reaches the template as keywords; those of chat_template_kwargs go before."""
    template = "{{ messages[0].content }}|{{ reasoning_effort }}|{{ enable_thinking }}|"
    with tempfile.TemporaryDirectory() as folder:
        model = made_model(program, folder)
        with open(os.path.join(model, "chat_template.jinja"), "w", encoding="utf-8") as f:
            f.write(template)
        with Server(program, "-m", model, "--parallel", "1") as s:
            def count(**more):
                code, _, text = s.request(CHAT, {**BASE[CHAT], **more})
                return json.loads(text)["usage"]["prompt_tokens"] if code == 200 else text

            def plain(text):
                return json.loads(s.request(TEXT, {"prompt": text, "max_tokens": 1})[2])["usage"]["prompt_tokens"]
            for more, want in (({}, "Hi|||"), ({"reasoning_effort": "low"}, "Hi|low|True|"), ({"reasoning_effort": "none"}, "Hi||False|"),
                               ({"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "outstanding", "enable_thinking": 1}}, "Hi|outstanding|1|")):
                check(count(**more) == plain(want), f"{more}: {count(**more)} tokens instead of {plain(want)} of {want!r}")


# ---- keys, paths, names -----------------------------------------------------------------------------------------------------

def check_keys(program):
    with Server(program, "--parallel", "1", "--api-key", "sesame", "--log-level", "debug") as s:
        for headers, want in (({"Authorization": "Bearer sesame"}, 200), ({"x-api-key": "sesame"}, 200), ({"api-key": "sesame"}, 200),
                              ({"Api-Key": "wrong", "X-Api-Key": "sesame"}, 200), ({"Authorization": "Bearer wrong", "api-key": "sesame"}, 200),
                              ({"Authorization": "sesame"}, 401), ({"x-api-key": "Bearer sesame"}, 401), ({"x-api-key": "sesam"}, 401), ({"api-key": ""}, 401)):
            code, _, text = s.request("/v1/models", headers=headers)
            check(code == want, f"{headers}: {code} {text}")
            check(want == 200 or '"code":"invalid_api_key"' in text, f"{headers}: {text}")
    check("sesame" not in s.log, "keys do not stand in the log")


def check_paths(s):
    for path in ("//v1/models", "/v1/models/", "///v1//models//", "/v1//models?x=//"):
        code, _, text = s.request(path)
        check(code == 200 and json.loads(text)["object"] == "list", f"{path}: {code} {text}")
    for path in ("//v1/chat/completions", "/v1/chat/completions/"):
        check(s.request(path, BASE[CHAT])[0] == 200, path)
    code, headers, _ = s.request("//")
    check(code == 200 and "text/html" in headers["Content-Type"], "the page behind two slashes")
    check(s.request("/v1/model")[0] == 404 and s.request("/v1/modelss/")[0] == 404, "other paths")


def check_names(s):
    code, _, text = s.request("/v1/models/NONSENSE")
    error = json.loads(text).get("error", {})
    check(code == 404 and set(error) == {"message", "type", "param", "code"}, f"a model that is not there: {code} {text}")
    check(error.get("code") == "model_not_found" and error["type"] == "invalid_request_error" and "NONSENSE" in error["message"], f"and its error: {error}")
    for path, want in (("/v1/models/built-in", 200), ("/v1/models/built%2Din", 200), ("/v1/models/built-i", 404), ("/v1/models/built-in2", 404),
                       ("/v1/models/%", 404), ("/v1/models/built-i%6", 404), ("/v1/models/built-i%6e", 200)):
        check(s.request(path)[0] == want, path)


def check_named(program):
    with Server(program, "--parallel", "1", "--alias", "org/my model", "--temperature", "0.35", "--top-k", "7") as s:
        sampling = json.loads(s.request("/v1/models")[2])["data"][0]["meta"].get("sampling", {})
        check((sampling.get("temperature"), sampling.get("top_k")) == (0.35, 7), f"what requests begin with: {sampling}")
        for path, want in (("org/my%20model", 200), ("org%2fmy%20model", 200), ("org%2Fmy%20model/", 200), ("built-in", 404)):
            check(s.request("/v1/models/" + path)[0] == want, f"a name with a slash: {path}")


def check_fingerprint(program):
    def prints(*args):
        with Server(program, "--parallel", "1", *args) as s:
            whole = [json.loads(s.request(p, BASE[p])[2])["system_fingerprint"] for p in (CHAT, TEXT)]
            parts = [f["system_fingerprint"] for p in (CHAT, TEXT) for f in frames(s.request(p, {**BASE[p], "stream": True})[2])]
            return set(whole + parts)
    one = prints()
    check(len(one) == 1 and re.fullmatch(r"fp_[0-9a-f]{16}", str(list(one)[0])), f"a fingerprint: {one}")
    check(prints() == one, "the same after a restart")
    check(prints("--alias", "other") != one, "another for another model")


# ---- streams ----------------------------------------------------------------------------------------------------------------

def check_first_frame(program):
    """The first frame comes with the first token: a stream that waits for its turn has said nothing yet but comments."""
    with Server(program, *SLOW, "--parallel", "1", "--sse-ping-interval", "1") as s:
        first = send(s.port, long_stream(prompt=["Once"] * 12, max_tokens=1000, stream=False))
        s.wait_for(lambda m: m["mlxcel_generations_running"])
        waiting = [send(s.port, {**BASE[CHAT], "stream": True}, CHAT), send(s.port, {**BASE[TEXT], "stream": True, "echo": True}, TEXT)]
        for c, word in zip(waiting, (b'"role":"assistant"', b'"text":"Hi"')):
            got = b""
            while b": keep-alive\n\n" not in got and (part := c.recv(65536)):
                got += part
            check(b" 200 OK" in got and b"data:" not in got, f"before the first token: {got!r}")
            if word == b'"text":"Hi"':
                first.close()  # its place is free at the next step
        for c, word in zip(waiting, (b'"role":"assistant"', b'"text":"Hi"')):
            got = read_all(c)
            check(got.count(word) == 1 and b"data: [DONE]" in got, f"the answer: {got[:300]!r}")


# ---- texts that go on with their prompts ------------------------------------------------------------------------------------

def made_model(program, folder, fixture=None):
    model = os.path.join(folder, fixture or "model")
    subprocess.run([program, "synth", "--shape", "tiny", "-o", model], check=True, capture_output=True)
    if fixture:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            if os.path.exists(os.path.join(model, name)):
                os.remove(os.path.join(model, name))
        own = os.path.join(ROOT, "tests", "text", "tokenizers", fixture)
        name = "tokenizer.json" if os.path.exists(os.path.join(own, "tokenizer.json")) else "tokenizer.model"
        shutil.copy(os.path.join(own, name), model)
    return model


def ask_text(s, bias, **more):
    body = {"max_tokens": 6, "temperature": 1, "seed": 5, "logit_bias": bias, "ignore_eos": True, **more}
    code, _, text = s.request(TEXT, body)
    if code != 200:
        return text, [], []
    answers = frames(text) if body.get("stream") else [json.loads(text)]
    choices = [a["choices"][0] for a in answers]
    known = [c["logprobs"] for c in choices if c["logprobs"]]
    return "".join(c["text"] for c in choices), [t for p in known for t in p["tokens"]], [o for p in known for o in p["text_offset"]]


def check_continued(program, fixture, words, special):
    """An answer is its tokens, one after another, and the prompt with it the text of both; words begin with a space, of which none is lost."""
    with tempfile.TemporaryDirectory() as folder:
        model = made_model(program, folder, fixture)
        with Server(program, "-m", model, "--parallel", "1") as s:
            bias = {str(i): 100 for i in words}
            text, tokens, offsets = ask_text(s, bias, prompt="the", logprobs=0)
            check(text.startswith(" ") and text.count(" ") >= 6, f"{fixture}: the spaces are there: {text!r}")
            check("".join(tokens) == text and len(tokens) == 6, f"{fixture}: the tokens are the text: {tokens} {text!r}")
            check(offsets == [len("".join(tokens[:i])) for i in range(6)], f"{fixture}: offsets: {offsets}")
            check(ask_text(s, bias, prompt="the", logprobs=0, stream=True) == (text, tokens, offsets), f"{fixture}: in pieces")
            for stream in (False, True):
                echoed = ask_text(s, bias, prompt="the", echo=True, stream=stream)[0]
                check(echoed == "the" + text, f"{fixture}: echo, stream {stream}: {echoed!r}")
            mixed = {**bias, str(special): 100}
            text, tokens, offsets = ask_text(s, mixed, prompt="the", logprobs=0, max_tokens=24)
            name = next((t for t in tokens if t.startswith("<")), "")
            shown = ["" if t == name else t for t in tokens]
            check(name and "".join(shown) == text, f"{fixture}: special tokens have no text: {tokens} {text!r}")
            check(offsets == [len("".join(shown[:i])) for i in range(24)], f"{fixture}: offsets around special tokens: {tokens} {offsets}")
            chat = json.loads(s.request(CHAT, {**BASE[CHAT], "logit_bias": bias, "ignore_eos": True})[2])["choices"][0]["message"]["content"]
            check(chat and not chat.startswith(" "), f"{fixture}: an answer in a chat is a text of its own: {chat!r}")


def main():
    program = sys.argv[1]
    with Server(program, "--parallel", "4") as s:
        check_refused(s)
        check_passed_over(s)
        check_lenient(s)
        check_paths(s)
        check_names(s)
        check(s.wait_quiet()["mlxcel_kv_blocks_used"] == 0, "everything came back")
    check_effort(program)
    check_keys(program)
    check_named(program)
    check_fingerprint(program)
    check_first_frame(program)
    for fixture, words, special in (("byte-fallback", (294, 296, 297, 298), 577), ("spm-bpe", (278, 279, 304, 307), 1), ("metaspace-first", (155, 157, 161), 1)):
        check_continued(program, fixture, words, special)
    harness.finish()


if __name__ == "__main__":
    main()
