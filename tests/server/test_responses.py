#!/usr/bin/env python3
"""OpenAI's responses: items in and out, numbered events, what is stored, custom tools, refusals; a loop as coding agents run it. Models say what
they were made to say.

usage: test_responses.py PROGRAM      last line: "N passed, N failed"
"""
import json
import os
import subprocess
import sys
import tempfile
import urllib.request

from harness import HANG, SLOW, Server, check, finish

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import crafted  # noqa: E402

program = os.path.abspath(sys.argv[1])
PATH, COUNT = "/v1/responses", "/v1/responses/input_tokens"
WEATHER = {"type": "function", "name": "weather", "description": "The weather of a city.", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Bonn", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"], "additionalProperties": False}}
# what Codex sends beside its functions
OTHERS = [{"type": "local_shell"}, {"type": "web_search", "external_web_access": False}, {"type": "image_generation"}]
PATCH_TOOL = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}}
PATCH = "*** Begin Patch\n*** End Patch"
PATCH_CALL = "\n" + json.dumps({"name": "apply_patch", "arguments": {"input": PATCH}}) + "\n"
PATCHER = [[crafted.GO, "<tool_call>", PATCH_CALL, "</tool_call>", crafted.END], [crafted.AGAIN, "Done.", crafted.END]]


def ask(s, path=PATH, **more):
    body = {"model": "gpt", "temperature": 0, "input": "hello", **more}
    code, _, text = s.request(path, {k: v for k, v in body.items() if v is not ...})
    return code, text if body.get("stream") is True else json.loads(text)


def events(text):
    """The data of all events; each has its type for a name, and they are numbered."""
    frames = [frame.split("\n") for frame in text.split("\n\n")[:-1]]
    got = [json.loads(data.removeprefix("data: ")) for _, data in frames]
    check([name for name, _ in frames] == ["event: " + e["type"] for e in got], f"every event's name is its type: {text}")
    check([e["sequence_number"] for e in got] == list(range(len(got))), f"events are numbered: {text}")
    return got


def gather(parts):
    """The items that a stream makes of its small events alone."""
    items = []
    for e in parts:
        if e["type"] == "response.output_item.added":
            items.append(e["item"])
        elif e["type"] == "response.content_part.added":
            items[e["output_index"]]["content"].append(e["part"])
        elif e["type"] in ("response.output_text.delta", "response.reasoning_text.delta"):
            items[e["output_index"]]["content"][e["content_index"]]["text"] += e["delta"]
        elif e["type"] == "response.function_call_arguments.delta":
            items[e["output_index"]]["arguments"] += e["delta"]
        elif e["type"] == "response.custom_tool_call_input.delta":
            items[e["output_index"]]["input"] += e["delta"]
    return items


def plain(items):
    """What two answers to the same request have in common."""
    return [{k: v for k, v in i.items() if k not in ("id", "call_id", "status")} for i in items]


def text_of(v):
    return "".join(p["text"] for i in v["output"] if i["type"] == "message" for p in i["content"])


