"""Pictures through every protocol of the server: test_server.py PROGRAM DATA

The same question about the same picture must get the same answer as from `mlxcel generate`, and cost as many tokens; with two pictures, several answers,
tools, streams, earlier turns, the prefix cache and a cache that is too small, too. Bad pictures, addresses that would have to be fetched and models
without a tower get one clear 400 each.
"""
import base64
import json
import os
import pty
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))
from harness import HANG, Server, check, finish  # noqa: E402

program, data = sys.argv[1:3]
root = f"{data}/golden-vision"


def post(server, path, body):
    status, _, text = server.request(path, body)
    return status, text


def file_of(name):
    with open(f"{root}/images/{name}", "rb") as f:
        return base64.b64encode(f.read()).decode()


def url_of(name):
    return f"data:image/png;base64,{file_of(name)}"


def image_part(name):
    return {"type": "image_url", "image_url": {"url": url_of(name)}}


def said_by(text):
    return text["choices"][0]["message"]["content"]


def every_protocol(server, want, n_prompt, question):
    n = 8
    chat = {"model": "x", "max_tokens": n, "temperature": 0, "messages": [{"role": "user", "content": [image_part("land.png"), {"type": "text", "text": question}]}]}
    status, text = post(server, "/v1/chat/completions", chat)
    got = json.loads(text)
    check(status == 200 and said_by(got) == want, f"chat completions: {status} {text[:300]} instead of {want!r}")
    check(status == 200 and got["usage"]["prompt_tokens"] == n_prompt, f"tokens: {text[-300:]}")
    status, text = post(server, "/v1/chat/completions", chat)
    check(status == 200 and said_by(json.loads(text)) == want, "the same again")
    status, text = post(server, "/v1/chat/completions", {**chat, "stream": True})
    streamed = "".join(json.loads(line[6:])["choices"][0]["delta"].get("content") or "" for line in text.splitlines()
                       if line.startswith("data: {") and json.loads(line[6:])["choices"])
    check(streamed == want, f"streamed: {streamed!r} instead of {want!r}")
    other = json.loads(json.dumps(chat))
    other["messages"][0]["content"][0] = image_part("square.png")
    status, text = post(server, "/v1/chat/completions", other)
    check(status == 200, f"another picture: {text[:200]}")
    fresh = post(server, "/v1/chat/completions", {**other, "cache_prompt": False})[1]
    check(said_by(json.loads(text)) == said_by(json.loads(fresh)), "pictures of one size do not share what was computed for another")
    history = chat["messages"] + [{"role": "assistant", "content": "A field."}, {"role": "user", "content": "Why?"}]
    status, text = post(server, "/v1/chat/completions", {**chat, "messages": history})
    check(status == 200, f"a picture in an earlier turn: {text[:200]}")
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": file_of("land.png")}}
    status, text = post(server, "/v1/messages", {"model": "x", "max_tokens": n, "temperature": 0, "messages": [{"role": "user", "content": [block, {"type": "text", "text": question}]}]})
    check(status == 200 and json.loads(text)["content"][0]["text"] == want, f"messages: {status} {text[:300]}")
    status, text = post(server, "/v1/responses", {"model": "x", "max_output_tokens": n, "temperature": 0, "input": [
        {"role": "user", "content": [{"type": "input_image", "image_url": url_of("land.png")}, {"type": "input_text", "text": question}]}]})
    check(status == 200 and want in text.replace("\\n", "\n") or (status == 200 and json.dumps(want)[1:-1] in text), f"responses: {status} {text[:400]}")
    options = {"num_predict": n, "temperature": 0}
    status, text = post(server, "/api/chat", {"model": "x", "stream": False, "options": options, "messages": [{"role": "user", "content": question, "images": [file_of("land.png")]}]})
    check(status == 200 and json.loads(text)["message"]["content"] == want, f"api/chat: {status} {text[:300]}")
    status, text = post(server, "/api/generate", {"model": "x", "stream": False, "options": options, "prompt": question, "images": [file_of("land.png")]})
    check(status == 200 and json.loads(text)["response"] == want, f"api/generate: {status} {text[:300]}")


