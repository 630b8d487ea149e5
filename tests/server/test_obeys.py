#!/usr/bin/env python3
"""Answers that obey: schemas, grammars, expressions, choices and forced calls, from a model with random weights that wants to say anything;
whole, streamed, with company, with log-probabilities, with stops; and what is refused.

usage: test_obeys.py PROGRAM      last line: "N passed, N failed"
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import crafted  # noqa: E402
from harness import Server, check, finish  # noqa: E402

program = os.path.abspath(sys.argv[1])
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SCHEMA = {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "minimum": 0, "maximum": 30},
                                           "good": {"type": "boolean"}}, "required": ["kind", "age", "good"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": False}}}
    for name in ("first", "second")]
# shows how calls are written, and where reasoning is
TEMPLATE = ("{% if tools %}<tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>{{ tools | tojson }}{% endif %}"
            "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:{% if think %}<think>\n{% endif %}")


def ask(s, path=CHAT, **more):
    body = {"max_tokens": 300, "seed": 5, **more}
    body.setdefault(*(("messages", [{"role": "user", "content": "Hi"}]) if path == CHAT else ("prompt", "Hi")))
    code, _, text = s.request(path, body)
    return code, text if body.get("stream") else json.loads(text)


def is_animal(text):
    v = json.loads(text)
    return set(v) == {"kind", "age", "good"} and v["kind"] in ("cat", "dog") and 0 <= v["age"] <= 30 and isinstance(v["good"], bool)


def frames(text):
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]


def ends_well(s, what, good, path=CHAT, **more):
    """The answer ends by itself and is good."""
    code, v = ask(s, path, **more)
    text = code == 200 and (v["choices"][0]["message"]["content"] if path == CHAT else v["choices"][0]["text"])
    check(code == 200 and v["choices"][0]["finish_reason"] == "stop" and good(text), f"{what}: {code} {str(v)[:300]}")
    return text


def check_kinds(s):
    """Every field that asks for a form, under OpenAI's default temperature of 1."""
    schema = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA, "strict": True}}
    ends_well(s, "response_format json_schema", is_animal, response_format=schema)
    ends_well(s, "a schema beside json_object", is_animal, response_format={"type": "json_object", "schema": SCHEMA})
    for field in ("json_schema", "guided_json"):
        ends_well(s, field, is_animal, **{field: SCHEMA})
        ends_well(s, f"{field} in completions", is_animal, TEXT, **{field: SCHEMA})
    ends_well(s, "a schema as text", is_animal, guided_json=json.dumps(SCHEMA))
    ends_well(s, "grammar", lambda t: re.fullmatch(r"ab{1,3}c", t), grammar='root ::= "a" "b"{1,3} "c"')
    ends_well(s, "guided_grammar", lambda t: t in ("x", "yy"), guided_grammar='root ::= "x" | "yy"')
    ends_well(s, "guided_regex", lambda t: re.fullmatch(r"[0-9]{3}-[a-f]{2}", t), guided_regex="[0-9]{3}-[a-f]{2}")
    ends_well(s, "guided_choice", lambda t: t in ('say "a"', "b\\c\n"), guided_choice=['say "a"', "b\\c\n"])
    for inner, good in (({"json": SCHEMA}, is_animal), ({"regex": "(ab)+c"}, lambda t: re.fullmatch("(ab)+c", t)), ({"choice": ["p", "q"]}, lambda t: t in "pq"),
                        ({"grammar": 'root ::= "g"'}, lambda t: t == "g")):
        ends_well(s, f"structured_outputs {list(inner)}", good, structured_outputs=inner)
    code, v = ask(s, response_format={"type": "json_object"}, logit_bias={})
    check(code == 200 and v["choices"][0]["message"]["content"].lstrip().startswith("{"), f"json_object: {code} {str(v)[:200]}")


