#!/usr/bin/env python3
"""Clients as their users have them, unchanged, send pictures: openai (chats and responses), anthropic and ollama; whole and streamed, two pictures, a
picture with tools, a picture in an earlier turn. The answer to the same question must be the one of `mlxcel generate`, and follow the picture.

usage: test_client_pictures.py PROGRAM DATA      a client that is not installed is skipped by name
"""
import base64
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "server"))
from harness import HANG, Server, check, finish, skip  # noqa: E402

program, data = sys.argv[1:3]
root = f"{data}/golden-vision"
N = 8
TEMPLATE = """{% if tools %}<|im_start|>system
Call these functions: {% for t in tools %}{{ t | tojson }}{% endfor %}
For each call write <tool_call>{"name": ..., "arguments": ...}</tool_call>.<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}
{% for c in m.tool_calls or [] %}<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}<|im_end|>
{% endfor %}<|im_start|>assistant
"""
SIDE = {"type": "object", "properties": {"side": {"type": "string", "enum": ["left", "right"]}}, "required": ["side"], "additionalProperties": False}


def encoded(name):
    with open(f"{root}/images/{name}", "rb") as f:
        return base64.b64encode(f.read()).decode()


def is_side(arguments):
    return (json.loads(arguments) if isinstance(arguments, str) else arguments)["side"] in ("left", "right")


def conversations(picture, text, of_user, of_answer):
    """One picture; another one; two; one in an earlier turn. The functions write a client's messages."""
    yield "one picture", [of_user([picture("land.png"), text(QUESTION)])]
    yield "another picture", [of_user([picture("square.png"), text(QUESTION)])]
    yield "two pictures", [of_user([picture("land.png"), text("and"), picture("square.png"), text(QUESTION)])]
    yield "a picture in an earlier turn", [of_user([picture("land.png"), text("Look.")]), of_answer("I see."), of_user([text(QUESTION)])]


def judge(name, ask, stream, all_messages):
    """The same whole and streamed; the first as the command says it; the second is another."""
    said = []
    for what, messages in all_messages:
        whole, streamed = ask(messages), stream(messages)
        check(whole and whole == streamed, f"{name}, {what}: {whole!r}, streamed {streamed!r}")
        said.append(whole)
    check(said[0] == WANT, f"{name}: {said[0]!r} instead of {WANT!r}")
    check(said[0] != said[1], f"{name}: pictures make no difference: {said[0]!r}")


def user(content):
    return {"role": "user", "content": content}


def answer(content):
    return {"role": "assistant", "content": content}


def check_openai(url):
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key="x")

    def picture(name):
        return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded(name)}"}}

    def text(words):
        return {"type": "text", "text": words}

    def create(messages, **more):
        return client.chat.completions.create(model="x", messages=messages, **{"temperature": 0, "max_tokens": N, **more})

    judge("openai, chats", lambda m: create(m).choices[0].message.content,
          lambda m: "".join(p.choices[0].delta.content or "" for p in create(m, stream=True) if p.choices), conversations(picture, text, user, answer))
    tool = {"type": "function", "function": {"name": "look_up", "description": "Looks.", "parameters": SIDE}}
    got = create([user([picture("land.png"), text(QUESTION)])], tools=[tool], tool_choice="required", parallel_tool_calls=False, max_tokens=400, frequency_penalty=2).choices[0]
    check(got.finish_reason == "tool_calls" and is_side(got.message.tool_calls[0].function.arguments), f"openai, a picture and tools: {got}")

    def respond(messages, **more):
        return client.responses.create(model="x", input=messages, temperature=0, max_output_tokens=N, **more)

    judge("openai, responses", lambda m: respond(m).output_text, lambda m: "".join(e.delta for e in respond(m, stream=True) if e.type == "response.output_text.delta"),
          conversations(lambda name: {"type": "input_image", "image_url": f"data:image/png;base64,{encoded(name)}", "detail": "auto"},
                        lambda words: {"type": "input_text", "text": words}, user, answer))