def check_answers(s):
    code, v = ask(s, metadata={"a": "b"}, instructions="hello")
    check(code == 200 and [i["type"] for i in v["output"]] == ["reasoning", "message"] and text_of(v) == "The sum is four.", f"an answer: {v}")
    check(v["output"][0]["content"] == [{"type": "reasoning_text", "text": "Two and two"}] and v["output"][0]["summary"] == [], f"thoughts: {v}")
    check(v["id"].startswith("resp_") and v["object"] == "response" and v["status"] == "completed" and v["metadata"] == {"a": "b"} and v["instructions"] == "hello"
          and v["error"] is v["incomplete_details"] is None and v["store"] is True and v["tools"] == [] and v["tool_choice"] == "auto", f"its fields: {v}")
    check(v["usage"] == {"input_tokens": 3, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens": 10,
                         "output_tokens_details": {"reasoning_tokens": 4}, "total_tokens": 13}, f"its usage: {v['usage']}")
    parts = events(ask(s, stream=True)[1])
    once = list(dict.fromkeys(e["type"].removeprefix("response.") for e in parts))
    check(once == ["created", "in_progress", "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done",
                   "output_item.done", "output_text.delta", "output_text.done", "completed"], f"events: {once}")
    check(plain(gather(parts)) == plain(v["output"]) == plain(parts[-1]["response"]["output"]), f"a stream says the same: {parts}")
    check([e["item"] for e in parts if e["type"] == "response.output_item.done"] == parts[-1]["response"]["output"], "items that are done are those of the end")
    check(parts[0]["response"]["status"] == "in_progress" and parts[0]["response"]["output"] == [] and parts[0]["response"]["usage"] is None, f"start: {parts[0]}")
    code, v = ask(s, max_output_tokens=8)
    check(v["status"] == "incomplete" and v["incomplete_details"] == {"reason": "max_output_tokens"} and v["output"][-1]["status"] == "incomplete"
          and v["output"][0]["status"] == "completed", f"a limit: {v}")
    parts = events(ask(s, max_output_tokens=8, stream=True)[1])
    check(parts[-1]["type"] == "response.incomplete" and parts[-1]["response"]["output"][-1]["status"] == "incomplete", f"a limit of a stream: {parts[-1]}")


def check_inputs(s):
    """Every form of input that is taken, and its count: words of the script and <unk> for the rest."""
    user, parts = {"role": "user", "content": "hello"}, [{"type": "input_text", "text": "hello"}]
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    rows = [({}, 2), ({"instructions": "hello"}, 3), ({"input": [user]}, 2), ({"input": [{"type": "message", "role": "user", "content": parts}, user]}, 3),
            ({"input": [{"role": "developer", "content": "hello"}, user], "instructions": "hello"}, 4),
            ({"input": [user, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
                        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [{"type": "output_text", "text": "four", "annotations": []}]}, user]}, 4),
            ({"input": [user, call, {"type": "function_call_output", "call_id": "a", "output": "hello"}]}, 3),
            ({"input": [user, call, {"type": "function_call_output", "call_id": "a", "output": parts}]}, 3),
            ({"input": [user, {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "x"}, {"type": "custom_tool_call_output", "call_id": "a", "output": "hello"}]}, 3),
            ({"reasoning": {"effort": "low", "summary": "auto"}, "text": {"format": {"type": "text"}, "verbosity": "medium"}, "include": ["reasoning.encrypted_content"],
              "parallel_tool_calls": False, "tools": OTHERS, "prompt_cache_key": "x", "truncation": "disabled", "background": False, "user": "x", "top_p": 0.9}, 2)]
    for more, n in rows:
        code, v = ask(s, COUNT, **more)
        check(code == 200 and v == {"object": "response.input_tokens", "input_tokens": n}, f"count of {more}: {code} {v}")
        code, v = ask(s, **more)
        check(code == 200 and v["usage"]["input_tokens"] == n, f"answer to {more}: {code} {v}")
    check(ask(s, "/responses")[0] == 200, "without /v1")


