"""Pictures through every protocol of the server: test_server.py PROGRAM DATA

The same question about the same picture must get the same answer as from `mlxcel generate`, and cost as many tokens. Bad pictures, addresses that
would have to be fetched and models without a tower get one clear 400 each.
"""
import base64
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request

program, data = sys.argv[1:3]
root = f"{data}/golden-vision"
passed = failed = 0


def check(ok, what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print("FAILED:", what)


def start(model):
    p = subprocess.Popen([program, "serve", "-m", model, "--port", "0", "--device", "cpu"], stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
    for line in p.stdout:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if found:
            return p, f"http://127.0.0.1:{found.group(1)}"
    raise SystemExit("the server did not start")


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as r:
            return r.status, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def file_of(name):
    with open(f"{root}/images/{name}", "rb") as f:
        return base64.b64encode(f.read()).decode()


def url_of(name):
    return f"data:image/png;base64,{file_of(name)}"


def image_part(name):
    return {"type": "image_url", "image_url": {"url": url_of(name)}}


def said_by(text):
    return text["choices"][0]["message"]["content"]


def every_protocol(base, want, n_prompt, question):
    n = 8
    chat = {"model": "x", "max_tokens": n, "temperature": 0, "messages": [{"role": "user", "content": [image_part("land.png"), {"type": "text", "text": question}]}]}
    status, text = post(f"{base}/v1/chat/completions", chat)
    got = json.loads(text)
    check(status == 200 and said_by(got) == want, f"chat completions: {status} {text[:300]} instead of {want!r}")
    check(status == 200 and got["usage"]["prompt_tokens"] == n_prompt, f"tokens: {text[-300:]}")
    status, text = post(f"{base}/v1/chat/completions", chat)
    check(status == 200 and said_by(json.loads(text)) == want, "the same again")
    status, text = post(f"{base}/v1/chat/completions", {**chat, "stream": True})
    streamed = "".join(json.loads(line[6:])["choices"][0]["delta"].get("content") or "" for line in text.splitlines()
                       if line.startswith("data: {") and json.loads(line[6:])["choices"])
    check(streamed == want, f"streamed: {streamed!r} instead of {want!r}")
    other = json.loads(json.dumps(chat))
    other["messages"][0]["content"][0] = image_part("square.png")
    status, text = post(f"{base}/v1/chat/completions", other)
    check(status == 200, f"another picture: {text[:200]}")
    fresh = post(f"{base}/v1/chat/completions", {**other, "cache_prompt": False})[1]
    check(said_by(json.loads(text)) == said_by(json.loads(fresh)), "pictures of one size do not share what was computed for another")
    history = chat["messages"] + [{"role": "assistant", "content": "A field."}, {"role": "user", "content": "Why?"}]
    status, text = post(f"{base}/v1/chat/completions", {**chat, "messages": history})
    check(status == 200, f"a picture in an earlier turn: {text[:200]}")
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": file_of("land.png")}}
    status, text = post(f"{base}/v1/messages", {"model": "x", "max_tokens": n, "temperature": 0, "messages": [{"role": "user", "content": [block, {"type": "text", "text": question}]}]})
    check(status == 200 and json.loads(text)["content"][0]["text"] == want, f"messages: {status} {text[:300]}")
    status, text = post(f"{base}/v1/responses", {"model": "x", "max_output_tokens": n, "temperature": 0, "input": [
        {"role": "user", "content": [{"type": "input_image", "image_url": url_of("land.png")}, {"type": "input_text", "text": question}]}]})
    check(status == 200 and want in text.replace("\\n", "\n") or (status == 200 and json.dumps(want)[1:-1] in text), f"responses: {status} {text[:400]}")
    options = {"num_predict": n, "temperature": 0}
    status, text = post(f"{base}/api/chat", {"model": "x", "stream": False, "options": options, "messages": [{"role": "user", "content": question, "images": [file_of("land.png")]}]})
    check(status == 200 and json.loads(text)["message"]["content"] == want, f"api/chat: {status} {text[:300]}")
    status, text = post(f"{base}/api/generate", {"model": "x", "stream": False, "options": options, "prompt": question, "images": [file_of("land.png")]})
    check(status == 200 and json.loads(text)["response"] == want, f"api/generate: {status} {text[:300]}")


def refusals(base):
    def ask(part):
        return post(f"{base}/v1/chat/completions", {"model": "x", "max_tokens": 1, "messages": [{"role": "user", "content": [part]}]})
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
server, base = start(model)
try:
    every_protocol(base, json.loads(r.stdout)["text"], prompt["n_tokens"], prompt["text"])
    refusals(base)
finally:
    server.terminate()
    server.wait()
server, base = start(f"{root}/llama4")
try:
    status, text = post(f"{base}/v1/chat/completions", {"model": "x", "max_tokens": 1, "messages": [{"role": "user", "content": [image_part("land.png")]}]})
    check(status == 400 and "text alone" in text, f"a tower that is not run: {status} {text[:300]}")
finally:
    server.terminate()
    server.wait()
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
