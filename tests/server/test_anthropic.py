#!/usr/bin/env python3
"""Anthropic's messages: blocks, events, calls, counts, errors, and answers that go on with a text; a loop as coding agents run it. Models say
what they were made to say.

usage: test_anthropic.py PROGRAM      last line: "N passed, N failed"
"""
import json
import os
import subprocess
import sys
import tempfile

from harness import Server, check, finish

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import crafted  # noqa: E402

program = os.path.abspath(sys.argv[1])
PATH, COUNT, CHAT = "/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
WEATHER = {"name": "weather", "description": "The weather of a city.", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Bonn", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"], "additionalProperties": False}}


def ask(s, path=PATH, **more):
    body = {"model": "claude", "max_tokens": 60, "temperature": 0, "messages": HELLO, **more}
    code, _, text = s.request(path, {k: v for k, v in body.items() if v is not ...}, headers={"anthropic-version": "2023-06-01", "anthropic-beta": "new-2030-01-01"})
    return code, text if body.get("stream") is True else json.loads(text)


def events(text):
    """Names and data; every frame has both, and they agree."""
    frames = [frame.split("\n") for frame in text.split("\n\n")[:-1]]
    got = [json.loads(data.removeprefix("data: ")) for _, data in frames]
    check([name for name, _ in frames] == ["event: " + e["type"] for e in got], f"every event's name is its type: {text}")
    return got


def gather(parts):
    """The message that a stream makes, by the rules of Anthropic's documentation."""
    message = None
    starts = [e["index"] for e in parts if e["type"] == "content_block_start"]
    check(starts == list(range(len(starts))), f"blocks are counted: {starts}")
    for e in parts:
        if e["type"] == "message_start":
            message = {**e["message"], "content": []}
        elif e["type"] == "content_block_start":
            message["content"].append({**e["content_block"], "json": ""})
        elif e["type"] == "content_block_delta":
            block, d = message["content"][e["index"]], e["delta"]
            for key, kind in (("text", "text_delta"), ("thinking", "thinking_delta"), ("signature", "signature_delta")):
                block.update({key: block[key] + d[key]} if d["type"] == kind else {})
            block["json"] += d["partial_json"] if d["type"] == "input_json_delta" else ""
        elif e["type"] == "message_delta":
            message.update(e["delta"], usage=e["usage"])
    for block in message["content"]:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text)
    return message


def plain(message):
    """What two answers to the same request have in common."""
    return [{k: v for k, v in b.items() if k not in ("id", "signature")} for b in message["content"]], message["stop_reason"], message["stop_sequence"]


def check_answers(s):
    code, v = ask(s)
    check(code == 200 and plain(v) == ([{"type": "thinking", "thinking": "Two and two"}, {"type": "text", "text": "The sum is four."}], "end_turn", None), f"an answer: {v}")
    check(v["id"].startswith("msg_") and v["type"] == "message" and v["role"] == "assistant" and v["content"][0]["signature"], f"its head: {v}")
    check(v["usage"] == {"input_tokens": 2, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 10,
                          "output_tokens_details": {"thinking_tokens": 4}}, f"its usage: {v}")
    parts = events(ask(s, stream=True)[1])
    names = [e["type"] for e in parts]
    once = list(dict.fromkeys(names))
    check(once == ["message_start", "content_block_start", "ping", "content_block_delta", "content_block_stop", "message_delta", "message_stop"], f"events: {names}")
    check(plain(gather(parts)) == plain(v), f"a stream says the same: {parts}")
    check([e["delta"]["type"] for e in parts if e["type"] == "content_block_delta" and e["index"] == 0][-1] == "signature_delta", "thinking ends with a signature")
    check(parts[0]["message"]["usage"]["input_tokens"] == 2 and parts[0]["message"]["content"] == [] and parts[0]["message"]["stop_reason"] is None, f"start: {parts[0]}")
    check(plain(ask(s, stop_sequences=["nothing", " is"])[1])[1:] == ("stop_sequence", " is"), "the stop sequence is named")
    check(plain(ask(s, max_tokens=3)[1])[1:] == ("max_tokens", None), "a limit ends it")
    got = plain(gather(events(ask(s, max_tokens=3, stream=True)[1])))
    check(got == ([{"type": "thinking", "thinking": "Two and"}], "max_tokens", None), f"a limit ends a stream: {got}")
    check(plain(ask(s, max_tokens=1000, stop_sequences=[], ignore_eos=True)[1])[1] == "model_context_window_exceeded", "a context that is full")
    hidden = {"thinking": {"type": "adaptive", "display": "omitted"}}
    want = [{"type": "thinking", "thinking": ""}, {"type": "text", "text": "The sum is four."}]
    check(plain(ask(s, **hidden)[1])[0] == plain(gather(events(ask(s, stream=True, **hidden)[1])))[0] == want, "thinking that is not shown")
    check(s.request(PATH, {"max_tokens": 9, "messages": HELLO})[1]["request-id"].startswith("req_"), "an answer has a request id")