def check_refused(s):
    """Each with the field as the client wrote it."""
    def item(**more):
        return {"input": [{"role": "user", "content": "hello"}, more]}
    rows = [({"input": ...}, "input"), ({"input": 1}, "input"), (item(role="tool", content="x"), "input[1]"), (item(role="user", content=1), "input[1].content"),
            (item(role="user", content=[{"type": "input_image", "image_url": "x"}]), "input[1].content[0]"), (item(type="item_reference", id="x"), "input[1]"),
            (item(type="function_call", name="f"), "input[1]"), (item(type="function_call_output", output="x"), "input[1]"), ({"instructions": 1}, "instructions"),
            ({"max_output_tokens": 0}, "max_output_tokens"), ({"max_tokens": 5}, "max_tokens"), ({"background": True}, "background"), ({"truncation": "auto"}, "truncation"),
            ({"conversation": "x"}, "conversation"), ({"prompt": {"id": "x"}}, "prompt"), ({"top_logprobs": 2}, "top_logprobs"), ({"temperature": 3}, "temperature"),
            ({"text": {"format": {"type": "xml"}}}, "text.format"), ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format"),
            ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "foo"}}}}, "text.format"), ({"text": {"verbosity": "low"}}, "text.verbosity"),
            ({"reasoning": {"effort": 1}}, "reasoning.effort"), ({"store": 1}, "store"), ({"metadata": 1}, "metadata"), ({"samplers": "x"}, "samplers"),
            ({"tools": [{"type": "function"}]}, "tools"), ({"tools": 1}, "tools"), ({"tools": OTHERS, "tool_choice": "required"}, "tool_choice"),
            ({"tool_choice": {"type": "web_search"}}, "tool_choice"), ({"tools": [{**PATCH_TOOL, "format": {"type": "grammar", "syntax": "abnf"}}]}, "tools"),
            ({"input": "hello " * 300}, "input")]
    for more, param in rows:
        code, v = ask(s, **more)
        check(code == 400 and v["error"]["param"] == param, f"{more}: {code} {v}")
    code, v = ask(s, previous_response_id="resp_none")
    check(code == 404 and v["error"]["param"] == "previous_response_id" and v["error"]["code"] == "previous_response_not_found", f"an unknown id: {code} {v}")


