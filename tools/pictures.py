#!/usr/bin/env python3
"""Makes the pictures of README.md from what they show: `make pictures`.

usage: pictures.py PROGRAM [--check]      --check: only says which picture is older than what it was made from; exit code 1 when one is

  speed.svg      bars out of bench/results/h200/beside-llama.csv
  terminal.svg   a session of `mlxcel run` with the built-in model: keys into a terminal of tmux, its screen as text
  page.png       the chat page in Chromium, after an answer

docs/pictures/made-from.json holds a hash of each picture's sources: that is how a stale one is noticed. Where tmux or Chromium is missing, the
picture that needs it stays as it is, and that is said.
"""
import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from xml.sax.saxutils import escape

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "docs/pictures")
SPEED = "bench/results/h200/beside-llama.csv"
SOURCES = {
    "speed.svg": [SPEED],
    "terminal.svg": ["src/cli/screen_text.c", "src/cli/chat.c", "src/cli/chat_commands.c", "src/cli/cmd_run.c", "models/tiny/model.safetensors"],
    "page.png": [f"src/server/webui/{name}" for name in ("index.html", "markdown.js", "basics.js", "chats.js", "thread.js", "files.js", "ask.js", "page.js")],
}
STYLE = "font-family:ui-sans-serif,system-ui,sans-serif"
COLOURS = {"31": "#f38ba8", "32": "#a6e3a1", "36": "#7fd6c8"}


def made_from(picture):
    """A hash of the sources, whatever their line ends."""
    total = hashlib.sha256()
    for path in SOURCES[picture]:
        with open(os.path.join(ROOT, path), "rb") as f:
            total.update(f.read().replace(b"\r\n", b"\n"))
    return total.hexdigest()


def kept():
    path = os.path.join(FOLDER, "made-from.json")
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def speed_svg():
    with open(os.path.join(ROOT, SPEED), encoding="utf-8") as f:
        rows = list(csv.DictReader(line for line in f if not line.startswith("#")))
    width, left, bar = 760, 290, 15
    out, y = [], 44
    for row in rows:
        ours, theirs = float(row["mlxcel"]), float(row["llama.cpp"])
        full = width - left - 110
        out.append(f'<text x="{left - 12}" y="{y + 20}" text-anchor="end" class="t">{escape(row["what"])}</text>')
        for k, (value, kind) in enumerate(((ours, "a"), (theirs, "b"))):
            n = full * value / max(ours, theirs)
            out.append(f'<rect x="{left}" y="{y + k * (bar + 2)}" width="{n:.1f}" height="{bar}" rx="3" class="{kind}"/>'
                       f'<text x="{left + n + 8:.1f}" y="{y + k * (bar + 2) + 12}" class="n">{value:,.0f}</text>')
        out.append(f'<text x="{width - 8}" y="{y + 20}" text-anchor="end" class="r">{ours / theirs:.1f}x</text>')
        y += 2 * bar + 18
    head = (f'<text x="{left}" y="24" class="t"><tspan class="ka">mlxcel</tspan> and <tspan class="kb">llama.cpp</tspan>, tokens a second on one H200</text>')
    css = (f"text{{{STYLE};font-size:13px}}.t{{fill:#6b7280}}.n{{fill:#6b7280;font-size:12px}}.r{{fill:#0f766e;font-weight:700}}"
           ".a{fill:#0f766e}.b{fill:#a8b3b0}.ka{fill:#0f766e;font-weight:700}.kb{fill:#7d8885;font-weight:700}")
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y + 6}" width="{width}"><style>{css}</style>{head}{"".join(out)}</svg>\n'


def spans(line):
    """(text, css) of a line with escape sequences."""
    css, out = "", []
    for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
        m = re.fullmatch(r"\x1b\[([0-9;]*)m", piece)
        if not m:
            if piece:
                out.append((piece, css))
            continue
        codes = m.group(1).split(";")
        if codes in ([""], ["0"]):
            css = ""
        for code in codes:
            css += {"1": "font-weight:700;", "2": "opacity:.6;", "3": "font-style:italic;", "22": "", "39": ""}.get(code, f"fill:{COLOURS[code]};" if code in COLOURS else "")
    return out


