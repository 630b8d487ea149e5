#!/usr/bin/env python3
"""What decides on the tokens: flags and fields before generation_config.json before what is built in; seeds in any company and after
preemption; thoughts apart from answers; logits that are no numbers; the context that fits.

usage: test_choices.py PROGRAM      last line: "N passed, N failed, N skipped"
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import crafted

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))
from harness import HANG, Server, check, finish  # noqa: E402

program = os.path.abspath(sys.argv[1])


def run(*args, text=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MLXCEL_", "LLAMA_ARG_"))}
    return subprocess.run([program, *map(str, args)], input=text, capture_output=True, text=True, timeout=HANG, env=env, encoding="utf-8")


def generate(model, *args, **keys):
    r = run("generate", "-m", model, "-p", "Once upon", "-n", "24", "--ids", *args, **keys)
    return r.stdout if r.returncode == 0 else f"failed: {r.stderr}"


def settings(model, *args):
    """What `run` draws with, as /set tells it."""
    r = run("run", model, "--lines", *args, text="/set\n")
    found = dict(re.findall(r"(?m)^([a-z_]+) ([\d.]+)$", r.stderr))
    return {k: float(v) for k, v in found.items()} or r.stderr


def set_generation(model, **values):
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [2], **values}))


def check_precedence_of_commands(model):
    """The file's values are other ones than the built-in ones, the flags' again other ones."""
    set_generation(model)
    built_in = settings(model)
    check(built_in.get("temperature") == 0.8 and built_in.get("top_p") == 0.95 and built_in.get("top_k") == 0, f"run, built in: {built_in}")
    plain = generate(model)
    by_seed = generate(model, "--seed", "3")
    check(by_seed == generate(model, "--seed", "3", "--temp", "0.8") != plain, f"generate draws at 0.8 where nobody says how: {by_seed!r}")
    hot, cut = generate(model, "--seed", "3", "--temp", "1.7"), generate(model, "--seed", "3", "--temp", "1.7", "--top-k", "5")
    other = generate(model, "--seed", "3", "--temp", "0.3", "--top-k", "5")
    check(len({plain, by_seed, hot, cut, other}) == 5, "five ways of drawing, five texts")

    set_generation(model, do_sample=True, temperature=1.7, top_k=5, top_p=0.5)
    got = settings(model)
    check((got.get("temperature"), got.get("top_k"), got.get("top_p")) == (1.7, 5, 0.5), f"run, the file: {got}")
    got = settings(model, "--temp", "0.3", "--top-p", "1")
    check((got.get("temperature"), got.get("top_k"), got.get("top_p")) == (0.3, 5, 1), f"run, flags before the file: {got}")
    set_generation(model, do_sample=True, temperature=1.7, top_k=5)
    check(generate(model) == plain, "generate is greedy without a flag, whatever the file says")
    check(generate(model, "--seed", "3") == cut, "generate takes the file's values as soon as it draws")
    check(generate(model, "--seed", "3", "--top-k", "0") == hot, "a flag comes before the file, the rest of the file stays")
    check(generate(model, "--seed", "3", "--temp", "0.3") == other, "a flag comes before the file")
    check(generate(model, "--seed", "3", "--temp", "0") == plain, "temperature 0 by flag is greedy")
    set_generation(model, do_sample=False, temperature=1.7)
    check(generate(model, "--seed", "3") == by_seed, "a temperature beside do_sample: false does not count")
    set_generation(model, do_sample=True, temperature=-3, top_p=7)
    r = run("generate", "-m", model, "-p", "Once upon", "-n", "24", "--ids", "--seed", "3")
    check(r.stdout == by_seed and "temperature is out of range" in r.stderr and "top_p is out of range" in r.stderr, f"bad values of the file: {r}")


def ask(server, **fields):
    status, _, text = server.request("/v1/completions", {"prompt": "Once upon", "max_tokens": 24, "seed": 3, "ignore_eos": True, **fields})
    return [c["text"] for c in json.loads(text)["choices"]] if status == 200 else f"{status} {text}"


def check_precedence_of_server(model):
    set_generation(model)
    with Server(program, "-m", str(model), "--threads", "1") as s:
        one, hot, cut, other = ask(s), ask(s, temperature=1.7), ask(s, temperature=1.7, top_k=5), ask(s, temperature=0.3, top_k=5)
        check(one == ask(s, temperature=1) and len({str(x) for x in (one, hot, cut, other)}) == 4, f"server, built in: {one}")
    set_generation(model, do_sample=True, temperature=1.7, top_k=5)
    with Server(program, "-m", str(model), "--threads", "1") as s:
        check(ask(s) == cut, "server, the file")
        check(ask(s, top_k=0) == hot, "server, a field before the file, the rest of the file stays")
        check(ask(s, temperature=0.3) == other, "server, a field before the file")
    with Server(program, "-m", str(model), "--threads", "1", "--top-k", "0") as s:
        check(ask(s) == hot, "server, a flag before the file")
        check(ask(s, top_k=5) == cut, "server, a field before the flag")


def check_company(model):
    """One request of many prompts, on a cache that cannot hold them all: each gets what it gets alone."""
    set_generation(model)
    prompts = [f"Text number {i} " + "begins so " * (3 * i) for i in range(6)]
    fields = {"max_tokens": 100, "temperature": 1.2, "top_p": 0.9, "min_p": 0.01}
    with Server(program, "-m", str(model), "--parallel", "1") as s:
        alone = [ask(s, prompt=p, **fields)[0] for p in prompts]
        check(s.metrics()["mlxcel_preemptions_total"] == 0, "alone, nobody is put back")
    check(len(set(alone)) == len(prompts), f"six texts: {alone}")
    with Server(program, "-m", str(model), "--parallel", "6") as s:
        check(ask(s, prompt=prompts, **fields) == alone, "the same seed in company")
    with Server(program, "-m", str(model), "--parallel", "6", "--kv-tokens", "320") as s:
        for _ in range(20):
            check(ask(s, prompt=prompts, **fields) == alone, "the same seed in a small cache")
            if s.metrics()["mlxcel_preemptions_total"] > 0:
                break
        check(s.metrics()["mlxcel_preemptions_total"] > 0, "somebody was put back")
        s.wait_quiet()


def check_small_cache(model):
    """--kv-bits: the server says so, and a text is the same alone and in company."""
    set_generation(model)
    prompts = [f"Text number {i} " + "begins so " * (5 * i) for i in range(4)]
    with Server(program, "-m", str(model), "--parallel", "4", "--device", "cpu", "--kv-bits", "8") as s:
        status, _, text = s.request("/v1/models")
        check(status == 200 and json.loads(text)["data"][0]["meta"].get("kv_bits") == 8, f"/v1/models: {text}")
        alone = [ask(s, prompt=p)[0] for p in prompts]
        check(len(set(alone)) == len(prompts) and ask(s, prompt=prompts) == alone, f"a small cache, alone and in company: {alone}")


def check_thoughts(folder):
    for name, script, opens, thoughts, answer in (("free", crafted.SCRIPT, "", "Two and two", "The sum is four."),
                                                  ("inside", crafted.SCRIPT_INSIDE, "<think>\n", "Three less one", "It leaves a pair.")):
        model = crafted.make(folder / name, script, opens)
        for command in (["generate", "-m", model, "-p", "hello"], ["run", model, "-p", "hello", "--temp", "0"]):
            r = run(*command)
            check(r.stdout == answer + "\n", f"{name}, {command[0]}: thoughts are hidden: {r}")
            r = run(*command, "--show-reasoning")
            check(r.stdout == f"<think>\n{thoughts}\n</think>\n\n{answer}\n", f"{name}, {command[0]} --show-reasoning: {r}")
        r = json.loads(run("generate", "-m", model, "-p", "hello", "--json").stdout)
        check(r["text"] == answer and r["reasoning"] == thoughts and r["finish_reason"] == "stop", f"{name}, --json: {r}")
        more = json.loads(run("generate", "-m", model, "-p", "hello", "--json", "--system", "hello hello").stdout)
        check(more["text"] == answer and more["prompt_tokens"] == r["prompt_tokens"] + 2, f"{name}, --system: {more}")
        r = run("run", model, "--lines", "--temp", "0", text="hello\n/set show_reasoning on\nhello\n")
        check(r.stdout == f"{answer}\n<think>\n{thoughts}\n</think>\n\n{answer}\n", f"{name}, /set show_reasoning: {r}")
        r = run("generate", "-m", model, "-p", "hello", "--stop", " is", "--stop", " leaves")
        check(r.stdout in ("The sum\n", "It\n"), f"{name}, --stop: {r}")
        with Server(program, "-m", str(model)) as s:
            body = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0}
            message = json.loads(s.request("/v1/chat/completions", body)[2])["choices"][0]["message"]
            check(message["content"] == answer and message["reasoning_content"] == thoughts, f"{name}, server: {message}")
            text = s.request("/v1/chat/completions", {**body, "stream": True})[2]
            deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in text.splitlines() if line.startswith("data: {")]
            parts = ["".join(d.get(k) or "" for d in deltas) for k in ("reasoning_content", "content")]
            check(parts == [thoughts, answer], f"{name}, streamed: {parts}")


def check_bad_logits(folder):
    """A word whose embedding is no number: its request fails, others go on."""
    model = folder / "free"
    for more in ([], ["--temp", "1"], ["--temp", "0", "--logit-bias", "5+1"], ["--mirostat", "2"]):
        r = run("generate", "-m", model, "-p", "hello " + crafted.BAD, *more)
        check(r.returncode == 1 and r.stdout == "" and "logits" in r.stderr, f"NaN, {more}: {r}")
    r = run("run", model, text=f"hello {crafted.BAD}\n")
    check(r.returncode == 1 and "logits" in r.stderr, f"NaN, run: {r}")
    with Server(program, "-m", str(model), "--parallel", "4") as s:
        answers = {}

        def talk(i):
            word = crafted.BAD if i % 2 else "hello"
            answers[i] = s.request("/v1/chat/completions", {"messages": [{"role": "user", "content": word}], "temperature": i % 4 / 2})
        threads = [threading.Thread(target=talk, args=(i,)) for i in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for i, (status, _, text) in sorted(answers.items()):
            if i % 2:
                check(status == 500 and json.loads(text)["error"]["type"] == "server_error", f"NaN, server: {status} {text}")
            else:
                check(status == 200 and json.loads(text)["choices"][0]["message"]["content"] == "The sum is four.", f"beside NaN: {status} {text}")
        s.wait_quiet()
    check("logits" in s.log, f"NaN, the server's log says why: {s.log}")


def check_context(model):
    """A model that would like a context which no machine has: the largest that fits, said in the first line; more is refused."""
    config = json.loads((model / "config.json").read_text())
    wish = 2_000_000_000
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": wish}))
    r = run("generate", "-m", model, "-p", "Once upon", "-n", "2", "--device", "cpu")
    found = re.search(r", context (\d+)", r.stderr)
    fits = int(found[1]) if found else 0
    check(r.returncode == 0 and 0 < fits < wish and fits % 64 == 0, f"the context that fits: {r}")
    r = run("generate", "-m", model, "-p", "Once upon", "-n", "2", "--device", "cpu", "-c", "100")
    check(r.returncode == 0 and ", context 100" in r.stderr, f"a context by wish: {r}")
    # two layers, two heads, 64 + 64 numbers at each position: of four bytes each, or of two where the kernels can
    for precision, sizes in (("exact", "4096"), ("auto", "4096|2048")):
        r = run("generate", "-m", model, "-p", "Once upon", "-n", "2", "--device", "cpu", "-c", str(wish), "--precision", precision)
        found = re.search(rf"a context of 2000000000 for 1 at once needs ({sizes})\.0 GB \(\1\.0 GB for the whole context\) and [\d.]+ GB are free here; "
                          r"--ctx-size (\d+) fits, --force tries", r.stderr)
        check(r.returncode == 1 and found and 0 < int(found[2]) < wish, f"a context that does not fit: {r}")
    r = run("generate", "-m", model, "-p", "Once upon", "-n", "2", "--device", "cpu", "-c", str(wish), "--force")
    check("--force tries" not in r.stderr and (r.returncode == 0 or "memory" in r.stderr), f"--force: {r}")
    r = run("serve", "-m", model, "--device", "cpu", "-c", str(wish), "--port", "0")
    check(r.returncode == 1 and "--force tries" in r.stderr, f"serve: {r}")
    (model / "config.json").write_text(json.dumps(config))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "tiny"
        r = run("synth", "--shape", "tiny", "-o", model)
        check(r.returncode == 0, f"synth: {r}")
        check_precedence_of_commands(model)
        check_precedence_of_server(model)
        check_company(model)
        check_small_cache(model)
        check_thoughts(folder)
        check_bad_logits(folder)
        check_context(model)
    finish()


main()