def check_stored(s):
    first = ask(s)[1]
    at = f"{PATH}/{first['id']}"
    check(json.loads(s.request(at)[2]) == first, "GET gives it again")
    second = ask(s, previous_response_id=first["id"], input=[{"role": "user", "content": "hello"}])[1]
    check(second["previous_response_id"] == first["id"] and second["usage"]["input_tokens"] == 7, f"a conversation goes on: {second}")
    third = events(ask(s, previous_response_id=second["id"], stream=True)[1])[-1]["response"]
    check(third["usage"]["input_tokens"] == 12 and json.loads(s.request(f"{PATH}/{third['id']}")[2]) == third, f"a stream is stored: {third}")
    page = json.loads(s.request(f"{PATH}/{second['id']}/input_items?order=asc")[2])
    kinds = [(i["type"], i.get("role")) for i in page["data"]]
    check(kinds == [("message", "user"), ("reasoning", None), ("message", "assistant"), ("message", "user")] and page["has_more"] is False
          and (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"]), f"what was answered: {page}")
    down = json.loads(s.request(f"{PATH}/{second['id']}/input_items?limit=3")[2])
    rest = json.loads(s.request(f"{PATH}/{second['id']}/input_items?limit=3&after={down['last_id']}")[2])
    check(down["has_more"] is True and rest["has_more"] is False and down["data"] + rest["data"] == page["data"][::-1], f"page by page: {down} {rest}")
    check(s.request(f"{PATH}/{second['id']}/input_items?limit=0")[0] == 400 and s.request(f"{PATH}/{second['id']}/input_items?order=up")[0] == 400, "pages that are none")
    check(s.request(at + "/cancel", {})[0] == 400 and s.request(f"{PATH}/resp_none/cancel", {})[0] == 404, "what is complete cannot be cancelled")
    code, _, text = s.request(at, method="DELETE")
    check(code == 200 and json.loads(text) == {"id": first["id"], "object": "response", "deleted": True}, f"DELETE: {code} {text}")
    check(s.request(at)[0] == s.request(at, method="DELETE")[0] == s.request(at + "/input_items")[0] == 404, "it is gone")
    check(ask(s, previous_response_id=second["id"])[0] == 200, "what was built on it is there")
    v = ask(s, store=False)[1]
    check(v["store"] is False and s.request(f"{PATH}/{v['id']}")[0] == 404, "store: false")


def check_bound(s):
    """The oldest go first: of 1,030 the last 1,024 are there."""
    ids = [ask(s, max_output_tokens=1)[1]["id"] for _ in range(1030)]
    codes = [s.request(f"{PATH}/{i}")[0] for i in (ids[0], ids[5], ids[6], ids[-1])]
    check(codes == [404, 404, 200, 200], f"what is kept: {codes}")


def check_cancel(model):
    """A stream that runs is seen, and cancelled, from outside."""
    with Server(program, "-m", model, *SLOW) as s:
        body = json.dumps({"input": "hello", "stream": True, "ignore_eos": True}).encode()
        with urllib.request.urlopen(urllib.request.Request(s.url + PATH, data=body, headers={"Content-Type": "application/json"}), timeout=HANG) as r:
            check(r.readline() == b"event: response.created\n", "it has a beginning")
            at = f"{PATH}/{json.loads(r.readline()[6:])['response']['id']}"
            v = json.loads(s.request(at)[2])
            check(v["status"] == "in_progress" and v["usage"] is None, f"while it runs: {v}")
            code, _, text = s.request(at + "/cancel", {})
            check(code == 200 and json.loads(text)["status"] == "cancelled", f"cancel: {code} {text}")
            parts = r.read().decode()
        check('"type":"response.failed"' in parts and '"status":"failed"' in parts and '"code":"cancelled"' in parts, f"the stream ends: {parts[-600:]}")
        check(s.request(at)[0] == 404 and s.wait_quiet()["mlxcel_generations_running"] == 0, "nothing is left of it")


def check_failure(s):
    """A model that breaks behind its first token. The error of a stream has a status of its own where nothing had left yet."""
    code, text = ask(s, stream=True)
    if code == 500:
        check(json.loads(text)["error"]["type"] == "server_error", f"a stream that fails at once: {text}")
    else:
        parts = events(text)
        check(code == 200 and parts[-1]["type"] == "response.failed" and parts[-1]["response"]["error"]["message"], f"a stream that fails: {code} {parts}")
    code, v = ask(s)
    check(code == 500 and v["error"]["type"] == "server_error", f"an answer that fails: {code} {v}")


def check_calls(s):
    """A call whole and streamed, then the answer to its result, by items and by the id of the response."""
    _, v = ask(s, tools=[*OTHERS, WEATHER])
    want = [{"type": "function_call", "name": "weather", "arguments": '{"city": "Bonn", "days": 2}'}]
    check(text_of(v) == "Let me see." and plain(v["output"][1:]) == want and v["status"] == "completed", f"a call: {v}")
    parts = events(ask(s, tools=[WEATHER], stream=True)[1])
    check(plain(gather(parts)) == plain(v["output"]), f"a call of a stream: {parts}")
    done = [e for e in parts if e["type"] == "response.function_call_arguments.done"]
    check(len(done) == 1 and done[0]["arguments"] == want[0]["arguments"] and done[0]["name"] == "weather", f"its arguments are done: {done}")
    result = {"type": "function_call_output", "call_id": v["output"][1]["call_id"], "output": "sunny"}
    check(text_of(ask(s, tools=[WEATHER], input=[{"role": "user", "content": "hello"}, *v["output"], result])[1]) == "It is sunny in Bonn.", "a result goes back")
    check(text_of(ask(s, tools=[WEATHER], input=[result], previous_response_id=v["id"])[1]) == "It is sunny in Bonn.", "a result goes back by the id")
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "other"}]}
    check("tool_call" in text_of(ask(s, tools=[WEATHER], tool_choice=allowed)[1]), "a tool that is not allowed is not called")


def check_custom(s):
    """A tool whose input is a text of its own."""
    _, v = ask(s, tools=[PATCH_TOOL, WEATHER])
    check(plain(v["output"]) == [{"type": "custom_tool_call", "name": "apply_patch", "input": PATCH}], f"a custom call: {v}")
    parts = events(ask(s, tools=[PATCH_TOOL], stream=True)[1])
    check(plain(gather(parts)) == plain(v["output"]) and any(e["type"] == "response.custom_tool_call_input.done" and e["input"] == PATCH for e in parts), f"streamed: {parts}")
    result = {"type": "custom_tool_call_output", "call_id": v["output"][0]["call_id"], "output": "ok"}
    check(text_of(ask(s, tools=[PATCH_TOOL], input=[{"role": "user", "content": "hello"}, *v["output"], result])[1]) == "Done.", "its result goes back")