def check_jumps(s):
    """Text that must come takes no step of its own, and is the same where each of its tokens is looked at."""
    words = "the sun is shining and the birds sing in the trees of the old garden"
    form = {"guided_regex": f"(a|b) {words}", "max_tokens": 100}
    before = s.metrics()["mlxcel_steps_total"]
    code, v = ask(s, **form)
    steps = s.metrics()["mlxcel_steps_total"] - before
    text, n = v["choices"][0]["message"]["content"], v["usage"]["completion_tokens"]
    check(text[1:] == " " + words and text[0] in "ab", f"the text: {text}")
    check(n > 10 and steps < n / 2, f"{n} tokens took {steps} steps")
    _, v = ask(s, logprobs=True, **form)
    tokens = v["choices"][0]["logprobs"]["content"]
    check(v["choices"][0]["message"]["content"] == text and v["usage"]["completion_tokens"] == n, f"looked at: {v}")
    check("".join(t["token"] for t in tokens) == text and all(t["logprob"] < 0 for t in tokens), f"its tokens: {tokens}")
    _, v = ask(s, **{**form, "max_tokens": n - 3})
    check(v["usage"]["completion_tokens"] == n - 3 and v["choices"][0]["finish_reason"] == "length", f"a limit inside it: {v}")
    _, v = ask(s, stop=["birds"], **form)
    check(v["choices"][0]["message"]["content"] == text[:text.index("birds")], f"a stop string inside it: {v}")
    parts = frames(ask(s, stream=True, **form)[1])
    check("".join(p["choices"][0]["delta"].get("content") or "" for p in parts if p["choices"]) == text, "streamed: the same text")


def check_combinations(s):
    """The same text whole and streamed, alone and with company, with log-probabilities; n choices that differ; stops and limits still end it."""
    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}
    text = ends_well(s, "alone", is_animal, **form)
    parts = frames(ask(s, stream=True, **form)[1])
    check("".join(p["choices"][0]["delta"].get("content") or "" for p in parts if p["choices"]) == text, "streamed: the same text")
    _, v = ask(s, logprobs=True, top_logprobs=2, **form)
    tokens = v["choices"][0]["logprobs"]["content"]
    check(v["choices"][0]["message"]["content"] == text and all(len(t["top_logprobs"]) == 2 for t in tokens), "with log-probabilities: the same text")
    got = [None] * 6

    def one(i):
        got[i] = ask(s, **form)[1] if i % 2 else ask(s, ignore_eos=True, max_tokens=40)[1]

    threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(all(got[i]["choices"][0]["message"]["content"] == text for i in (1, 3, 5)), "in company: the same text")
    _, v = ask(s, n=4, **form)
    texts = [c["message"]["content"] for c in v["choices"]]
    check(all(map(is_animal, texts)) and texts[0] == text and len(set(texts)) > 1, f"four choices: {texts}")
    code, v = ask(s, stop=['"age"'], **form)
    check(v["choices"][0]["finish_reason"] == "stop" and text.startswith(v["choices"][0]["message"]["content"]), f"a stop string ends it: {v}")
    code, v = ask(s, **{**form, "max_tokens": 3})
    check(v["choices"][0]["finish_reason"] == "length" and text.startswith(v["choices"][0]["message"]["content"]), f"a limit ends it: {v}")
    code, v = ask(s, **{**form, "guided_regex": "[ab]*", "response_format": None, "ignore_eos": True, "max_tokens": 60})
    c = v["choices"][0]
    check(c["finish_reason"] == "length" and set(c["message"]["content"]) <= set("ab"), f"ignore_eos: the grammar goes on as long as it can: {v}")
    for sampling in ({"temperature": 0}, {"temperature": 1.5, "top_k": 3, "top_p": 0.5}, {"repetition_penalty": 1.3, "frequency_penalty": 1}, {"mirostat": 2},
                     {"dry_multiplier": 1, "min_p": 0.1, "ignore_eos": True}):
        ends_well(s, f"sampled with {sampling}", is_animal, **form, **sampling)


