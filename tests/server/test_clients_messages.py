#!/usr/bin/env python3
"""Clients as their users have them, unchanged, that speak Anthropic's messages or OpenAI's responses: whole, streamed, with tools and their results.
One model says what it was made to say, another has random weights and is held to its tools by the server.

usage: test_clients_messages.py PROGRAM      last line: "N passed, N failed, N skipped"; a client that is not installed is skipped by name
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

from harness import Server, check, finish, skip

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import crafted  # noqa: E402

PROMPT = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Bonn", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["city", "days"], "additionalProperties": False}
BLOCK_TOOL = {"name": "weather", "description": "The weather of a city.", "input_schema": SCHEMA}
CHAT_TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather of a city.", "parameters": SCHEMA}}
FLAT_TOOL = {"type": "function", "name": "weather", "description": "The weather of a city.", "parameters": SCHEMA, "strict": True}
CALL, END = {"city": "Bonn", "days": 2}, "It is sunny in Bonn."


def is_weather(v):
    v = json.loads(v) if isinstance(v, str) else v
    return v["city"] in ("Bonn", "Rome") and 1 <= v["days"] <= 9


def check_anthropic(url):
    import anthropic
    client = anthropic.Anthropic(base_url=url, api_key="x")
    first = client.messages.create(model="m", max_tokens=60, messages=PROMPT, tools=[BLOCK_TOOL])
    call = first.content[1]
    check(first.stop_reason == "tool_use" and first.content[0].text == "Let me see." and call.name == "weather" and call.input == CALL, f"anthropic, a call: {first}")
    check(first._request_id.startswith("req_"), f"anthropic, a request id: {first._request_id}")
    back = [*PROMPT, {"role": "assistant", "content": first.content}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}]}]
    with client.messages.stream(model="m", max_tokens=60, messages=back, tools=[BLOCK_TOOL]) as stream:
        text = "".join(stream.text_stream)
        check(text == stream.get_final_message().content[0].text == END, f"anthropic, a result goes back: {text}")
    with client.messages.stream(model="m", max_tokens=60, messages=PROMPT, tools=[BLOCK_TOOL]) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_message()
    check({"text", "input_json", "content_block_stop", "message_stop"} <= kinds and final.content[1].input == CALL, f"anthropic, a streamed call: {kinds} {final}")
    check(client.messages.count_tokens(model="m", messages=PROMPT, tools=[BLOCK_TOOL]).input_tokens == first.usage.input_tokens, "anthropic, a count")
    try:
        client.messages.create(model="m", max_tokens=60, messages=[{"role": "user", "content": "hello " * 400}])
        check(False, "anthropic, a prompt that is too long")
    except anthropic.BadRequestError as e:
        check("prompt is too long: 401 tokens > 255 maximum" in str(e), f"anthropic, a prompt that is too long: {e}")
    check([m.type for m in client.models.list()] == ["model"], "anthropic, the list of models")


def check_anthropic_runner(url):
    import anthropic
    client = anthropic.Anthropic(base_url=url, api_key="x")

    @anthropic.beta_tool
    def weather(city: str, days: int) -> str:
        """The weather of a city.

        Args:
            city: Where.
            days: How many.
        """
        return f"{city}: {days} days of sun"

    reasons = [m.stop_reason for m in client.beta.messages.tool_runner(model="m", max_tokens=60, messages=PROMPT, tools=[weather])]
    check(reasons == ["tool_use", "end_turn"], f"anthropic, the package's own loop: {reasons}")


def check_anthropic_forced(url):
    import anthropic
    client = anthropic.Anthropic(base_url=url, api_key="x")
    for choice in ({"type": "any"}, {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}):
        m = client.messages.create(model="m", max_tokens=300, messages=PROMPT, tools=[BLOCK_TOOL], tool_choice=choice, extra_body={"seed": 1})
        check(m.stop_reason == "tool_use" and all(is_weather(b.input) for b in m.content), f"anthropic, {choice}: {m}")


def check_openai(url):
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key="x")
    first = client.responses.create(model="m", input="hello", tools=[FLAT_TOOL], temperature=0)
    call = first.output[1]
    check(first.status == "completed" and first.output_text == "Let me see." and json.loads(call.arguments) == CALL, f"openai, a call: {first}")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    check(client.responses.create(model="m", input=[*PROMPT, *first.output, result], tools=[FLAT_TOOL], temperature=0).output_text == END, "openai, a result goes back")
    with client.responses.stream(model="m", input=[result], previous_response_id=first.id, tools=[FLAT_TOOL], temperature=0) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    check(kinds[0] == "response.created" and kinds[-1] == "response.completed" and final.output_text == END, f"openai, a stream: {kinds} {final}")
    with client.responses.stream(model="m", input="hello", tools=[FLAT_TOOL], temperature=0) as stream:
        kinds = {event.type for event in stream}
        parsed = stream.get_final_response().output[1].parsed_arguments
    check("response.function_call_arguments.done" in kinds and parsed == CALL, f"openai, a streamed call: {kinds} {parsed}")
    check(client.responses.retrieve(first.id).output_text == "Let me see.", "openai, retrieve")
    check([i.type for i in client.responses.input_items.list(final.id, order="asc")] == ["message", "message", "function_call", "function_call_output"], "openai, input items")
    check(client.responses.input_tokens.count(model="m", input="hello", tools=[FLAT_TOOL]).input_tokens == first.usage.input_tokens, "openai, a count")
    client.responses.delete(first.id)
    try:
        client.responses.retrieve(first.id)
        check(False, "openai, delete")
    except openai.NotFoundError:
        check(True, "openai, delete")


def check_openai_forced(url):
    import typing

    import openai
    import pydantic

    class Animal(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        kind: typing.Literal["cat", "dog"]
        good: bool

    client = openai.OpenAI(base_url=url + "/v1", api_key="x")
    got = client.responses.parse(model="m", input="hello", text_format=Animal, max_output_tokens=300).output_parsed
    check(got.kind in ("cat", "dog"), f"openai, parse: {got}")
    got = client.responses.create(model="m", input="hello", tools=[FLAT_TOOL], tool_choice="required", parallel_tool_calls=False, max_output_tokens=300)
    check(is_weather(got.output[0].arguments), f"openai, required: {got}")


def check_langchain(url):
    from langchain_anthropic import ChatAnthropic
    chat = ChatAnthropic(base_url=url, api_key="x", model="m", max_tokens=60).bind_tools([BLOCK_TOOL])
    first = chat.invoke("hello")
    check(first.tool_calls[0]["name"] == "weather" and first.tool_calls[0]["args"] == CALL, f"langchain, a call: {first}")
    back = [("user", "hello"), first, {"role": "tool", "tool_call_id": first.tool_calls[0]["id"], "content": "sunny"}]
    check(chat.invoke(back).text == END, "langchain, a result goes back")
    total = None
    for part in chat.stream("hello"):
        total = part if total is None else total + part
    check(total.tool_calls[0]["args"] == CALL and total.usage_metadata["output_tokens"] > 0, f"langchain, a stream: {total}")


def check_langchain_openai(url):
    from langchain_openai import ChatOpenAI
    chat = ChatOpenAI(base_url=url + "/v1", api_key="x", model="m", use_responses_api=True, temperature=0).bind_tools([CHAT_TOOL])
    first = chat.invoke("hello")
    check(first.tool_calls[0]["args"] == CALL, f"langchain by responses, a call: {first}")
    back = [("user", "hello"), first, {"role": "tool", "tool_call_id": first.tool_calls[0]["id"], "content": "sunny"}]
    check(chat.invoke(back).text == END, "langchain by responses, a result goes back")


def check_litellm(url):
    import litellm

    def ask(**more):
        return litellm.completion(model="anthropic/m", api_base=url, api_key="x", max_tokens=60, tools=[CHAT_TOOL], **more)

    call = ask(messages=PROMPT).choices[0].message.tool_calls[0]
    check(json.loads(call.function.arguments) == CALL, f"litellm anthropic/, a call: {call}")
    back = [*PROMPT, {"role": "assistant", "content": "", "tool_calls": [call.model_dump()]}, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    text = "".join(p.choices[0].delta.content or "" for p in ask(messages=back, stream=True))
    check(text == END, f"litellm anthropic/, a stream: {text}")
    got = litellm.responses(model="openai/m", api_base=url + "/v1", api_key="x", input="hello", tools=[FLAT_TOOL], temperature=0)
    check(json.loads(got.output[1].arguments) == CALL, f"litellm responses: {got}")


SCRIPTED = (("anthropic", check_anthropic), ("anthropic", check_anthropic_runner), ("openai", check_openai), ("langchain_anthropic", check_langchain),
            ("langchain_openai", check_langchain_openai), ("litellm", check_litellm))
FORCED = (("anthropic", check_anthropic_forced), ("openai", check_openai_forced))


def run_all(parts, url):
    for name, part in parts:
        if importlib.util.find_spec(name) is None:
            skip(f"{name} is not installed")
            continue
        try:
            part(url)
        except Exception as e:  # a client that stops is a failure of the server's until shown otherwise
            check(False, f"{part.__name__} stopped: {type(e).__name__}: {str(e)[:600]}")


program = os.path.abspath(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    agent = crafted.make(os.path.join(folder, "agent"), crafted.AGENT, template=crafted.AGENT_TEMPLATE)
    with Server(program, "-m", str(agent), "--temp", "0") as s:
        run_all(SCRIPTED, s.url)
    random = os.path.join(folder, "random")
    subprocess.run([program, "synth", "--shape", "tiny", "-o", random], check=True, capture_output=True)
    with open(os.path.join(random, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(crafted.AGENT_TEMPLATE)
    with Server(program, "-m", random) as s:
        run_all(FORCED, s.url)
finish()
