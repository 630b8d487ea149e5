#!/usr/bin/env python3
"""The program from outside: exit codes, messages, closed pipes, JSON that parses, scripts that shells accept.

usage: test_cli.py PROGRAM      last line: "N passed, N failed, N skipped"
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from counting import HANG, check, finish, parts, skip  # noqa: E402
from terminal import read_all, rows  # noqa: E402

program = os.path.abspath(sys.argv[1])


def run(*args, env=None, exe=program, text_in=None):
    full = {k: v for k, v in os.environ.items() if not k.startswith(("MLXCEL_", "LLAMA_ARG_"))}
    return subprocess.run([exe, *args], capture_output=True, text=True, timeout=HANG, env={**full, **(env or {})}, input=text_in)


def expect(args, code, out="", err="", env=None):
    r = run(*args, env=env)
    ok = r.returncode == code and out in r.stdout and err in r.stderr and (code == 0) == bool(r.stdout) and r.stderr.count("\n") == (code != 0)
    check(ok, f"{' '.join(args)}: {r.returncode} {r.stdout[:200]!r} {r.stderr!r}")
    return r


def generate(*args):
    r = run("generate", "-p", "Once upon a time", "-n", "24", *args)
    return r.stdout if r.returncode == 0 else f"failed: {r.stderr}"


def check_generate():
    """Sampling options, seeds, stop strings and JSON, on the built-in model."""
    greedy, seven = generate(), generate("--seed", "7")
    check(generate("--temp", "0") == greedy and generate("--top-k", "1") == greedy, "temperature 0 and top-k 1 are greedy")
    check(seven == generate("--seed", "7") and seven != generate("--seed", "8"), "the same seed gives the same text, another one another")
    words = run("generate", "Once", "upon", "a time", "-n", "24")
    check(words.stdout == greedy, f"a prompt without --prompt: {words.stdout!r} {words.stderr}")
    expect(["generate", "x", "-p", "y"], 2, err="give the prompt once")
    expect(["serve", "built-in", "-m", "built-in"], 2, err="give the models once")
    r = run("serve", "built-in", "--port", "0", "--check")
    check(r.returncode == 0 and "built-in" in r.stdout, f"serve MODEL: {r.stdout} {r.stderr}")
    check(generate("--seed", "7", "--threads", "1") == seven, "the same seed gives the same text on one thread")
    for options in (["--min-p", "0.1"], ["--typical", "0.9"], ["--xtc-probability", "0.5"], ["--dry-multiplier", "0.8", "--dry-sequence-breaker", "."],
                    ["--mirostat", "1"], ["--mirostat", "2", "--mirostat-ent", "3"], ["--dynatemp-range", "0.3"], ["--repeat-penalty", "1.2"]):
        check(len(generate("--seed", "1", *options)) > 20, f"generate {' '.join(options)}")
    answer = json.loads(generate("--json", "--logprobs", "2", "--stop", "little"))
    check("little" not in answer["text"] and answer["finish_reason"] == "stop" and greedy.startswith(answer["text"]), f"--stop: {answer}")
    check(len(answer["logprobs"]) == len(answer["tokens"]) and all(len(t["top"]) == 2 and t["logprob"] <= 0 for t in answer["logprobs"]), "--logprobs")
    check(json.loads(generate("--json"))["finish_reason"] == "length", "--json says why it ended")
    first = str(answer["tokens"][0])
    check(json.loads(generate("--json", "--logit-bias", first + "-inf"))["tokens"][0] != int(first), "--logit-bias")
    for bad in (["--top-p", "2"], ["--temp", "-1"], ["--mirostat", "3"], ["--xtc-threshold", "nan"]):
        r = run("generate", "-p", "x", *bad)
        check(r.returncode == 2 and bad[0] in r.stderr, f"generate {bad}: {r.returncode} {r.stderr}")
    with tempfile.TemporaryDirectory() as folder:
        run("synth", "--shape", "tiny", "-o", folder + "/mute")
        os.remove(folder + "/mute/tokenizer.json")
        for command in (["generate", "-p", "x"], ["run", "-p", "x"], ["serve", "--port", "0"]):
            r = run(*command, "-m", folder + "/mute")
            check(r.returncode == 1 and "no tokenizer.json, tokenizer.model, tekken.json or .tiktoken file" in r.stderr, f"{command} without a tokenizer: {r}")
        check(run("generate", "--tokens", "1,2", "-n", "2", "--ids", "-m", folder + "/mute").returncode == 0, "ids need no tokenizer")
        r = run("generate", "--tokens", "1,2", "-n", "2", "-m", folder + "/mute")
        check(r.returncode == 1 and "--ids prints the new tokens as ids" in r.stderr, f"ids in, text out: {r}")
        os.mkdir(folder + "/empty")
        expect(["generate", "-p", "x", "-m", folder + "/empty"], 1, err="no model there, neither config.json nor model*.safetensors")
        with open(folder + "/some.gguf", "wb") as f:
            f.write(b"GGUF" + bytes(100))
        expect(["generate", "-p", "x", "-m", folder + "/some.gguf"], 1, err="GGUF version 0, known are 2 and 3")
        run("synth", "--shape", "tiny", "-o", folder + "/bare")
        os.remove(folder + "/bare/tokenizer_config.json")
        for command in (["generate", "-p", "x", "-n", "1"], ["run", "-p", "x", "-n", "1"], ["perplexity", __file__, "--chunk", "64"]):
            r = run(*command, "-m", folder + "/bare")
            check(r.returncode == 0 and "User/Assistant" not in r.stderr, f"{command[0]} goes on with a text, and speaks of no form: {r.stderr}")
        r = run("template", "-m", folder + "/bare", "-i", "-", text_in='{"messages":[{"role":"user","content":"Hi"}]}')
        check("Hi" in r.stdout and "has no chat template: using a plain User/Assistant form" in r.stderr, f"template without one: {r}")
        if not program.endswith(".exe"):
            p = subprocess.Popen([program, "serve", "--port", "0", "-m", folder + "/bare"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            p.stdout.readline()
            p.send_signal(signal.SIGTERM)
            log = p.communicate(timeout=HANG)[1]
            check("bare has no chat template: chats get a plain User/Assistant form" in log, f"serve without one: {log}")
    r = run("generate", "-m", __file__, "-p", "x")
    check(r.returncode == 1 and "is a text and no model" in r.stderr, f"a file that is no model: {r.stderr}")
    r = run("generate", "-p", "x", "-n", "1", "--ctx-size", "1000000")
    check(r.returncode == 0 and "context 1024, all that this model has" in r.stderr, f"--ctx-size beyond the model's: {r.stderr}")
    r = run("generate", "-p", "x", "-n", "1", "--ctx-size", "1024")
    check(r.returncode == 0 and "all that" not in r.stderr, f"--ctx-size: {r.stderr}")
    expect(["generate", "--tokens", "1,2", "--system", "y"], 2, err="--system needs --prompt")
    r = run("generate", "-p", "x", "--no-chat-template", "--system", "y")
    check(r.returncode == 2 and "chat template" in r.stderr, f"--system without a template: {r.stderr}")


def check_usage_first():
    """What is wrong without looking at the model is told before it is downloaded."""
    generate = {"--ids": "--prompt", "-p x --tokens 1": "exclude", "-p x --ids --json": "exclude", "-p x --logprobs 1": "--json", "-p x --logit-bias y": "15043+1",
                "-p x --cpu fast": "unknown CPU level", "-p x --backend xla --device cpu": "--xla-device", "-p x --bits 4": "--shape"}
    rows = {"generate": generate, "run": {"--logit-bias y": "15043+1", "--cpu fast": "unknown CPU level"},
            "serve": {"--ssl-cert-file x": "belong together", "--api-key ,": "no key", "--api-key-file no-such-file": "--api-key-file: cannot open"},
            "perplexity": {"no-such-text": "no-such-text"}, "bench": {"-p 0 -n 0": "nothing to measure"},
            "quantize": {"-o new --override y": "GLOB=BITS", f"-o {Path(__file__).parent}": "is not empty"}, "logits": {"--tokens 1": "--out", "--out x": "--tokens"}}
    for command, usages in rows.items():
        for usage, says in usages.items():
            r = run(command, "-m", "acme/never-asked-for", "--hub", "http://127.0.0.1:1", *usage.split())
            check(r.returncode in (1, 2) and says in r.stderr and r.stderr.count("\n") == 1, f"{command} {usage}: {r}")


def check_stdin():
    """What standard input may hold, in every command that reads it."""
    for command in ("generate", "run"):
        options = (command, "-n", "12", "--temp", "0")
        said, piped = run(*options, "-p", "Lily had a red ball"), run(*options, "-p", "-", text_in="Lily had a red ball")
        check(said.returncode == 0 and piped.stdout == said.stdout, f"{command} -p - reads standard input: {said.stdout!r} {piped.stdout!r} {piped.stderr}")
    if not program.endswith(".exe"):  # a shell cannot hand a folder over there
        for command in (["run"], ["generate", "-p", "-"], ["tokenize"], ["tokenize", "--jsonl"], ["detokenize"], ["detokenize", "--jsonl"], ["template", "--jsonl"], ["perplexity", "-"]):
            folder = os.open("/", os.O_RDONLY)
            r = subprocess.run([program, *command], stdin=folder, capture_output=True, text=True, timeout=HANG)
            os.close(folder)
            check(r.returncode == 1 and "cannot read standard input: Is a directory" in r.stderr, f"{command} of what cannot be read: {r}")
        # another program may have left the pipe we share in the mode that does not wait
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        p = subprocess.Popen([program, "tokenize", "--jsonl"], stdin=read_end, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        os.close(read_end)
        answers = []
        for _ in range(3):
            os.write(write_end, b'"Lily"\n')
            answers.append(p.stdout.readline())
        os.close(write_end)
        rest, err = p.communicate(timeout=HANG)
        check(answers[0].startswith("[") and answers == [answers[0]] * 3 and p.returncode == 0, f"an input that does not wait: {answers} {rest} {err}")
    text = "Lily had a red ball.\n"
    ids = run("tokenize", "--json", text_in=text).stdout
    for given in (ids, ids.strip("[]\n").replace(",", "\n"), ids.replace(",", " ,\t")):
        r = run("detokenize", text_in=given)
        check(r.stdout == text + "\n", f"detokenize reads standard input {given!r}: {r}")
    check(run("detokenize", "5 6", "7,8").stdout == run("detokenize", text_in="5,6,7,8").stdout, "ids as arguments and as input")
    for wrong in ("5 six", "5 99999999", "-1"):
        r = run("detokenize", text_in=wrong)
        check(r.returncode == 2 and r.stderr.count("\n") == 1 and not r.stdout, f"detokenize {wrong!r}: {r}")


def check_kv_bits():
    """A small cache: the option, what the start-up line says of it, and where it cannot be had."""
    for bits in ("8", "4"):
        r = run("generate", "-p", "Once upon a time", "-n", "8", "--device", "cpu", "--kv-bits", bits)
        check(r.returncode == 0 and f"cache of {bits} bits" in r.stderr and r.stdout.startswith("Once upon a time"), f"--kv-bits {bits}: {r.stderr}")
    r = run("generate", "-p", "x", "-n", "2", "--device", "cpu", env={"MLXCEL_KV_BITS": "8"})
    check(r.returncode == 0 and "cache of 8 bits" in r.stderr, f"MLXCEL_KV_BITS: {r.stderr}")
    r = run("generate", "-p", "x", "-n", "2", "--device", "cpu", "--kv-bits", "16")
    check(r.returncode == 0 and "cache of" not in r.stderr, f"--kv-bits 16: {r.stderr}")
    expect(["generate", "-p", "x", "--kv-bits", "5"], 2, err="--kv-bits")


def check_replay():
    """Drafts of a text that is given: steps are counted, not timed."""
    with tempfile.TemporaryDirectory() as folder:
        path, bad = os.path.join(folder, "text.json"), os.path.join(folder, "bad.json")
        tale = "The red ball was under the old bed, and the dog that slept there had not seen it. "
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"prompt": tale * 2, "answer": tale * 2}, f)
        with open(bad, "w", encoding="utf-8") as f:
            json.dump({"prompt": tale}, f)
        steps = []
        for kind in ("none", "ngram"):
            for model in (["--shape", "tiny"], []):
                r = run("bench", "--device", "cpu", "--precision", "exact", "--draft", kind, "--replay", path, "-r", "1", "-o", "json", *model)
                row = json.loads(r.stdout)[0]
                steps.append((row["steps"], row["n_gen"], row["draft_tokens"], row["draft_tokens_accepted"]))
        check(all(n > 2 * gen and drafts == 0 for n, gen, drafts, _ in steps[:2]), f"without drafts a step is a token: {steps}")
        check(all(n < 2 * gen * 0.6 and 0 < kept <= drafts for n, gen, drafts, kept in steps[2:]), f"with drafts it is several: {steps}")
        r = run("bench", "--device", "cpu", "--shape", "tiny", "--replay", bad)
        check(r.returncode == 1 and '"answer"' in r.stderr, f"bench --replay: {r.stderr}")
        r = run("generate", "--device", "cpu", "--no-chat-template", "-p", tale * 3, "-n", "24", "--ignore-eos", "--draft", "ngram", "--precision", "exact")
        check(r.returncode == 0 and "drafted tokens accepted" in r.stderr, f"generate tells of drafts: {r.stderr}")


def check_bench():
    """Figures are not judged: that they are there, for every case asked for, and what --verify compares."""
    r = run("bench", "--device", "cpu", "-p", "8,0", "-n", "4", "-b", "1,2", "-r", "1", "-o", "json", "--verify")
    rows = json.loads(r.stdout) if r.returncode == 0 else []
    cases = sorted((c["n_prompt"], c["n_gen"], c["batch"]) for c in rows)
    check(cases == [(0, 4, 1), (0, 4, 2), (8, 0, 1), (8, 0, 2)] and all(c["tok_s"] > 0 and (c["bytes_per_token"] > 0) == (c["n_gen"] > 0) for c in rows), f"bench: {r.stdout} {r.stderr}")
    said = re.search(r"(\d+) of (\d+) tokens as a prompt, mean KL (\S+); (\d+) one by one, mean KL (\S+)", r.stderr)
    check(said and int(said[2]) == 32 and min(int(said[1]), int(said[4])) > 24 and max(float(said[3]), float(said[5])) < 1e-2, f"--verify: {r.stderr}")
    r = run("bench", "--device", "cpu", "--cpu", "ref", "--precision", "exact", "-p", "0", "-n", "1", "-r", "1", "--verify")
    check("32 of 32 tokens as a prompt, mean KL 0; 32 one by one, mean KL 0" in r.stderr, f"the reference agrees with itself: {r.stderr}")
    r = run("bench", "--device", "cpu", "--shape", "tiny", "-r", "1", "-o", "json")  # its context is the default prompt's length
    cases = [(c["n_prompt"], c["n_gen"]) for c in json.loads(r.stdout)] if r.returncode == 0 else []
    check(cases == [(511, 0), (0, 128)], f"bench of a small context: {r.stdout} {r.stderr}")
    r = run("bench", "--device", "cpu", "--shape", "tiny", "-p", "512", "-r", "1")
    check(r.returncode == 1 and "a prompt of 512 at a depth of 0 needs 513 tokens, but the context is 512" in r.stderr, f"bench beyond the context: {r.stderr}")
    r = run("bench", "--device", "cpu", "--shape", "tiny", "-p", "8", "-n", "4", "-r", "1", "-o", "md")
    check(re.search(r"\| test \| tok/s \|.*\n\|---\|---\|---\|---\|\n\| pp8 \| [\d.]+ \| [\d.]+ \| \|\n\| tg4 \| [\d.]+ \| [\d.]+ \| [\d.]+ \|\n$", r.stdout), f"bench -o md: {r.stdout} {r.stderr}")
    r = run("bench", "-p", "0", "-n", "0")
    check(r.returncode == 2 and "nothing to measure" in r.stderr, f"bench of nothing: {r}")
    r = run("bench", "--device", "cpu", "--shape", "tiny-moe", "-p", "8", "-n", "4", "-r", "1")
    check(r.returncode == 0 and "tiny-moe (qwen3_moe, affine 4-bit g64)" in r.stderr, f"bench of experts: {r.stdout} {r.stderr}")
    with tempfile.TemporaryDirectory() as folder:
        run("synth", "--shape", "tiny-moe", "-o", folder + "/moe")
        same = [run("generate", *model, "-p", "a b c", "-n", "12", "--temp", "0", "--device", "cpu") for model in (["-m", folder + "/moe"], ["--shape", "tiny-moe"])]
        check(all(r.returncode == 0 for r in same) and same[0].stdout == same[1].stdout, f"experts, written and made up: {same}")
    r = run("trace", "--shape", "qwen3-0.6b", "--layers", "2")
    whole = run("trace", "--shape", "qwen3-0.6b")
    check(r.returncode == 0 and whole.stdout.count("rope") == 14 * r.stdout.count("rope") > 0, f"layers of a shape: {r.stderr}")
    r = run("trace", "--shape", "qwen3-0.6b", "--layers", "29")
    check(r.returncode == 2 and "--layers 29: qwen3-0.6b has 28" in r.stderr, f"more layers than the shape has: {r.returncode} {r.stderr}")
    r = run("bench", "--shape", "no-such-shape")
    check(r.returncode == 2 and "qwen3-0.6b" in r.stderr, f"a wrong shape lists the known ones: {r.returncode} {r.stderr}")
    for shape in r.stderr.partition("known are ")[2].strip().split(", "):  # every tensor of a shape has its place in a step
        r = run("trace", "--shape", shape, "--bits", "6")
        check(r.returncode == 0 and "argmax" in r.stdout, f"a step of {shape}: {r.stderr}")
    r = run("trace", "--shape", "gpt-oss-20b", "--bits", "8")
    check("mxfp4" in r.stdout and "affine 8-bit g64" in r.stdout, "experts of mxfp4 whatever the bits are")


def check_memory():
    """Weights of a terabyte, most of it a hole in the file, are refused with the numbers before anything is read; so are made-up ones."""
    if hasattr(os, "sysconf") and os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 110e9 and not program.endswith(".exe"):
        r = run("bench", "--shape", "qwen3-30b-a3b", "--bits", "32", "--device", "cpu")
        check(r.returncode == 1 and "the weights need 122.1 GB" in r.stderr, f"a shape that does not fit: {r.returncode} {r.stderr}")
    with tempfile.TemporaryDirectory() as folder:
        elements = 1 << 39
        header = {"lm_head.weight": {"dtype": "BF16", "shape": [elements // 1024, 1024], "data_offsets": [0, 2 * elements]}}
        text = json.dumps(header).encode()
        try:
            with open(Path(folder, "model.safetensors"), "wb") as f:
                f.write(len(text).to_bytes(8, "little") + text)
                f.truncate(8 + len(text) + 2 * elements)
        except OSError:
            skip("a file of a terabyte: not on this file system")
            return
        Path(folder, "config.json").write_text(json.dumps({"model_type": "llama"}))
        r = run("generate", "-m", folder, "-p", "x", "--device", "cpu")
        ok = r.returncode == 1 and "the weights need 1099.5 GB" in r.stderr and "GB are free" in r.stderr and "--force" in r.stderr
        check(ok, f"a model that does not fit: {r.returncode} {r.stderr}")
        r = run("generate", "-m", folder, "-p", "x", "--device", "cpu", "--force")
        check(r.returncode == 1 and "are free" not in r.stderr, f"--force: {r.returncode} {r.stderr}")


def check_usage():
    expect([], 0, "Usage: mlxcel COMMAND")
    expect(["--help"], 0, "Commands:")
    expect(["help", "inspect"], 0, "--tensors")
    expect(["inspect", "-h"], 0, "--tensors")
    expect(["inspekt"], 2, err="mlxcel: error: unknown command 'inspekt'; did you mean 'inspect'?")
    expect(["help", "inspekt"], 2, err="mlxcel: error: unknown command 'inspekt'; did you mean 'inspect'?")
    expect(["inspect", "--jsn"], 2, err="did you mean --json?")
    expect(["inspect", "-m"], 2, err="-m needs a value")
    expect(["inspect", "a", "b"], 2, err="unexpected argument 'b'")
    expect(["inspect", "a", "-m", "b"], 2, err="give the model once")
    expect(["inspect", "--log-level", "x"], 2, err="--log-level is 'x', expected one of error|warning|info|debug")
    expect(["inspect"], 2, err="LLAMA_ARG_LOG_LEVEL is 'x'", env={"LLAMA_ARG_LOG_LEVEL": "x"})
    expect(["inspect", "/no/such/model"], 1, err="/no/such/model")
    expect(["inspect", "-m", ""], 2, err="the model's name is empty")
    expect(["inspect", "-m", "https://huggingface.co/a/b"], 2, err="is an address; give the model's name alone, OWNER/NAME")
    expect(["download", "https://huggingface.co/a/b"], 2, err="is an address; give the model's name alone, OWNER/NAME")
    for option in (["--bits", "8"], ["--dtype", "f16"]):  # would be ignored, and taken for a conversion
        for command in (["generate", "-p", "x"], ["run", "-p", "x"], ["bench"], ["trace"], ["serve", "--port", "0"]):
            expect([*command, *option], 2, err=f"{option[0]} is for made-up models (--shape NAME)")
    expect(["bench", "--seed", "1"], 2, err="--seed is for made-up models")
    expect(["generate", "-p", "x", "-m", "a", "--shape", "tiny"], 2, err="a model and --shape exclude each other")
    expect(["inspect", "a", "-m", "b"], 2, err="give the model once")
    r = run("generate", "-p", "x", "-n", "1", "--shape", "tiny", env={"MLXCEL_MODEL": "/no/such/model"})
    check(r.returncode == 0, f"--shape wins over MLXCEL_MODEL: {r}")
    expect(["run", "/no/such/model", "-p", "x"], 1, err="/no/such/model", env={"MLXCEL_MODEL": "/no/such/other"})
    expect(["inspect", "--kernels"], 0, "few or many rows    ")
    expect(["inspect", "--kernels", "--cpu", "ref"], 0, "float products      reference")
    expect(["inspect", "--kernels", "--cpu", "x"], 2, err="unknown CPU level")
    expect(["inspect"], 1, err="/no/such/model", env={"MLXCEL_MODEL": "/no/such/model"})
    expect(["inspect", "-m/no/such/model"], 1, err="/no/such/model", env={"MLXCEL_MODEL": "other"})


def check_examples():
    """Every --help has examples, and the manual page has them, too."""
    names = re.findall(r"^  (\w+) {2,}\S", run("help").stdout, re.M)
    page = run("help", "--man").stdout.replace("\\-", "-")
    check(len(names) > 25 and "run" in names, f"the commands: {names}")
    for name in names:
        block = re.search(r"^Examples:\n((?:  \S.*\n)+)", run("help", name).stdout, re.M)
        check(block and all(line.strip() in page for line in block.group(1).splitlines()), f"examples of {name}: {block and block.group(1)}")


def check_doctor():
    """What it says of models and of the GPU."""
    findings = {f["topic"]: f for f in json.loads(run("doctor", "--json").stdout)}
    models = findings.get("models", {"text": "nothing"})["text"]
    check(re.search(r"the largest of their kind that fit .* by estimate: \w|no well-known model fits", models), f"which models fit: {models}")
    named = re.search(r"\(([\d.]+) GiB\).*: (.*)", models)
    if named and named[2]:  # four bits of each parameter are the least that they take
        sizes = [float(s) for s in re.findall(r":([\d.]+)b", named[2])]
        check(sizes and max(sizes) * 1e9 * 4 / 8 < float(named[1]) * 2**30, f"what is said to fit does: {models}")
    gpu = findings["gpu"]
    check("nvcuda" not in gpu["text"] + str(gpu["fix"]) or program.endswith(".exe"), f"Windows' library is not named elsewhere: {gpu}")


def check_colours():
    """On a terminal doctor and errors have colours; not with --no-color, NO_COLOR, a dumb terminal, or in a pipe."""
    if program.endswith(".exe"):
        return skip("colours: not on another system's terminal")
    import pty
    plain = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm-256color"}
    for args, env, colours in ((["doctor"], {}, True), (["doctor", "--no-color"], {}, False), (["doctor"], {"NO_COLOR": "1"}, False), (["doctor"], {"TERM": "dumb"}, False),
                               (["inspect", "/no/such"], {}, True), (["inspect", "/no/such", "--no-color"], {}, False), (["inspect", "/no/such"], {"NO_COLOR": "1"}, False)):
        ours, theirs = pty.openpty()
        p = subprocess.Popen([program, *args], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env={**plain, **env})
        os.close(theirs)
        seen = read_all(ours)
        p.wait(HANG)
        said = b"\x1b[32mok" in seen if args[0] == "doctor" else b"\x1b[1;31merror:\x1b[0m" in seen
        check(said == colours and (colours or b"\x1b" not in seen) and len(seen) > 20, f"{args} {env}: {seen!r}")
    check("\x1b" not in run("doctor").stdout + run("inspect", "/no/such").stderr, "no colours in a pipe")


def check_json():
    version = json.loads(expect(["--version", "--json"], 0).stdout)
    check(re.fullmatch(r"\d+\.\d+\.\d+", version["version"]) and version["compiler"] and version["cpu_features"], f"version {version}")
    expect(["--version"], 0, f"mlxcel {version['version']}\n")
    model = json.loads(expect(["inspect", "--json"], 0).stdout)
    check(model["parameters"] == 7345408 and model["quantization"] == {"bits": 4, "group_size": 64, "mode": "affine"}, "the built-in model")
    findings = json.loads(expect(["doctor", "--json"], 0).stdout)
    topics = {f["topic"] for f in findings}
    check(topics - {"xla"} == {"system", "processor", "features", "memory", "models", "store", "gpu"}, f"doctor {findings}")  # xla: where Python has a plugin
    check(all(f["level"] == "ok" or f["fix"] for f in findings), "doctor: every finding that is not ok says what to do")
    families = json.loads(expect(["arch", "--json"], 0).stdout)
    check(all(f["model_type"] and f["title"] for f in families) and families, "arch")


def documented():
    """docs/json.md: for each heading, the fields of its table: {name: is optional}."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    fields = {}
    for section in re.split(r"^## ", page, flags=re.M)[1:]:
        cells = re.findall(r"^\| (`.*?) \|", section, re.M)
        fields[section.split("\n")[0]] = {name: cell.endswith("*") for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    return fields


def check_plot():
    """Bars in SVG: one for each case, as long as it is fast."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speed.svg"
        rows = json.loads(run("bench", "-p", "8,16", "-n", "4", "-r", "1", "-o", "json", "--plot", str(path)).stdout)
        if not check(path.exists(), "bench --plot makes a picture"):
            return
        root = ElementTree.fromstring(path.read_text())
        texts, bars = [t.text for t in root.iter() if t.tag.endswith("}text")], [float(t.get("width")) for t in root.iter() if t.tag.endswith("}rect")]
        check(texts[0].startswith("built-in model") and texts[1::2] == ["pp8", "pp16", "tg4"] and len(bars) == 3, f"plot: {texts}")
        rates = [r["tok_s"] for r in rows]
        check(all(abs(b / 460 - rate / most) < 0.01 for b, rate, most in zip(bars, rates, [max(rates[:2])] * 2 + rates[2:])), f"plot: {bars} of {rates}")
        r = run("bench", "-p", "4", "-n", "0", "-r", "1", "--plot", folder + "/no/such/x.svg")
        check(r.returncode == 1 and "cannot write" in r.stderr and "no/such/x.svg" in r.stderr, f"plot: {r.returncode} {r.stderr}")


def check_settings():
    """The user's own file: its top for every command, a table for one, behind flags and the environment; mistakes are said with their line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mlxcel" / "config.toml"
        path.parent.mkdir()
        env = {"XDG_CONFIG_HOME": folder}

        def said(text, *args, more=None):
            path.write_text(text)
            return run(*args, env={**env, **(more or {})})

        def tokens(*args, **more):
            return json.loads(said('max-tokens = 3\n[generate]\nmax-tokens = 5\n[bench]\nrepetitions = 1\n', "generate", "Once", "--json", "--ignore-eos", *args, **more).stdout)["completion_tokens"]
        check(tokens() == 5, "a command's table before the top of the file")
        check(tokens("-n", "2") == 2, "a flag before the file")
        check(tokens(more={"MLXCEL_MAX_TOKENS": "4"}) == 4, "the environment before the file")
        r = said("max-tokens = 3\n", "generate", "Once", "--json", "--ignore-eos")
        check(json.loads(r.stdout)["completion_tokens"] == 3, f"the top of the file: {r.stderr}")
        r = said("max-tokens = 3\nport = 99\n[serve]\nhost = \"0.0.0.0\"\n[models.x]\nmodel = \"built-in\"\n", "tokenize", "-p", "Hi")
        check(r.returncode == 0, f"what others have is passed over: {r.stderr}")
        r = said("[serve]\nport = 4321\n", "serve", "--check")
        check(r.returncode == 0 and "4321" in r.stdout, f"serve reads it, too: {r.stdout} {r.stderr}")
        (Path(folder) / "other.toml").write_text("max-tokens = 6\n")
        r = said("max-tokens = 3\n", "generate", "Once", "--json", "--ignore-eos", "--config", folder + "/other.toml")
        check(json.loads(r.stdout)["completion_tokens"] == 6, f"--config instead of it: {r.stderr}")
        for text, line, words in (("max-token = 3\n", 1, "did you mean"), ("\n[generate]\nport = 1\n", 3, "unknown option --port"), ("[generate]\nmax-tokens = \"many\"\n", 2, "max-tokens"),
                                  ("[serv]\nport = 1\n", 1, "means nothing here"), ("a = \n", 1, ""), ("[generate]\nhelp = true\n", 2, "belongs on the command line")):
            r = said(text, "generate", "Once", "-n", "1")
            check(r.returncode == 2 and f"config.toml:{line}: " in r.stderr and words in r.stderr and r.stderr.count("\n") == 1, f"{text!r}: {r.returncode} {r.stderr}")
        check(said("nonsense", "help").returncode == 0 and said("nonsense", "version").returncode == 0, "help and version need no settings")


def check_documented():
    """Every field that comes is in docs/json.md, and every one there that is not optional comes."""
    pages = documented()
    with tempfile.TemporaryDirectory() as folder:
        store = ["--models-dir", folder + "/store"]
        run("synth", "--shape", "tiny", "-o", folder + "/model")
        run("import", folder + "/model", "acme/tiny", *store)
        (Path(folder) / "text").write_text("Once upon a time there was a cat.")
        for heading, commands in (
            ("mlxcel generate --json", (["generate", "-p", "Once", "-n", "3", "--json"], ["generate", "-p", "Once", "-n", "3", "--json", "--seed", "1", "--logprobs", "1"])),
            ("mlxcel bench -o json", (["bench", "-p", "4", "-n", "2", "-r", "1", "-o", "json"],)),
            ("mlxcel perplexity --json", (["perplexity", folder + "/text", "--json"],)),
            ("mlxcel inspect --json", (["inspect", "--json"],)),
            ("mlxcel list --json, mlxcel show --json", (["list", "--json", *store], ["show", "acme/tiny", "--json", *store])),
            ("mlxcel doctor --json", (["doctor", "--json"],)),
            ("mlxcel arch --json", (["arch", "--json"],)),
            ("mlxcel version --json", (["version", "--json"],)),
        ):
            fields = pages[heading]
            for command in commands:
                answer = json.loads(run(*command).stdout)
                for item in answer if isinstance(answer, list) else [answer]:
                    needed = {name for name, optional in fields.items() if not optional}
                    check(needed <= item.keys() <= fields.keys(), f"docs/json.md, {command}: {sorted(item.keys() ^ fields.keys())}")
    check(json.loads(run("detokenize", "--json", "0", "255", "130").stdout), "JSON of bytes that are no text")
    expect(["inspect", "--kernels", "--json"], 2, err="--kernels has no JSON form")


def check_scripts():
    for shell, syntax in (("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])):
        script = expect(["completions", shell], 0).stdout
        if shutil.which(shell):
            r = subprocess.run(syntax, input=script, capture_output=True, text=True)
            check(r.returncode == 0, f"{shell} completions: {r.stderr}")
        else:
            skip(f"{shell} completions: no {shell} here")
    if shutil.which("bash"):
        script = run("completions", "bash").stdout
        for words, answer in (("mlxcel inspect --te", "--tensors"), ("mlxcel gen --temp", "--temperature"), ("mlxcel bench -o j", "json"), ("mlxcel help insp", "inspect"),
                              ("/usr/bin/mlxcel-server --alia", "--alias"), ("mlxcel-server --log-format j", "json"), ("mlxcel insp", "inspect"), ("mlxcel completions z", "zsh")):
            ask = f'{script}\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[*]}} - 1)); _mlxcel; echo ${{COMPREPLY[*]}}'
            r = subprocess.run(["bash", "-c", ask], capture_output=True, text=True)
            check(r.stdout.strip() == answer, f"bash completes {words!r} to {r.stdout!r} {r.stderr!r}")
        for words, answer in (("mlxcel bench --shape qwen3-0", "qwen3-0.6b"), ("mlxcel run --model acme/t", "acme/tiny"), ("mlxcel cp acme/t", "acme/tiny")):
            ask = f'{script}\nmlxcel() {{ echo acme/tiny; }}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[*]}} - 1)); _mlxcel; echo ${{COMPREPLY[*]}}'
            r = subprocess.run(["bash", "-c", ask], capture_output=True, text=True)
            check(r.stdout.strip() == answer, f"bash completes {words!r} to {r.stdout!r} {r.stderr!r}")
    for shell, option, operand in (("fish", "-l model -s m -r -a '(mlxcel list --quiet 2>/dev/null)'", "from cp copy' -a '(mlxcel list --quiet 2>/dev/null)'"),
                                   ("zsh", ":model:_mlxcel_models' '-m+", "'*:model:_mlxcel_models'")):
        script = run("completions", shell).stdout
        check(option in script and operand in script and "qwen3-0.6b" in script, f"{shell} completes models behind options and commands, and shapes")
    check_powershell(expect(["completions", "powershell"], 0).stdout)
    expect(["completions", "tcsh"], 2, err="there are bash, zsh, fish and powershell")


def check_powershell(script):
    """As far as it can be judged without the shell: its tables have every command, each key once in any case, and brackets that match."""
    bare = re.sub(r"'[^']*'", "''", script)
    check(all(bare.count(a) == bare.count(b) for a, b in ("{}", "()", "[]")), "PowerShell: brackets")
    for table in re.findall(r"@\{\n(.*?)\n  \}", script, re.S):
        keys = [m.lower() for m in re.findall(r"^    '([^']*)' = '[^']*'$", table, re.M)]
        check(len(keys) == len(table.split("\n")) and len(set(keys)) == len(keys), f"PowerShell: keys {[k for k in keys if keys.count(k) > 1]}")
    check("'bench --shape' = '" in script and "qwen3-0.6b" in script and "'run -m' = '*models*'" in script and "'chat' = 'run'" in script, "PowerShell: shapes, models and other names")


def check_output():
    """A reader that leaves ends the program without a word; a full disk is an error."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    r = subprocess.run([program, "help", "--markdown"], stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=HANG)
    os.close(write_end)
    check(r.returncode == 1 and r.stderr == "", f"closed pipe: {r.returncode} {r.stderr!r}")
    if Path("/dev/full").exists() and not program.endswith(".exe"):
        with open("/dev/full", "w") as full:
            r = subprocess.run([program, "help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=HANG)
        check(r.returncode == 1 and r.stderr.startswith("mlxcel: error: cannot write to standard output"), f"full disk: {r.stderr!r}")
    else:
        skip("full disk: no /dev/full")


def check_files():
    """What is cut off does not look whole."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "logits")
        expect(["logits", "--tokens", "1,999999", "-o", str(out)], 2, err="token 999999 is outside the vocabulary")
        check(not out.exists(), "logits that were not made leave no file")
        check(run("logits", "--tokens", "1,2", "-o", str(out)).returncode == 0 and out.stat().st_size == 2 * 4096 * 4, "logits")
        run("synth", "--shape", "tiny", "--bits", "16", "-o", folder + "/plain")
        for option, says in ((["--bits", "7"], "bits are 2, 3, 4, 5, 6 or 8, groups 32, 64 or 128"), (["--mode", "nvfp4", "--bits", "8"], "4 bits in groups of 16")):
            expect(["quantize", "-m", folder + "/plain", "-o", folder + "/new", *option], 2, err=says)
        run("synth", "--shape", "tiny", "-o", folder + "/bare")
        os.remove(folder + "/bare/config.json")
        expect(["inspect", folder + "/bare"], 0, "quantization  unknown: there is no config.json")


def check_no_home():
    """A user without a folder of their own, as services have: everything but the store works, and what fails says how to go on."""
    if program.endswith(".exe") or not hasattr(os, "geteuid"):
        return skip("a home that cannot be written: not for another system's program")
    other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MLXCEL_", "LLAMA_ARG_", "XDG_"))} | {"HOME": "/no-such-home"}

    def as_other(*args):
        return subprocess.run([program, *args], capture_output=True, text=True, timeout=HANG, env=env, cwd="/", **other)
    try:
        store = next(f for f in json.loads(as_other("doctor", "--json").stdout) if f["topic"] == "store")
    except PermissionError:
        return skip("a home that cannot be written: other users do not reach this program")
    check(store["level"] == "note" and "cannot be made" in store["text"] and "MLXCEL_HOME" in store["fix"], f"doctor: {store}")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        run("synth", "--shape", "tiny", "-o", folder + "/tiny")
        r = as_other("import", folder + "/tiny", "a/b")
        check(r.returncode == 1 and "cannot make the folder /no-such-home" in r.stderr and "MLXCEL_HOME or --models-dir" in r.stderr, f"import: {r}")
    r = as_other("run", "-p", "Once", "-n", "2")
    check(r.returncode == 0 and r.stdout and not r.stderr, f"run: {r}")


def check_interrupted():
    """One turn of run that was interrupted is no success, as with generate; so a loop of a shell's can be left."""
    if program.endswith(".exe"):
        return skip("an interrupt: not sent to another system's program")
    for command in ("generate", "run"):
        p = subprocess.Popen([program, command, "-p", "Once", "-n", "900", "--cpu", "ref", "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = p.stdout.read(1)
        p.send_signal(signal.SIGINT)
        rest, err = p.communicate(timeout=HANG)
        check(first and rest.endswith(b"\n") and p.returncode == 1 and b"error" not in err, f"{command} interrupted: {p.returncode} {rest[-50:]!r} {err[-200:]!r}")
    with tempfile.TemporaryDirectory() as folder:
        p = subprocess.Popen([program, "synth", "--shape", "llama-3.2-1b", "--bits", "16", "-o", folder + "/made-up"], stderr=subprocess.PIPE, text=True)
        while p.poll() is None and not os.listdir(folder):
            time.sleep(0.01)
        p.send_signal(signal.SIGINT)
        err = p.communicate(timeout=HANG)[1]
        check(p.returncode == 1 and not err and not os.listdir(folder), f"synth interrupted: {p.returncode} {err} {os.listdir(folder)}")


def on_terminal(*args, text_in=b""):
    """What a program writes whose standard error is a terminal."""
    import pty
    ours, theirs = pty.openpty()
    p = subprocess.Popen([program, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    with ThreadPoolExecutor() as pool:
        seen = pool.submit(read_all, ours)
        out = p.communicate(text_in, timeout=HANG)[0]
        return p.returncode, out, seen.result()


def check_progress():
    """Whatever may take longer than a second on a large model says on a terminal how far it is, and leaves no trace of it elsewhere."""
    if program.endswith(".exe"):
        return skip("a terminal: not for another system's program")
    story = b"the cat sat on a mat " * 100
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "text").write_bytes(story)
        for args, says in ((["generate", "-p", "-", "-n", "2"], b"0 of 613 tokens of the prompt"),
                           (["perplexity", folder + "/text", "--chunk", "64"], b"\r  0% of 602 tokens\r"),
                           (["bench", "-p", "4", "-n", "0", "-r", "1"], b"0 of 2 runs of pp4")):
            code, out, seen = on_terminal(*args, text_in=story)
            check(code == 0 and says in seen and b"\r" not in out, f"progress of {args}: {code} {seen!r} {out!r}")
    code, out, seen = on_terminal("generate", "-p", "Once", "-n", "2")
    check(code == 0 and b"[" not in seen, f"a short prompt has no bar: {seen!r}")


def check_bars_go():
    """An interrupt while a model is loaded takes the bar away, whoever is told of it."""
    import pty
    if program.endswith(".exe"):
        return skip("a terminal: not for another system's program")
    shape = ["--shape", "qwen3-0.6b"]  # large enough that loading shows a bar
    for args, code in ((["serve", *shape, "--port", "0"], 0), (["generate", *shape, "--tokens", "1", "-n", "1"], -signal.SIGINT)):
        ours, theirs = pty.openpty()
        p = subprocess.Popen([program, *args], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        seen = b""
        while b" GB" not in seen:
            seen += os.read(ours, 4096)
        p.send_signal(signal.SIGINT)
        left = rows(seen + read_all(ours))
        check(p.wait(60) == code and not any("[" in row for row in left), f"{args[0]} interrupted while it loads: {p.returncode} {left}")


def check_nohup():
    """What was ignored at the beginning stays ignored, before, while and after an answer comes."""
    if program.endswith(".exe"):
        return skip("nohup: not for another system's program")
    p = subprocess.Popen([program, "run", "--lines", "-n", "20", "--cpu", "ref", "--threads", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    p.stdin.write(b"Once\n")
    p.stdin.flush()
    first = p.stdout.read(1)
    p.send_signal(signal.SIGHUP)
    first += p.stdout.readline()
    p.send_signal(signal.SIGHUP)
    rest, err = p.communicate(b"Once\n", timeout=HANG)
    check(p.returncode == 0 and len(first) > 20 and len(rest) > 20, f"run under nohup: {p.returncode} {first!r} {rest!r} {err[-200:]!r}")


def check_server_name():
    folder = Path(program).parent
    server = next((p for p in (folder / "mlxcel-server", folder / "mlxcel-server.exe") if p.exists()), None)
    if not server:
        skip("mlxcel-server: not beside the program")
        return
    check(run("--version", exe=str(server)).stdout.startswith("mlxcel "), "mlxcel-server --version")
    check(run("arch", exe=str(server)).returncode == 0, "mlxcel-server arch")


def main():
    parts(check_usage, check_generate, check_usage_first, check_stdin, check_kv_bits, check_bench, check_replay, check_memory, check_examples,
          check_doctor, check_colours, check_json, check_documented, check_plot, check_settings, check_scripts, check_output, check_files,
          check_no_home, check_interrupted, check_progress, check_bars_go, check_nohup, check_server_name)
    finish()


if __name__ == "__main__":
    sys.exit(main())