def is_call(call, names):
    return call["type"] == "function" and call["function"]["name"] in names and 1 <= json.loads(call["function"]["arguments"])["n"] <= 9


def check_tools(s):
    """Calls that must be made are made, with arguments by the tool's schema; auto leaves the model free; a schema beside tools."""
    for choice, names in (("required", ("first", "second")), ({"type": "function", "function": {"name": "second"}}, ("second",))):
        code, v = ask(s, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
        c = code == 200 and v["choices"][0]
        check(code == 200 and c["finish_reason"] == "tool_calls" and len(c["message"]["tool_calls"]) == 1 and c["message"]["content"] is None
              and is_call(c["message"]["tool_calls"][0], names), f"tool_choice {choice}: {code} {str(v)[:300]}")
        parts = frames(ask(s, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, stream=True)[1])
        deltas = [d for p in parts if p["choices"] for d in p["choices"][0]["delta"].get("tool_calls", [])]
        check(deltas and deltas[0]["function"]["name"] == c["message"]["tool_calls"][0]["function"]["name"] and deltas[0]["id"]
              and "".join(d["function"]["arguments"] for d in deltas) == c["message"]["tool_calls"][0]["function"]["arguments"],
              f"streamed calls, tool_choice {choice}: {deltas}")
    code, v = ask(s, tools=TOOLS, tool_choice="required", max_tokens=400)
    calls = code == 200 and v["choices"][0]["message"]["tool_calls"]
    check(calls and all(is_call(c, ("first", "second")) for c in calls), f"calls in parallel: {code} {str(v)[:300]}")
    check(ask(s, tools=TOOLS, max_tokens=20)[0] == 200, "tools that may be called")
    code, v = ask(s, tools=TOOLS, response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}, parallel_tool_calls=False)
    m = code == 200 and v["choices"][0]["message"]
    check(m and (is_call(m["tool_calls"][0], ("first", "second")) if m.get("tool_calls") else is_animal(m["content"])), f"tools or a schema: {code} {v}")


def events(text):
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def check_parts(s):
    """Arguments come while they are written, in every protocol that has streams of them: several pieces, which are one JSON text."""
    schema = {"type": "object", "properties": {"text": {"type": "string", "minLength": 40, "maxLength": 60}}, "required": ["text"], "additionalProperties": False}
    user, limit = [{"role": "user", "content": "hello"}], {"stream": True, "temperature": 0}
    chat = {"messages": user, "tools": [{"type": "function", "function": {"name": "say", "parameters": schema}}], "tool_choice": "required", "max_tokens": 300,
            "parallel_tool_calls": False}
    anthropic = {"model": "m", "messages": user, "tools": [{"name": "say", "input_schema": schema}], "tool_choice": {"type": "any"}, "max_tokens": 300}
    responses = {"input": "hello", "tools": [{"type": "function", "name": "say", "parameters": schema}], "tool_choice": "required", "max_output_tokens": 300,
                 "parallel_tool_calls": False}
    def of_chat(e):
        return [d["function"]["arguments"] for c in e.get("choices", []) for d in c["delta"].get("tool_calls", [])]
    def of_anthropic(e):
        return [e["delta"]["partial_json"]] if e.get("delta", {}).get("type") == "input_json_delta" else []
    def of_responses(e):
        return [e["delta"]] if e["type"] == "response.function_call_arguments.delta" else []
    def of_cut_chat(all):
        return [c["finish_reason"] for e in all for c in e["choices"] if c["finish_reason"]] == ["length"]
    def of_cut_anthropic(all):
        return [e["delta"]["stop_reason"] for e in all if e["type"] == "message_delta"] == ["max_tokens"]
    def of_cut_responses(all):
        return all[-1]["type"] == "response.incomplete" and all[-1]["response"]["output"][-1]["status"] == "incomplete"
    for path, body, parts_of, end_of in (("/v1/chat/completions", chat, of_chat, of_cut_chat), ("/v1/messages", anthropic, of_anthropic, of_cut_anthropic),
                                         ("/v1/responses", responses, of_responses, of_cut_responses)):
        code, _, text = s.request(path, {**body, **limit})
        parts = [p for e in events(text) for p in parts_of(e) if p] if code == 200 else []
        check(len(parts) > 1, f"{path}: {len(parts)} pieces of the arguments, {code} {text[:200]}")
        check(parts and 40 <= len(json.loads("".join(parts))["text"]) <= 60, f"{path}: {parts}")
        cut = events(s.request(path, {**body, **limit, "max_output_tokens" if path.endswith("responses") else "max_tokens": 44})[2])
        check([p for e in cut for p in parts_of(e) if p] and end_of(cut), f"{path}: a call that its limit cut: {cut[-3:]}")