def check_anthropic(url):
    import anthropic
    client = anthropic.Anthropic(base_url=url, api_key="x")

    def picture(name):
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded(name)}}

    def text(words):
        return {"type": "text", "text": words}

    greedy = {"extra_body": {"temperature": 0}}  # later versions of the package have no such argument

    def stream(messages):
        with client.messages.stream(model="x", messages=messages, max_tokens=N, **greedy) as s:
            return "".join(s.text_stream)

    judge("anthropic", lambda m: client.messages.create(model="x", messages=m, max_tokens=N, **greedy).content[0].text, stream, conversations(picture, text, user, answer))
    got = client.messages.create(model="x", messages=[user([picture("land.png"), text(QUESTION)])], max_tokens=400,
                                 tools=[{"name": "look_up", "description": "Looks.", "input_schema": SIDE}], tool_choice={"type": "any", "disable_parallel_tool_use": True})
    calls = [b for b in got.content if b.type == "tool_use"]
    check(got.stop_reason == "tool_use" and calls and is_side(calls[0].input), f"anthropic, a picture and tools: {got}")


def with_tools(url, tool):
    """The same question in the form of chat completions; this protocol has no word that asks for a call."""
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded('land.png')}"}}
    body = {"messages": [user([part, {"type": "text", "text": QUESTION}])], "tools": [tool], "temperature": 0, "max_tokens": N}
    request = urllib.request.Request(url + "/v1/chat/completions", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=HANG) as r:
        return json.load(r)["choices"][0]["message"]["content"]


def check_ollama(url):
    import ollama
    client = ollama.Client(host=url)
    options = {"temperature": 0, "num_predict": N}

    def message(parts):
        """Here pictures stand beside the text, and come before it."""
        return {"role": "user", "content": "".join(p for p in parts if not isinstance(p, bytes)), "images": [p for p in parts if isinstance(p, bytes)]}

    def stream(messages):
        return "".join(p.message.content for p in client.chat(model="x", messages=messages, options=options, stream=True))

    judge("ollama", lambda m: client.chat(model="x", messages=m, options=options).message.content, stream,
          conversations(lambda name: base64.b64decode(encoded(name)), lambda words: words, message, answer))
    check(client.generate(model="x", prompt=QUESTION, images=[base64.b64decode(encoded("land.png"))], options=options).response == WANT, "ollama, generate")
    tool = ollama.Tool(type="function", function={"name": "look_up", "description": "Looks.", "parameters": SIDE})
    question = {"model": "x", "messages": [message([base64.b64decode(encoded("land.png")), QUESTION])]}
    got, plain = client.chat(**question, tools=[tool], options=options), client.chat(**question, options=options)
    want = with_tools(url, tool.model_dump(exclude_none=True))
    check(got.message.content == want != plain.message.content, f"ollama, a picture and tools: {got} instead of {want!r}; without tools: {plain}")
    check(got.prompt_eval_count > plain.prompt_eval_count, f"ollama: tools take {got.prompt_eval_count - plain.prompt_eval_count} tokens")


QUESTION = "What is in the image?"
with tempfile.TemporaryDirectory() as folder:
    model = os.path.join(folder, "model")
    shutil.copytree(f"{root}/qwen2_5_vl", model)
    with open(os.path.join(model, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(TEMPLATE)
    r = subprocess.run([program, "generate", "-m", model, "--image", f"{root}/images/land.png", "-p", QUESTION, "-n", str(N), "--device", "cpu", "--json"], capture_output=True, text=True, check=True)
    WANT = json.loads(r.stdout)["text"]
    with Server(program, "-m", model, "--device", "cpu") as s:
        for name, part in (("openai", check_openai), ("anthropic", check_anthropic), ("ollama", check_ollama)):
            if importlib.util.find_spec(name) is None:
                skip(f"{name} is not installed")
                continue
            try:
                part(s.url)
            except Exception as e:  # a client that stops is a failure of the server's until shown otherwise
                check(False, f"{name} stopped: {type(e).__name__}: {str(e)[:600]}")
finish()
