"""Pictures through every protocol of the server: test_server.py PROGRAM DATA

The same question about the same picture must get the same answer as from `mlxcel generate`, and cost as many tokens. Bad pictures, addresses that
would have to be fetched and models without a tower get one clear 400 each.
"""
import base64
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "server"))
from harness import Server, check, finish  # noqa: E402

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


model = f"{root}/qwen2_5_vl"
prompt = json.load(open(f"{model}/prompts.json"))["prompts"][0]
r = subprocess.run([program, "generate", "-m", model, "--image", f"{root}/images/land.png", "-p", prompt["text"], "-n", "8", "--device", "cpu", "--json"],
                   capture_output=True, text=True)
if r.returncode:
    raise SystemExit(r.stderr)
with Server(program, "-m", model, "--device", "cpu") as s:
    every_protocol(s, json.loads(r.stdout)["text"], prompt["n_tokens"], prompt["text"])
    refusals(s)
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
finish()