def check_own_calls(folder):
    """A call that the model makes by itself is held to its tool from where it begins: one that would be wrong is written right."""
    parameters = {"type": "object", "properties": {"city": {"enum": ["Bonn", "Kiel"]}, "days": {"type": "integer", "minimum": 1, "maximum": 3}},
                  "required": ["city", "days"], "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in ("weather", "tides")]
    model = crafted.make(os.path.join(folder, "agent"), crafted.WRONG_AGENT, template=crafted.AGENT_TEMPLATE, more_words=crafted.LETTERS)
    with Server(program, "-m", str(model)) as s:
        free = ask(s, messages=[{"role": "user", "content": "hello"}], tools=tools, tool_choice="none", temperature=0)[1]["choices"][0]
        check("two" in free["message"]["content"], f"by itself it writes a wrong call: {free}")
        seen = set()
        for seed in range(6):
            code, v = ask(s, messages=[{"role": "user", "content": "hello"}], tools=tools, seed=seed, max_tokens=200)
            c = v["choices"][0]
            call = c["message"]["tool_calls"][0]["function"]
            arguments = json.loads(call["arguments"])
            check(c["finish_reason"] == "tool_calls" and call["name"] in ("weather", "tides") and c["message"]["content"] == "Let me see.", f"seed {seed}: {v}")
            check(set(arguments) == {"city", "days"} and arguments["city"] in ("Bonn", "Kiel") and arguments["days"] in (1, 2, 3), f"seed {seed}: {call}")
            seen.add((call["name"], call["arguments"]))
        check(len(seen) > 1, f"it still chooses: {seen}")


def check_reasoning(s):
    """The form begins behind the reasoning; a budget ends it."""
    thinking = {"chat_template_kwargs": {"think": True}, "thinking_token_budget": 12}
    code, v = ask(s, guided_choice=["yes", "no"], **thinking)
    c = v["choices"][0] if code == 200 else v
    check(code == 200 and c["message"]["content"] in ("yes", "no") and c["message"].get("reasoning_content"), f"behind the reasoning: {code} {str(v)[:300]}")
    check(code == 200 and 12 <= v["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 20, f"the budget: {str(v.get('usage'))}")


def check_refused(s):
    """What cannot be held is refused by the name of its field, with the place."""
    deep = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(a)\\1"}}}
    rows = [({"json_schema": {"type": "foo"}}, "json_schema", "foo"), ({"json_schema": deep}, "json_schema", "properties/a"), ({"grammar": "root ::= b"}, "grammar", "b"),
            ({"guided_regex": "("}, "guided_regex", ""), ({"guided_choice": []}, "guided_choice", "list"), ({"guided_choice": [1]}, "guided_choice", "strings"),
            ({"grammar": 'root ::= "a"', "guided_regex": "a"}, "guided_regex", "both"), ({"structured_outputs": {"lark": "x"}}, "structured_outputs", "lark"),
            ({"response_format": {"type": "xml"}}, "response_format", "xml"), ({"response_format": {"type": "json_schema"}}, "response_format", "schema"),
            ({"json_schema": {"enum": []}}, "json_schema", ""), ({"tools": TOOLS, "grammar": 'root ::= "a"'}, "grammar", "tools"),
            ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "third"}}}, "tool_choice", "third"),
            ({"tool_choice": "required"}, "tool_choice", "no tools"), ({"thinking_token_budget": 0}, "thinking_token_budget", "1")]
    for more, param, word in rows:
        code, v = ask(s, **more)
        check(code == 400 and v["error"]["param"] == param and word in v["error"]["message"], f"{more}: {code} {str(v)[:300]}")