def run_loop(s, choose):
    """As a coding agent does it: nothing is stored, every turn sends everything, until no call comes."""
    items, n_calls, counts = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}], 0, []
    for turn in range(6):
        more = {"input": items, "tools": [WEATHER, *OTHERS], "instructions": "Be brief.", "store": False, "include": ["reasoning.encrypted_content"],
                "parallel_tool_calls": False, **choose(turn)}
        counts.append(ask(s, COUNT, **more)[1]["input_tokens"])
        v = events(ask(s, stream=True, **more)[1])[-1]["response"]
        counts.append(-v["usage"]["input_tokens"])
        items += v["output"]
        calls = [i for i in v["output"] if i["type"] == "function_call"]
        if not calls:
            check(sum(counts) == 0, f"counts are the tokens of the usage: {counts}")
            return n_calls, v["status"]
        n_calls += len(calls)
        items += [{"type": "function_call_output", "call_id": c["call_id"], "output": f"{json.loads(c['arguments'])['days']} days of sun"} for c in calls]
    return n_calls, "never"


def check_forced(s):
    """Random weights, held by a grammar: calls as long as they must be made, then an answer; texts of custom tools; answers by a schema."""
    n, end = run_loop(s, lambda turn: {"temperature": 1, "seed": 2, "tool_choice": "required" if turn < 2 else {"type": "function", "name": "weather"} if turn < 3 else "none",
                                       **({"max_output_tokens": 8} if turn == 3 else {})})
    check(n == 3 and end in ("completed", "incomplete"), f"three calls and an end: {n} {end}")
    tool = {"type": "custom", "name": "dial", "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9]{3}-[a-f]{2}"}}
    _, v = ask(s, tools=[tool], tool_choice={"type": "custom", "name": "dial"}, temperature=1, seed=4)
    text = v["output"][0]["input"]
    check(len(text) == 6 and text[:3].isdigit() and text[3] == "-" and set(text[4:]) <= set("abcdef"), f"an input by an expression: {v}")
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": False}
    _, v = ask(s, text={"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": True}}, temperature=1, seed=3)
    check(1 <= json.loads(text_of(v))["n"] <= 9, f"an answer by a schema: {v}")
    _, v = ask(s, text={"format": {"type": "json_object"}}, max_output_tokens=20)
    check(text_of(v).lstrip().startswith("{"), f"json_object: {v}")


with tempfile.TemporaryDirectory() as folder:
    with Server(program, "-m", str(crafted.make(os.path.join(folder, "thinker")))) as s:
        for part in (check_answers, check_inputs, check_refused, check_stored, check_bound):
            part(s)
    with Server(program, "-m", str(crafted.make(os.path.join(folder, "agent"), crafted.AGENT, template=crafted.AGENT_TEMPLATE))) as s:
        check_calls(s)
        check(run_loop(s, lambda turn: {}) == (1, "completed"), "a loop of an agent")
    with Server(program, "-m", str(crafted.make(os.path.join(folder, "patcher"), PATCHER, template=crafted.AGENT_TEMPLATE))) as s:
        check_custom(s)
    with Server(program, "-m", str(crafted.make(os.path.join(folder, "breaks"), crafted.SCRIPT_BREAKS))) as s:
        check_failure(s)
    random = os.path.join(folder, "random")
    subprocess.run([program, "synth", "--shape", "tiny", "-o", random], check=True, capture_output=True)
    with open(os.path.join(random, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(crafted.AGENT_TEMPLATE)
    with Server(program, "-m", random) as s:
        check_forced(s)
    check_cancel(random)
finish()