def screen_svg(lines, columns):
    step, size = 19, 14
    width, height = int(columns * 8.45) + 32, len(lines) * step + 56
    rows = []
    for i, line in enumerate(lines):
        inner = "".join(f'<tspan style="{css}">{escape(t)}</tspan>' if css else escape(t) for t, css in spans(line))
        rows.append(f'<text x="16" y="{52 + i * step}" xml:space="preserve">{inner}</text>')
    dots = "".join(f'<circle cx="{20 + 18 * i}" cy="18" r="5.5" fill="{c}"/>' for i, c in enumerate(("#f38ba8", "#f9e2af", "#a6e3a1")))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"><rect width="{width}" height="{height}" rx="10" fill="#1b1d1c"/>{dots}'
            f'<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="{size}" fill="#e6e8e3">{"".join(rows)}</g></svg>\n')


def terminal_svg(program):
    if not shutil.which("tmux"):
        return None
    tmux, columns = ["tmux", "-L", f"mlxcel-pictures-{os.getpid()}", "-f", "/dev/null"], 84
    command = f"PS1='$ '; clear; exec {program} run --seed 5 -n 90 --no-history"
    env = {k: v for k, v in os.environ.items() if not k.startswith("MLXCEL_")}
    subprocess.run([*tmux, "-u", "new-session", "-d", "-x", str(columns), "-y", "26", command], check=True, env={**env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"})

    def screen():
        return subprocess.run([*tmux, "capture-pane", "-p", "-e"], capture_output=True, text=True, check=True).stdout.rstrip("\n").split("\n")

    def wait(what):
        end = time.monotonic() + 300
        while time.monotonic() < end and not re.search(what, re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(screen())), re.M):
            time.sleep(0.2)
    try:
        wait(r">>> *$")
        for text in ("Tell me a story about a dog and a kite.", "/show"):
            subprocess.run([*tmux, "send-keys", "-l", text], check=True)
            subprocess.run([*tmux, "send-keys", "Enter"], check=True)
            wait(r"tok/s" if text[0] != "/" else r"tokens of context")
            time.sleep(0.5)
        lines = screen()
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
    first = next(i for i, line in enumerate(lines) if "story teller" in line)  # before it stands what /show says at the end
    return screen_svg(["$ mlxcel run", *lines[first:]], columns)


def page_png(program):
    sys.path.insert(0, os.path.join(ROOT, "tests/server"))
    browser = next((p for p in ("chromium", "chromium-browser", "google-chrome") if shutil.which(p)), None)
    if not browser:
        return None
    from devtools import Browser  # the tests' own
    from harness import Server
    b, path = Browser(browser), os.path.join(FOLDER, "page.png")
    try:
        with Server(program, "--parallel", "1") as s:
            b.screen(1100, 700)
            b.call("Page.enable")
            b.call("Page.navigate", url=s.url)
            b.wait('document.getElementById("dot")?.className === "on"')
            b.run('settings.seed = 5; settings.max_tokens = 120; send("Tell me a story about a dog and a kite.")')
            b.wait('document.getElementById("stop").classList.contains("hidden") && Boolean(document.querySelector(".stats"))')
            b.picture(path)
    finally:
        b.close()
    with open(path, "rb") as f:
        return f.read()


def main():
    program, hashes = os.path.abspath(sys.argv[1]), kept()
    stale = [p for p in SOURCES if hashes.get(p) != made_from(p) or not os.path.exists(os.path.join(FOLDER, p))]
    if "--check" in sys.argv:
        for picture in stale:
            print(f"docs/pictures/{picture} is older than what it shows: run `make pictures`")
        return 1 if stale else 0
    os.makedirs(FOLDER, exist_ok=True)
    made = {"speed.svg": speed_svg(), "terminal.svg": terminal_svg(program), "page.png": page_png(program)}
    for picture, data in made.items():
        if data is None:
            print(f"pictures: {picture} stays as it is: its program is not here")
            continue
        if isinstance(data, str):
            with open(os.path.join(FOLDER, picture), "w", encoding="utf-8", newline="\n") as f:
                f.write(data)
        hashes[picture] = made_from(picture)
    with open(os.path.join(FOLDER, "made-from.json"), "w", encoding="utf-8", newline="\n") as f:
        json.dump(hashes, f, indent=1, sort_keys=True)
        f.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
