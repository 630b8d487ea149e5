#!/usr/bin/env python3
"""The command `mlxcel template`: its options, and with DATA all renderings of the golden file through --jsonl.

usage: test_template.py PROGRAM [DATA]      last line: "N passed, N failed"
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

n_passed = n_failed = 0


def check(ok, what):
    global n_passed, n_failed
    n_passed, n_failed = n_passed + bool(ok), n_failed + (not ok)
    if not ok:
        print(f"FAILED {what}")


def run(program, *args, stdin=""):
    done = subprocess.run([program, "template", *map(str, args)], input=stdin.encode(), capture_output=True, check=False)
    return done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8", "replace")


def options(program, folder):
    chat = {"messages": [{"role": "user", "content": "h\u00e9 <s>\n"}], "add_generation_prompt": True, "extra": [1, None]}
    (folder / "chat.json").write_text(json.dumps(chat), encoding="utf-8")
    (folder / "t.jinja").write_text("{{ bos_token }}{{ messages[0].content }}{{ extra }}{{ strftime_now('%d %b %Y') }}\n", encoding="utf-8")
    (folder / "special.json").write_text('{"bos_token": "<s>"}', encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<B>", "chat_template": "{{ bos_token }}|{{ messages|length }}"}))
    want = "<s>h\u00e9 <s>\n[1, None]10 Jul 2025"
    now = ["--now", "2025-07-10T12:00:00"]
    files = ["--template", folder / "t.jinja", "--special", folder / "special.json", *now]
    check(run(program, *files, "--input", folder / "chat.json") == (0, want, ""), "--template --input --special --now")
    check(run(program, *files, "--input", "-", stdin=json.dumps(chat)) == (0, want, ""), "--input -")
    check(run(program, "-m", folder, "--input", folder / "chat.json")[:2] == (0, "<B>|1"), "-m FOLDER")
    check(run(program, "-m", folder / "tokenizer_config.json", "--input", folder / "chat.json")[:2] == (0, "<B>|1"), "-m FILE")
    for args, code in (([], 2), (["-m", folder], 2), (["-m", folder / "nope", "--input", folder / "chat.json"], 1),
                       (["--template", folder / "t.jinja", "--input", folder / "nope.json"], 1),
                       (["-m", folder, "--input", folder / "t.jinja"], 1), ([*files[:-1], "soon", "--input", folder / "chat.json"], 2)):
        rc, out, err = run(program, *args)
        check((rc, out) == (code, "") and len(err.strip().split("\n")) == 1, f"{args}: exit code {rc}, {err!r}")


def lines(program, folder):
    rows = [({"template": "{{ x }}", "input": {"x": "\u00e9\n"}}, {"ok": "\u00e9\n"}),
            ({"template": "{{ raise_exception('no') }}", "input": {}}, {"error": "no"}),
            ({"template": "{{ bos_token }}", "input": {}, "special": {"bos_token": "<s>"}}, {"ok": "<s>"}),
            ({"input": {"messages": [1, 2]}}, {"ok": "<B>|2"}),
            ({"template": "{% for m in messages %}[{{ m.content }}]{% endfor %}", "input": {"messages": [{"content": "a"}, {"content": "b"}], "continue_final_message": True}},
             {"ok": "[a][b"}),
            ({"template": "{{ x.y }}", "input": {}}, {"error": "chat template line 1: UndefinedError: 'x' is undefined"})]
    rc, out, _ = run(program, "--jsonl", "-m", folder, stdin="".join(json.dumps(r[0]) + "\n" for r in rows) + "\n{nonsense\n")
    answers = [json.loads(line) for line in out.split("\n")[:-1]]
    check(rc == 0 and len(answers) == len(rows) + 1, f"--jsonl: exit code {rc}, {len(answers)} lines")
    for (row, want), answer in zip(rows, answers):
        check(answer == want, f"{row} gives {answer}")
    check("error" in answers[-1], "a line that is no JSON")


def golden(program, data):
    material = json.loads((data / "text" / "chat_golden.json").read_text(encoding="utf-8"))
    cases = [(t, name, want) for t in material["templates"] for name, want in t["cases"].items()]
    text = "".join(json.dumps({"template": t["template"], "input": material["conversations"][name], "special": t["special"]}) + "\n"
                   for t, name, _ in cases)
    _, out, _ = run(program, "--jsonl", "--now", "2025-07-10T12:00:00", stdin=text)
    answers = out.split("\n")[:-1]
    check(len(answers) == len(cases), f"golden: {len(answers)} answers to {len(cases)} lines")
    for (t, name, want), answer in zip(cases, answers):
        got = json.loads(answer)
        check(got == want if "ok" in want else "error" in got, f"{t['name']} / {name}")


def going_on(program, data):
    """A last message that goes on: every template that renders the conversation gives a prompt that ends with its text, and the text stands there once more
    than before."""
    material = json.loads((data / "text" / "chat_golden.json").read_text(encoding="utf-8"))
    ask, said = {"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "It is a word "}
    inputs = [{"messages": [ask, said], "continue_final_message": True}, {"messages": [ask], "add_generation_prompt": True}]
    rows = [{"template": t["template"], "special": t["special"], "input": i} for t in material["templates"] for i in inputs]
    _, out, _ = run(program, "--jsonl", "--now", "2025-07-10T12:00:00", stdin="".join(json.dumps(r) + "\n" for r in rows))
    got = [json.loads(line) for line in out.split("\n")[:-1]]
    for t, goes_on, plain in zip(material["templates"], got[::2], got[1::2]):
        if "ok" in plain:
            check(goes_on.get("ok", "").endswith(said["content"]) and goes_on["ok"].count(said["content"]) == 1, f"{t['name']} goes on: {goes_on}")
        else:
            check("error" in goes_on, f"{t['name']} refuses both")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        options(program, Path(folder))
        lines(program, Path(folder))
    if len(sys.argv) > 2 and (Path(sys.argv[2]) / "text" / "chat_golden.json").exists():
        golden(program, Path(sys.argv[2]))
        going_on(program, Path(sys.argv[2]))
    print(f"{n_passed} passed, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
