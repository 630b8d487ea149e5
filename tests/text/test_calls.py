#!/usr/bin/env python3
"""The command `mlxcel parse`: its options, the cases of calls.jsonl, and with DATA those of toolcalls/cases.jsonl; as messages and
as streams, whose deltas must be what OpenAI's clients take.

usage: test_calls.py PROGRAM [DATA]      last line: "N passed, N failed"
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

n_passed = n_failed = 0
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "R\u00f6m"}}\n</tool_call>'


def check(ok, what):
    global n_passed, n_failed
    n_passed, n_failed = n_passed + bool(ok), n_failed + (not ok)
    if not ok:
        print(f"FAILED {what}")


def run(program, *args, stdin=""):
    done = subprocess.run([program, "parse", *map(str, args)], input=stdin.encode(), capture_output=True, timeout=120, check=False)
    return done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8", "replace")


def message(program, *args, stdin):
    rc, out, err = run(program, *args, stdin=stdin)
    check(rc == 0 and out.count("\n") == 1, f"{args}: exit code {rc}, {out!r} {err!r}")
    return json.loads(out) if rc == 0 else {}


def join(lines):
    """The message that a client makes of the deltas; None where one breaks the rules."""
    whole = {"role": "assistant", "content": None, "reasoning_content": None, "tool_calls": []}
    for delta in map(json.loads, lines):
        if len(delta) != 1:
            return None
        for key in ("content", "reasoning_content"):
            if key in delta:
                if not delta[key]:
                    return None
                whole[key] = (whole[key] or "") + delta[key]
        for call in delta.get("tool_calls", []):
            calls, begins = whole["tool_calls"], "id" in call
            if begins != (call["index"] == len(calls)) or begins != ("name" in call["function"]) or begins != (call.get("type") == "function"):
                return None
            if begins:
                calls.append({"id": call["id"], "type": "function", "function": {"name": call["function"]["name"], "arguments": ""}})
            if call["index"] != len(calls) - 1:
                return None
            calls[-1]["function"]["arguments"] += call["function"]["arguments"]
    return whole


def options(program, folder):
    tools = folder / "tools.json"
    tools.write_text(json.dumps([WEATHER]), encoding="utf-8")
    (folder / "t.jinja").write_text("{{ '<tool_call>\\n{\"name\": ' }}", encoding="utf-8")
    (folder / "model").mkdir()
    (folder / "model" / "tokenizer_config.json").write_text(json.dumps({"chat_template": "<arg_key> <tool_call>"}), encoding="utf-8")
    (folder / "bare").mkdir()
    (folder / "bad.json").write_text('{"a": 1}', encoding="utf-8")
    text = "<think>\nhm\n</think>\n\nOne moment.\n" + CALL
    want = {"role": "assistant", "content": "One moment.", "reasoning_content": "hm", "tool_calls": [
        {"id": "call_baaaaaaaaa", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "R\u00f6m"}'}}]}
    for args in (["--format", "hermes"], ["--template", folder / "t.jinja"], ["--format", "hermes", "--tools", tools],
                 ["--format", "hermes", "--piece", 0], ["--format", "hermes", "--piece", 7], ["--format", "hermes", "--as-it-comes"]):
        check(message(program, *args, stdin=text) == want, f"{args}")
    glm = "<tool_call>get_weather<arg_key>city</arg_key><arg_value>7</arg_value><arg_key>days</arg_key><arg_value>7</arg_value></tool_call>"
    got = message(program, "-m", folder / "model", "--tools", tools, stdin=glm)
    check(got["tool_calls"][0]["function"]["arguments"] == '{"city": "7", "days": 7}', f"-m with tools: {got}")
    got = message(program, "-m", folder / "model", stdin=glm)
    check(got["tool_calls"][0]["function"]["arguments"] == '{"city": 7, "days": 7}', f"-m without tools: {got}")
    rc, out, err = run(program, "-m", folder / "bare", stdin="<think>a</think>b")
    check(rc == 0 and json.loads(out)["reasoning_content"] == "a" and "no way to write tool calls" in err, f"a model without a template: {out} {err}")
    for prompt, text, reasoning, content in ((["-p", "<think>\n"], "a</think>b", "a", "b"), (["-p", "x"], "a</think>b", None, "a</think>b"),
                                             ([], "a</think>b", "a", "b"), ([], "a", None, "a"), (["-p", "<think>"], "a", "a", None)):
        got = message(program, "--format", "hermes", *prompt, stdin=text)
        check((got["reasoning_content"], got["content"]) == (reasoning, content), f"{prompt} {text}: {got}")
    code = "<|python_tag|>print(1)"
    check(message(program, "--format", "llama31_builtin", stdin=code)["tool_calls"][0]["function"]["arguments"] == '{"code": "print(1)"}', "code")
    check(message(program, "--format", "llama31_builtin", "--cut", stdin=code)["content"] == code, "code that is cut")
    rc, out, _ = run(program, "--list")
    check(rc == 0 and len(out.split()) == 57 and "hermes" in out.split(), f"--list: {out}")
    for args, code, part in (([], 2, "--format"), (["--format", "hermez"], 2, "the nearest is hermes"), (["--format", "hermes", "--tools", folder / "no.json"], 1, "no.json"),
                             (["--format", "hermes", "--tools", folder / "bad.json"], 2, "bad.json: tools must be a list"),
                             (["--jsonl", "--stream"], 2, "do not go together"), (["-m", folder / "nope"], 1, "nope")):
        rc, out, err = run(program, *args, stdin="x")
        check((rc, out) == (code, "") and part in err and len(err.strip().split("\n")) == 1, f"{args}: exit code {rc}, {err!r}")


def stream(program, args, text, want):
    for piece in (1, 3, 1000):
        rc, out, _ = run(program, *args, "--stream", "--piece", piece, stdin=text)
        check(rc == 0 and join(out.split("\n")[:-1]) == want, f"{args} --stream --piece {piece}: {out}")


def deltas(program):
    for text in ("Hi <tool_call>x" + CALL + "\n" + CALL, "<think>a</think>b", "", "\u00e9\u4e2d\U0001f600", CALL[:30]):
        stream(program, ["--format", "hermes"], text, message(program, "--format", "hermes", stdin=text))
    rc, out, _ = run(program, "--format", "hermes", "--stream", "--as-it-comes", stdin=CALL)
    parts = [d["tool_calls"][0]["function"]["arguments"] for d in map(json.loads, out.split("\n")[:-1])]
    check(rc == 0 and len(parts) > 10 and "".join(parts) == '{"city": "R\u00f6m"}', f"--as-it-comes: {out}")


def same(got, want):
    if want == "*":
        return True
    return (got or "").strip() == (want or "").strip()


def fits(got, want):
    calls = got["tool_calls"]
    if len(calls) != len(want["tool_calls"]) or not same(got["content"], want["content"]) or not same(got["reasoning_content"], want["reasoning"]):
        return False
    return all(w.get("partial") is None and c["function"]["name"] == w["name"] and json.loads(c["function"]["arguments"]) == w["arguments"]
               for c, w in zip(calls, want["tool_calls"]))


def cases(program, path):
    """How the prompt ended is said, left out, or stands before the text."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    usual = rows.pop(0)["tools"] if "raw" not in rows[0] else None
    for way in ("said", "left out", "before"):
        lines = [{"format": r["format"], "text": (r["prompt_tail"] if way == "before" else "") + r["raw"], "tools": r.get("tools", usual),
                  **({"prompt": r["prompt_tail"]} if way == "said" else {})} for r in rows]
        rc, out, _ = run(program, "--jsonl", stdin="".join(json.dumps(line) + "\n" for line in lines) + "\n{nonsense\n")
        answers = [json.loads(line) for line in out.split("\n")[:-1]]
        check(rc == 0 and len(answers) == len(rows) + 1 and "error" in answers[-1], f"{path.name}: exit code {rc}, {len(answers)} lines")
        for row, got in zip(rows, answers):
            if way == "left out" and row.get("needs_prompt"):
                continue
            check(any(fits(got, want) for want in [row["expect"], *row.get("accept", [])]), f"{row['id']}, prompt {way}: {got}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        options(program, Path(folder))
    deltas(program)
    cases(program, Path(__file__).parent / "calls.jsonl")
    if len(sys.argv) > 2 and (Path(sys.argv[2]) / "toolcalls" / "cases.jsonl").exists():
        cases(program, Path(sys.argv[2]) / "toolcalls" / "cases.jsonl")
    print(f"{n_passed} passed, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