def check_inputs(s):
    """Every form of input that is taken, and its count: words of the script and <unk> for the rest."""
    blocks = [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "hello"}]
    history = [*HELLO, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "redacted_thinking", "data": "x"},
                                                         {"type": "text", "text": "four"}]}, {"role": "user", "content": blocks}]
    for more, n in (({}, 2), ({"system": "hello hello"}, 4), ({"system": blocks}, 4), ({"messages": history}, 5), ({"messages": [*HELLO, *HELLO]}, 3),
                    ({"messages": [{"role": "system", "content": "hello"}, *HELLO], "system": "hello"}, 4),
                    ({"thinking": {"type": "disabled"}, "tool_choice": {"type": "auto"}, "metadata": {"user_id": "x"}, "service_tier": "auto"}, 2),
                    ({"thinking": {"type": "enabled", "budget_tokens": 20}, "top_k": 5, "top_p": 0.9, "context_management": {"edits": []}}, 2)):
        code, v = ask(s, COUNT, max_tokens=..., **more)
        check(code == 200 and v == {"input_tokens": n}, f"count of {more}: {code} {v}")
        code, v = ask(s, **more)
        u = v.get("usage", {})
        check(code == 200 and u["input_tokens"] + u["cache_read_input_tokens"] == n, f"answer to {more}: {code} {v}")
    code, _, text = s.request(PATH + "?beta=true", {"max_tokens": 9, "messages": HELLO})
    check(code == 200, f"?beta=true: {code} {text}")


def check_refused(s):
    """Each with the place as the client wrote it."""
    user, image = lambda *b: {"messages": [{"role": "user", "content": list(b)}]}, {"type": "image", "source": {"type": "url", "url": "x"}}
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    rows = [({"max_tokens": ...}, "max_tokens"), ({"messages": []}, "messages"), ({"messages": ...}, "messages"), ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0"),
            (user({"type": "text", "text": "hello"}, image), "messages.0.content.1: an image needs a source of type base64"), (user({"type": "document"}), "messages.0.content.0"), (user({"type": "text"}), "messages.0.content.0"),
            (user({"type": "tool_result", "tool_use_id": "a", "content": [image]}), "messages.0.content.0.content.0: blocks of type \"image\""), (user({"type": "tool_result"}), "tool_use_id"),
            ({"system": [image]}, "system.0: blocks of type \"image\""), ({"system": 1}, "system"), ({"messages": [*HELLO, {"role": "assistant", "content": [call]}]}, "tool_result"),
            ({"temperature": 3}, "temperature"), ({"stop_sequences": "x"}, "stop_sequences"), ({"stop_sequences": [""]}, "stop_sequences"), ({"stop": ["x"]}, "stop_sequences"),
            ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"), ({"thinking": {"type": "enabled", "budget_tokens": 60}}, "max_tokens"), ({"thinking": {"type": "x"}}, "thinking"), ({"thinking": {"type": "adaptive", "display": "x"}}, "thinking.display"),
            ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0: tools of type \"web_search_20250305\""), ({"tools": [{"input_schema": {}}]}, "tools.0"),
            ({"tool_choice": {"type": "any"}}, "tool_choice"), ({"tool_choice": {"type": "x"}}, "tool_choice"), ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
            ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"), ({"container": "x"}, "container"), ({"n": 2}, "n is not"), ({"samplers": "x"}, "samplers"),
            ({"output_config": {"format": {"type": "x"}}}, "output_config.format"), ({"messages": [{"role": "user", "content": "hello " * 300}]}, "prompt is too long: 301 tokens > 255 maximum")]
    for more, words in rows:
        code, v = ask(s, **more)
        check(code == 400 and v["type"] == "error" and v["error"]["type"] == "invalid_request_error" and words in v["error"]["message"], f"{more}: {code} {v}")
    code, _, text = s.request(PATH + "/batches", {})
    v = json.loads(text)
    check(code == 404 and v["error"]["type"] == "not_found_error" and v["request_id"].startswith("req_"), f"another path: {code} {text}")
    code, _, text = s.request(PATH, b"{")
    check(code == 400 and json.loads(text)["type"] == "error", f"no JSON: {code} {text}")