def refusals(server):
    def ask(part):
        return post(server, "/v1/chat/completions", {"model": "x", "max_tokens": 1, "messages": [{"role": "user", "content": [part]}]})
    for name, part, words in (
            ("an address elsewhere", {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, "data:"),
            ("no base64", {"type": "image_url", "image_url": {"url": "data:image/png;base64,@@@"}}, "base64"),
            ("no picture", {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}, "no picture"),
            ("cut off", {"type": "image_url", "image_url": {"url": url_of("land.png")[:2000]}}, "PNG"),
            ("no url", {"type": "image_url", "image_url": {}}, "url"),
            ("low detail", {"type": "image_url", "image_url": {"url": url_of("land.png"), "detail": "low"}}, "detail"),
            ("a sound", {"type": "input_audio", "input_audio": {}}, "input_audio")):
        status, text = ask(part)
        check(status == 400 and words in text, f"{name}: {status} {text[:300]}")


CHAT, PICTURES = "/v1/chat/completions", ("land.png", "tall.png", "square.png", "photo.png", "tiny.png", "alpha.png")
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {
    "type": "object", "properties": {"side": {"enum": ["left", "right"]}}, "required": ["side"], "additionalProperties": False}}}]


def says_what_it_takes(server, sees):
    """What clients ask before they offer to attach a picture."""
    status, _, text = server.request("/props")
    check(status == 200 and json.loads(text)["modalities"]["vision"] is sees, f"/props: {text[:300]}")
    status, text = post(server, "/api/show", {"model": json.loads(text)["model_alias"]})
    check(status == 200 and ("vision" in json.loads(text)["capabilities"]) is sees, f"/api/show: {text[-300:]}")


def answer_of(model, images, ids, n):
    """What `mlxcel generate` says behind a prompt whose placeholders are expanded."""
    flags = [f for i in images for f in ("--image", f"{root}/images/{i}")]
    r = subprocess.run([program, "generate", "-m", model, *flags, "--tokens", ",".join(map(str, ids)), "-n", str(n), "--device", "cpu", "--json", "--ignore-eos"], capture_output=True, text=True)
    return json.loads(r.stdout)["text"] if r.returncode == 0 else r.stderr


def with_parts(message):
    """A message of the fixtures, with its pictures in it."""
    images = iter(message["images"])
    return [{"role": "user", "content": [image_part(next(images)) if p["type"] == "image" else p for p in message["messages"][0]["content"]]}]


def deltas(text):
    """Each choice of a stream."""
    said = {}
    for line in text.splitlines():
        for c in json.loads(line[6:])["choices"] if line.startswith("data: {") else ():
            said[c["index"]] = said.get(c["index"], "") + (c["delta"].get("content") or "")
    return said


punished = []  # whether penalties make a model say something else
changed = []  # whether a model says something else when its two pictures are exchanged


def combined(server, model):
    """Two pictures; then all that a request may ask for besides, with them."""
    prompts = json.load(open(f"{model}/prompts.json"))["prompts"]
    two, n = next(p for p in prompts if len(p["images"]) == 2), 12
    body = {"messages": with_parts(two), "max_tokens": n, "temperature": 0, "ignore_eos": True}
    name = os.path.basename(model)
    ids = json.loads(subprocess.run([program, "tokenize", "-m", model, *[f for i in two["images"] for f in ("--image", f"{root}/images/{i}")], "-p", two["rendered"]],
                                    capture_output=True, text=True).stdout)
    want = answer_of(model, two["images"], ids, n)
    status, text = post(server, CHAT, body)
    got = json.loads(text)
    check(status == 200 and said_by(got) == want and got["usage"]["prompt_tokens"] == two["n_tokens"], f"{name}, two pictures: {status} {text[:300]} instead of {want!r}")
    status, text = post(server, CHAT, {**body, "n": 3, "stream": True})
    check(status == 200 and deltas(text) == {i: want for i in range(3)}, f"{name}, two pictures, three answers, streamed: {text[:300]}")
    penalties = {"repetition_penalty": 1.4, "repeat_last_n": 40, "frequency_penalty": 1.5, "presence_penalty": 1.0, "logprobs": True, "top_logprobs": 3}
    status, text = post(server, CHAT, {**body, **penalties})
    fresh = post(server, CHAT, {**body, **penalties, "cache_prompt": False})[1]
    check(status == 200 and said_by(json.loads(text)) == said_by(json.loads(fresh)), f"{name}, two pictures and penalties: {text[:300]}")
    punished.append(said_by(json.loads(text)) != want)
    cached = json.loads(post(server, CHAT, body)[1])["usage"]["prompt_tokens_details"]["cached_tokens"]
    if name in ("smolvlm", "llava_next"):  # every layer keeps all that it has seen
        check(64 <= cached < two["n_tokens"], f"{name}, two pictures from the prefix cache: {cached} of {two['n_tokens']}")
    swapped = json.loads(json.dumps(body))
    parts = [p for p in swapped["messages"][0]["content"] if p["type"] == "image_url"]
    parts[0]["image_url"], parts[1]["image_url"] = parts[1]["image_url"], parts[0]["image_url"]
    status, text = post(server, CHAT, swapped)
    fresh = json.loads(post(server, CHAT, {**swapped, "cache_prompt": False})[1])
    check(status == 200 and said_by(json.loads(text)) == said_by(fresh), f"{name}, the two exchanged: {said_by(json.loads(text))!r} and {said_by(fresh)!r}")
    changed.append(said_by(fresh) != want)
    history = [*body["messages"], {"role": "assistant", "content": want}, {"role": "user", "content": [{"type": "text", "text": "And this?"}, image_part("land.png")]}]
    status, text = post(server, CHAT, {**body, "messages": history})
    fresh = json.loads(post(server, CHAT, {**body, "messages": history, "cache_prompt": False})[1])
    check(status == 200 and said_by(json.loads(text)) == said_by(fresh), f"{name}, pictures in an earlier turn and in this one: {text[:300]}")
    status, text = post(server, CHAT, {**body, "max_tokens": 40, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["day", "night"]}}}})
    check(status == 200 and said_by(json.loads(text)) in ('"day"', '"night"'), f"{name}, two pictures and a schema: {text[:300]}")