def check_preemption(model):
    """On a cache that cannot hold all of them, answers are put back and go on as if nothing had been."""
    prompts = [f"Text number {i} " + "begins so " * (3 * i) for i in range(6)]
    fields = {"guided_regex": "([ab]{5} )*", "ignore_eos": True, "max_tokens": 100}

    def texts(s, prompt):
        return [c["text"] for c in ask(s, TEXT, prompt=prompt, **fields)[1]["choices"]]

    with Server(program, "-m", model, "--parallel", "1") as s:
        alone = [texts(s, p)[0] for p in prompts]
    check(all(re.fullmatch("([ab]{5} )*[ab]{0,5}", t) for t in alone) and len(set(alone)) > 1, f"six texts: {alone}")
    with Server(program, "-m", model, "--parallel", "6", "--kv-tokens", "320") as s:
        for _ in range(20):
            check(texts(s, prompts) == alone, "the same texts in a small cache")
            if s.metrics()["mlxcel_preemptions_total"] > 0:
                break
        check(s.metrics()["mlxcel_preemptions_total"] > 0, "somebody was put back")


def check_commands(model, folder):
    """generate and run take schemas and grammars, as text and from files, and say what is wrong before they look at the model."""
    rules = os.path.join(folder, "rules.gbnf")
    with open(rules, "w", encoding="utf-8") as f:
        f.write('root ::= "x" [0-9]+ "y"')

    def run(*args):
        return subprocess.run([program, *args], capture_output=True, text=True, encoding="utf-8")

    r = run("generate", "-m", model, "-p", "Hi", "-n", "200", "--temp", "1", "--seed", "3", "--json-schema", json.dumps(SCHEMA))
    check(r.returncode == 0 and is_animal(r.stdout), f"generate --json-schema: {r}")
    r = run("generate", "-m", model, "-p", "Hi", "-n", "40", "--temp", "1", "--seed", "3", "--grammar", 'root ::= "ab" | "cd"')
    check(r.stdout in ("ab\n", "cd\n"), f"generate --grammar: {r}")
    r = run("run", model, "-p", "Hi", "-n", "400", "--seed", "3", "--grammar-file", rules)
    check(re.fullmatch("x[0-9]+y\n", r.stdout), f"run --grammar-file: {r}")
    r = run("generate", "-m", "no-such-model-folder/x", "-p", "Hi", "--json-schema", '{"type": "foo"}')
    check(r.returncode == 2 and "--json-schema" in r.stderr and "foo" in r.stderr, f"a schema that is wrong: {r}")
    r = run("generate", "-m", model, "-p", "Hi", "--json-schema", "{}", "--grammar-file", rules)
    check(r.returncode == 2 and "exclude each other" in r.stderr, f"two at once: {r}")
    r = run("generate", "-m", model, "-p", "Hi", "--grammar-file", rules + "x")
    check(r.returncode != 0 and "rules.gbnfx" in r.stderr, f"a file that is not there: {r}")


with tempfile.TemporaryDirectory() as folder:
    model = os.path.join(folder, "model")
    subprocess.run([program, "synth", "--shape", "tiny", "-o", model], check=True, capture_output=True)
    with open(os.path.join(model, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(TEMPLATE)
    with Server(program, "-m", model, "--parallel", "4") as s:
        for part in (check_kinds, check_jumps, check_combinations, check_tools, check_parts, check_reasoning, check_refused):
            part(s)
    check_own_calls(folder)
    check_preemption(model)
    check_commands(model, folder)
finish()