def check_prefill(s):
    """The answer is the rest of the last message; so it is in chats, unless the request or an option says otherwise."""
    ends = [*HELLO, {"role": "assistant", "content": "The"}]
    want = ([{"type": "text", "text": " sum is four."}], "end_turn", None)
    check(plain(ask(s, messages=ends)[1]) == want, "an answer that goes on")
    check(plain(gather(events(ask(s, messages=ends, stream=True)[1]))) == want, "a stream that goes on")
    check(plain(ask(s, messages=[*HELLO, {"role": "assistant", "content": [{"type": "text", "text": "Th"}, {"type": "text", "text": "e"}]}])[1]) == want, "from two blocks")
    check(plain(ask(s, messages=[*HELLO, {"role": "assistant", "content": ""}])[1]) == plain(ask(s)[1]), "an empty answer is left out")
    whole, rest = "The sum is four.", " sum is four."
    for more, text in (({}, rest), ({"continue_final_message": True}, rest), ({"continue_final_message": True, "add_generation_prompt": False}, rest),
                       ({"add_generation_prompt": True}, whole), ({"continue_final_message": False}, whole), ({"add_generation_prompt": False}, rest)):
        code, v = ask(s, CHAT, messages=ends, **more)
        check(code == 200 and v["choices"][0]["message"]["content"].endswith(text) and (text == whole) == v["choices"][0]["message"]["content"].startswith("The"),
              f"a chat with {more}: {code} {v}")
    code, v = ask(s, CHAT, messages=[*HELLO, {"role": "assistant", "content": ""}])
    check(v["choices"][0]["message"]["content"] == whole and v["usage"]["prompt_tokens"] == 2, f"a chat leaves an empty answer out: {v}")
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    for more, param in (({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"), ({"continue_final_message": 1}, "continue_final_message"),
                        ({"add_generation_prompt": "x"}, "add_generation_prompt"),
                        ({"continue_final_message": True, "messages": [{"role": "assistant", "content": "", "tool_calls": calls}]}, "continue_final_message"),
                        ({"chat_template_kwargs": {"continue_final_message": True}}, "chat_template_kwargs")):
        code, v = ask(s, CHAT, **{"messages": ends, **more})
        check(code == 400 and v["error"]["param"] == param, f"a chat with {more}: {code} {v}")


def check_option(model):
    with Server(program, "-m", model, "--no-prefill-assistant", "--api-key", "key") as s:
        key, ends = {"x-api-key": "key"}, [*HELLO, {"role": "assistant", "content": "The"}]
        text = json.loads(s.request(CHAT, {"messages": ends, "temperature": 0}, key)[2])["choices"][0]["message"]["content"]
        check(text == "The sum is four.", f"--no-prefill-assistant: {text}")
        text = json.loads(s.request(CHAT, {"messages": ends, "temperature": 0, "continue_final_message": True}, key)[2])["choices"][0]["message"]["content"]
        check(text == " sum is four.", f"--no-prefill-assistant, and a request that asks: {text}")
        v = json.loads(s.request(PATH, {"messages": ends, "temperature": 0, "max_tokens": 20}, key)[2])
        check(v["content"] == [{"type": "text", "text": " sum is four."}], f"--no-prefill-assistant is not for messages: {v}")
        code, _, text = s.request(PATH, {"messages": HELLO, "max_tokens": 9})
        check(code == 401 and json.loads(text)["error"]["type"] == "authentication_error", f"without a key: {code} {text}")
        check(s.request(PATH, {"messages": HELLO, "max_tokens": 9}, {"Authorization": "Bearer key"})[0] == 200, "a bearer's key")


def check_failure(s):
    """A model that breaks behind its first token. The error of a stream has a status of its own where nothing had left yet."""
    code, text = ask(s, stream=True)
    last = json.loads(text) if code == 500 else events(text)[-1]
    check(code in (200, 500) and last["type"] == "error" and last["error"]["type"] == "api_error" and last["request_id"].startswith("req_"), f"a stream that fails: {code} {text}")
    code, v = ask(s)
    check(code == 500 and v["type"] == "error" and v["error"]["type"] == "api_error", f"an answer that fails: {code} {v}")


def check_calls(s):
    """A call whole and streamed, then the answer to its result."""
    _, v = ask(s, tools=[WEATHER])
    want = [{"type": "text", "text": "Let me see."}, {"type": "tool_use", "name": "weather", "input": {"city": "Bonn", "days": 2}}]
    check(plain(v) == (want, "tool_use", None), f"a call: {v}")
    parts = events(ask(s, tools=[WEATHER], stream=True)[1])
    check(plain(gather(parts)) == plain(v), f"a call of a stream: {parts}")
    starts = [e["content_block"] for e in parts if e["type"] == "content_block_start"]
    check(starts[1]["input"] == {} and starts[1]["id"], f"a call begins with its name: {starts}")
    result = {"type": "tool_result", "tool_use_id": v["content"][1]["id"], "content": [{"type": "text", "text": "sunny"}], "is_error": False}
    back = [*HELLO, {"role": "assistant", "content": v["content"]}, {"role": "user", "content": [result]}]
    check(plain(ask(s, tools=[WEATHER], messages=back)[1]) == ([{"type": "text", "text": "It is sunny in Bonn."}], "end_turn", None), "a result goes back")
    check(plain(ask(s, tools=[WEATHER], tool_choice={"type": "none"})[1])[1] == "end_turn", "tools that are not to be used")


def run_loop(s, choose):
    """As a coding agent does it: count, ask as a stream, run the tools, send their results, until the model ends its turn."""
    messages, n_calls = list(HELLO), 0
    counts = []
    for turn in range(6):
        more = {"messages": messages, "tools": [WEATHER], "system": [{"type": "text", "text": "Be brief."}], "max_tokens": 300, **choose(turn)}
        n = ask(s, COUNT, **{k: v for k, v in more.items() if k != "max_tokens"}, max_tokens=...)[1]["input_tokens"]
        v = gather(events(ask(s, stream=True, **more)[1]))
        u = v["usage"]
        counts.append((n, u["input_tokens"] + u["cache_read_input_tokens"]))
        messages.append({"role": "assistant", "content": v["content"] or "."})
        if v["stop_reason"] != "tool_use":
            check(all(a == b for a, b in counts), f"counts are the tokens of the usage: {counts}")
            return messages, n_calls, v["stop_reason"]
        results = [{"type": "tool_result", "tool_use_id": b["id"], "content": f"{b['input']['days']} days of sun"} for b in v["content"] if b["type"] == "tool_use"]
        n_calls += len(results)
        messages.append({"role": "user", "content": results})
    return messages, n_calls, "never"


def check_forced(s):
    """Random weights, held to the tools by a grammar: calls as long as they must be made, then an answer."""
    one = {"disable_parallel_tool_use": True}
    _, n, end = run_loop(s, lambda turn: {"tool_choice": {"type": "any", **one} if turn < 2 else {"type": "tool", "name": "weather"} if turn < 3 else {"type": "none"},
                                          **({"max_tokens": 8} if turn == 3 else {})})
    check(n == 3 and end in ("end_turn", "max_tokens"), f"three calls and an end: {n} {end}")
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": False}
    for more in ({"output_config": {"format": {"type": "json_schema", "schema": schema}}}, {"output_format": {"type": "json_schema", "schema": schema}}):
        _, v = ask(s, temperature=1, seed=3, **more)
        check(1 <= json.loads(v["content"][0]["text"])["n"] <= 9, f"an answer by a schema: {v}")


with tempfile.TemporaryDirectory() as folder:
    thinker = crafted.make(os.path.join(folder, "thinker"))
    with Server(program, "-m", str(thinker)) as s:
        for part in (check_answers, check_inputs, check_refused, check_prefill):
            part(s)
    check_option(str(thinker))
    agent = crafted.make(os.path.join(folder, "agent"), crafted.AGENT, template=crafted.AGENT_TEMPLATE)
    with Server(program, "-m", str(agent)) as s:
        check_calls(s)
        _, n, end = run_loop(s, lambda turn: {})
        check((n, end) == (1, "end_turn"), f"a loop of an agent: {n} {end}")
    with Server(program, "-m", str(crafted.make(os.path.join(folder, "breaks"), crafted.SCRIPT_BREAKS))) as s:
        check_failure(s)
    random = os.path.join(folder, "random")
    subprocess.run([program, "synth", "--shape", "tiny", "-o", random], check=True, capture_output=True)
    with open(os.path.join(random, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(crafted.AGENT_TEMPLATE)
    with Server(program, "-m", random) as s:
        check_forced(s)
finish()