TEMPLATE = """{% if tools %}<|im_start|>system
Call these functions: {% for t in tools %}{{ t | tojson }}{% endfor %}
For each call write <tool_call>{"name": ..., "arguments": ...}</tool_call>.<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m['role'] }}
{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}{% if c['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}
{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def tools_and_pictures(model):
    """A call about a picture, then its result in another turn, with another picture."""
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write(TEMPLATE)
        f.flush()
        with Server(program, "-m", model, "--device", "cpu", "--chat-template-file", f.name) as s:
            messages = [{"role": "user", "content": [image_part("land.png"), {"type": "text", "text": "Which side?"}]}]
            body = {"max_tokens": 400, "temperature": 0, "frequency_penalty": 2, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
            status, text = post(s, CHAT, {**body, "messages": messages})
            message = json.loads(text)["choices"][0]["message"] if status == 200 else {}
            calls = message.get("tool_calls") or [{}]
            check(calls[0].get("function", {}).get("name") == "look_up" and json.loads(calls[0]["function"]["arguments"])["side"] in ("left", "right"),
                  f"a picture and tools: {status} {text[:400]}")
            messages += [message, {"role": "tool", "tool_call_id": calls[0].get("id"), "content": "A tree."},
                         {"role": "user", "content": [{"type": "text", "text": "And here?"}, image_part("square.png")]}]
            status, text = post(s, CHAT, {**body, "messages": messages, "stream": True})
            check(status == 200 and '"look_up"' in text and '"finish_reason":"tool_calls"' in text, f"another picture behind a call's result, streamed: {status} {text[-400:]}")


def small_cache(model):
    """Answers about pictures are put back and computed again, and are what they would be alone."""
    def ask(s, name):
        body = {"messages": [{"role": "user", "content": [image_part(name), {"type": "text", "text": "What is in the image?"}]}], "max_tokens": 100, "temperature": 0, "ignore_eos": True}
        status, text = post(s, CHAT, body)
        return said_by(json.loads(text)) if status == 200 else text
    with Server(program, "-m", model, "--device", "cpu", "--parallel", "6", "--kv-tokens", "384", "--ctx-size", "384") as s, ThreadPoolExecutor(6) as pool:
        alone = [ask(s, name) for name in PICTURES]
        check(len(set(alone)) > 3, f"{model}: {alone}")
        for _ in range(20):
            check(list(pool.map(lambda name: ask(s, name), PICTURES)) == alone, f"{model}: the same answers in a small cache")
            if s.metrics()["mlxcel_preemptions_total"] > 0:
                break
        check(s.wait_quiet()["mlxcel_preemptions_total"] > 0, f"{model}: somebody was put back")


def beside_text(model):
    """Questions about pictures and others without any, in the same steps: each gets the answer that it gets alone."""
    def ask(s, name):
        parts = [*([image_part(name)] if name else []), {"type": "text", "text": "What is in the image?"}]
        status, text = post(s, CHAT, {"messages": [{"role": "user", "content": parts}], "max_tokens": 60, "temperature": 0, "ignore_eos": True})
        return said_by(json.loads(text)) if status == 200 else text
    with Server(program, "-m", model, "--device", "cpu", "--parallel", "6") as s, ThreadPoolExecutor(6) as pool:
        names = ["land.png", None, "square.png", None, "tall.png", None]
        alone = [ask(s, name) for name in names]
        check(len(set(alone)) == 4, f"{model}: {alone}")
        for _ in range(3):
            check(list(pool.map(lambda name: ask(s, name), names)) == alone, f"{model}: pictures beside text")


model = f"{root}/qwen2_5_vl"
prompt = json.load(open(f"{model}/prompts.json"))["prompts"][0]
r = subprocess.run([program, "generate", "-m", model, "--image", f"{root}/images/land.png", "-p", prompt["text"], "-n", "8", "--device", "cpu", "--json"],
                   capture_output=True, text=True)
if r.returncode:
    raise SystemExit(r.stderr)
with Server(program, "-m", model, "--device", "cpu") as s:
    every_protocol(s, json.loads(r.stdout)["text"], prompt["n_tokens"], prompt["text"])
    refusals(s)
    says_what_it_takes(s, True)
for name in ("gemma3", "smolvlm", "qwen3_5", "llava_next", "mllama"):
    with Server(program, "-m", f"{root}/{name}", "--device", "cpu") as s:
        combined(s, f"{root}/{name}")
def kept_pictures(model):
    """A picture that comes again is not computed again: in another turn, and in another request."""
    with Server(program, "-m", model, "--device", "cpu", "--log-level", "debug") as s:
        messages = [{"role": "user", "content": [image_part("land.png"), {"type": "text", "text": "What?"}]}]
        for _ in range(3):
            status, text = post(s, CHAT, {"messages": messages, "max_tokens": 4, "temperature": 0})
            check(status == 200, f"a turn: {text[:200]}")
            messages += [{"role": "assistant", "content": "x"}, {"role": "user", "content": [image_part("land.png"), image_part("square.png")]}]
    computed, kept = s.log.count("tokens was computed"), s.log.count("as it was computed before")
    check((computed, kept) == (2, 7), f"{computed} pictures were computed and {kept} kept")


def typed(words, lines):
    """What a terminal shows of `mlxcel run` when these lines are typed."""
    here, there = pty.openpty()
    p = subprocess.Popen([program, "run", *words], stdin=there, stdout=there, stderr=there, env={**os.environ, "TERM": "dumb"})
    os.close(there)
    os.write(here, "".join(f"{x}\r" for x in lines).encode())
    shown = b""
    try:
        while part := os.read(here, 65536):
            shown += part
    except OSError:  # the other side is closed
        pass
    p.wait(timeout=HANG)
    os.close(here)
    return p.returncode, shown.decode(errors="replace")


def conversation(model):
    """mlxcel run: /image, then a question about it."""
    lines = [f"/image {root}/images/land.png", "What is in the image?", f"/image {root}/images/square.png", "And this one?", "/image /nowhere.png", f"/image {__file__}", "/bye"]
    code, shown = typed([model, "--device", "cpu", "--temp", "0", "-n", "8"], lines)
    check(code == 0 and "137 x 89" in shown and shown.count("goes with your next message") == 2, f"/image says what it took: {code} {shown[-1500:]!r}")
    check("/nowhere.png" in shown and "no picture that can be read" in shown, f"/image of what is none: {shown[-1500:]!r}")
    code, shown = typed(["--device", "cpu", "-n", "1"], [f"/image {root}/images/land.png", "/bye"])
    check("no chat template" in shown or "no pictures" in shown, f"/image without a tower: {code} {shown[-500:]!r}")


check(sum(changed) >= 3, f"exchanged pictures are another question: {changed}")
check(any(punished), "penalties change no answer")
tools_and_pictures(model)
kept_pictures(model)
conversation(model)
for name in ("gemma3", "qwen2_5_vl", "mllama"):
    small_cache(f"{root}/{name}")
beside_text(f"{root}/mllama")
with tempfile.TemporaryDirectory() as folder:
    for name in os.listdir(f"{root}/llava"):
        if name not in ("config.json", "golden.safetensors"):
            os.symlink(f"{root}/llava/{name}", f"{folder}/{name}")
    config = json.load(open(f"{root}/llava/config.json"))
    config["vision_config"]["model_type"] = "some_other_tower"
    json.dump(config, open(f"{folder}/config.json", "w"))
    with Server(program, "-m", folder, "--device", "cpu") as s:
        status, text = post(s, "/v1/chat/completions", {"model": "x", "max_tokens": 1, "messages": [{"role": "user", "content": [image_part("land.png")]}]})
        check(status == 400 and "text alone" in text, f"a tower that is not run: {status} {text[:300]}")
        says_what_it_takes(s, False)
finish()
