#!/usr/bin/env python3
"""`mlxcel run` as a user sees it: keys go into a terminal of tmux, its screen is read back. Also through a pipe.

With a Windows program the same keys go through Wine's console in the same terminal.

usage: test_chat.py PROGRAM [DATA]      last line: "N passed, N failed[, N skipped]"
"""
import atexit
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import crafted

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from counting import HANG, check, finish, parts, skip  # noqa: E402

program = os.path.abspath(sys.argv[1])
data = Path(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2] else None
is_windows = program.endswith(".exe")
command = [str(ROOT / "tools" / "wine.sh"), program] if is_windows else [program]
home = tempfile.mkdtemp(prefix="mlxcel-chat-")
atexit.register(shutil.rmtree, home, True)
FIGURES = re.compile(r"\[(\d+) tokens at [\d.]+ tok/s, context (\d+) of \d+, (\d+) reused")


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MLXCEL_", "LLAMA_ARG_"))}
    return {**env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "MLXCEL_HOME": ("Z:" if is_windows else "") + home}


class Terminal:
    """A window of a tmux server of our own; each has another name, since one that ends holds its socket for a moment."""

    n_made = 0

    def __init__(self, args, width=100, height=50, env=None):
        Terminal.n_made += 1
        self.tmux = ["tmux", "-L", f"mlxcel-test-{os.getpid()}-{Terminal.n_made}", "-f", "/dev/null"]
        line = " ".join(map(str, [*command, *args])) + "; echo EXIT=$?; sleep 600"
        subprocess.run([*self.tmux, "-u", "new-session", "-d", "-x", str(width), "-y", str(height), line], check=True, env={**environment(), **(env or {})})

    def keys(self, *keys):
        if is_windows:  # Wine does not know this terminal's Home, End and Delete
            keys = [{"Home": "C-a", "End": "C-e", "Delete": "C-d"}.get(k, k) for k in keys]
        subprocess.run([*self.tmux, "send-keys", *keys], check=True)

    def type(self, text):
        subprocess.run([*self.tmux, "send-keys", "-l", text], check=True)

    def paste(self, text):
        """As the terminal does it: marked, where the program has asked for that."""
        subprocess.run([*self.tmux, "load-buffer", "-"], input=text, check=True, encoding="utf-8")
        subprocess.run([*self.tmux, "paste-buffer", "-p"], check=True)

    def screen(self, *more):
        """more: "-e" for the escape sequences of colours, too."""
        text = subprocess.run([*self.tmux, "capture-pane", "-p", "-S", "-200", *more], capture_output=True, text=True).stdout
        return "\n".join(line.rstrip() for line in text.split("\n")).rstrip()

    def wait(self, what, count=1, seconds=HANG):
        """Until the screen has the text (so often); the screen."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            screen = self.screen()
            if len(re.findall(what, screen)) >= count:
                return screen
            time.sleep(0.2)
        print(f"--- waited for {what!r} in vain:\n{self.screen()}\n---")
        return self.screen()

    def resize(self, width, height):
        """Back when the program can know of it: tmux breaks the lines first, and tells the size a little later."""
        subprocess.run([*self.tmux, "resize-window", "-x", str(width), "-y", str(height)], check=True)
        name = subprocess.run([*self.tmux, "display-message", "-p", "#{pane_tty}"], capture_output=True, text=True, check=True).stdout.strip()
        tty, end = os.open(name, os.O_RDONLY | os.O_NOCTTY), time.monotonic() + HANG
        while os.get_terminal_size(tty).columns != width and time.monotonic() < end:
            time.sleep(0.02)
        os.close(tty)

    def prompt(self, count):
        """Until the prompt stands there for the nth time, as the last line."""
        return self.wait(r"(?m)^>>> ?.*", count)

    def ready(self):
        """Until an empty prompt is the last line: from then on the program has the keys, and before it Ctrl-C and Ctrl-D are the terminal's."""
        self.wait(r">>>$")

    def cancel(self):
        """Takes the line away. In a Unix terminal Wine makes an event of Ctrl-C, and no key."""
        self.keys(*(["C-u", "C-k"] if is_windows else ["C-c"]))

    def leave(self, what, *keys):
        """Ends the program by these keys."""
        self.keys(*keys)
        check("EXIT=0" in self.wait("EXIT="), what)

    def close(self):
        subprocess.run([*self.tmux, "kill-server"], stderr=subprocess.DEVNULL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def check_editing(t):
    t.type("/set tempratur")
    t.keys("Left", "Left", "Left", "Left", "Left")
    t.type("e")
    t.keys("C-e")
    t.type("e 0.25x")
    t.keys("BSpace", "Enter")
    screen = t.wait(r"temperature is 0.25 now")
    check("temperature is 0.25 now" in screen, f"arrows, Ctrl-E and Backspace: {screen}")
    t.keys("Up", "C-w")
    t.type("0.5")
    t.keys("Enter")
    check("temperature is 0.5 now" in t.wait("temperature is 0.5 now"), "Up and Ctrl-W")
    t.type("rubbish")
    t.keys("C-u")
    t.type("top_p 0.9 tail")
    t.keys("Home")
    t.type("/set ")
    t.keys("End", "BSpace", "BSpace", "BSpace", "BSpace", "BSpace", "Enter")
    check("top_p is 0.9 now" in t.wait("top_p is 0.9 now"), "Ctrl-U, Home, End")
    t.ready()
    t.type("this is cancelled")
    t.keys("C-c")
    if is_windows:  # in a Unix terminal Wine makes an event of it, which must not end the program
        time.sleep(0.5)
        t.keys("C-u")
    else:
        t.keys("C-c")
        check("Ctrl-D leaves" in t.wait(r"\(/bye or Ctrl-D leaves\)"), "Ctrl-C in an empty line")
    t.type("/system " + "x" * 130)
    t.keys("Home", "Delete", "C-k")
    t.type("/nothing")
    t.keys("Enter")
    screen = t.wait("no command /nothing")
    check("There is no command /nothing" in screen and "xxxx" not in screen, f"a line of several rows is taken away again: {screen}")


def check_talk(folder):
    with Terminal(["run", "--seed", "3", "-n", "80", "--threads", "1"]) as t:
        screen = t.prompt(1)
        check("story teller" in screen and "/help" in screen, f"the greeting: {screen}")
        t.type("Tell me a story about a cat.")
        t.keys("Enter")
        screen = t.wait(FIGURES.pattern)
        first = FIGURES.search(screen)
        check(first and first[3] == "0" and "Once upon a time" in screen, f"an answer: {screen}")
        first_answer = screen
        t.type("And then?")
        t.keys("Enter")
        found = list(FIGURES.finditer(t.wait(FIGURES.pattern, 2)))
        check(len(found) > 1 and int(found[1][3]) >= 64, f"the second turn reuses the first: {[m[0] for m in found]}")
        check_editing(t)
        t.type("/help")
        t.keys("Enter")
        screen = t.wait("Ctrl-C stops an answer")
        check(all(f"/{word} " in screen for word in ("help", "clear", "system", "set", "save", "load", "bye")), f"/help: {screen}")
        t.type('"""one')
        t.keys("Enter")
        t.wait(r"\n\.\.\.$")
        t.type('two"""')
        t.keys("Enter")
        t.wait(FIGURES.pattern, 3)
        t.ready()
        t.type("three \\")
        t.keys("Enter")
        t.wait(r"\n\.\.\.$")
        t.type("four")
        t.keys("Enter")
        t.wait(FIGURES.pattern, 4)
        path = f"{folder}/talk.json"
        t.type(f"/save {path}")
        t.keys("Enter")
        t.wait("8 messages are in")
        saved = json.load(open(path))["messages"] if os.path.exists(path) else []
        said = [m["content"] for m in saved if m["role"] == "user"]
        check(said == ["Tell me a story about a cat.", "And then?", "one\ntwo", "three \nfour"], f"several lines, /save: {said}")
        text = saved[1]["content"].strip() if saved else "nothing"
        wrapped = "\n".join(row for line in text.split("\n") for row in textwrap.wrap(line, 100, break_on_hyphens=False) or [""])
        check(f"\n{wrapped}\n" in first_answer, f"the answer breaks between words, as late as it can: {text!r} {first_answer}")
        t.type("/clear")
        t.keys("Enter")
        t.wait("begins anew")
        t.type(f"/load {path}")
        t.keys("Enter")
        check("8 messages from" in t.wait("8 messages from"), "/load")
        t.type("/bye")
        t.leave("/bye", "Enter")


def check_interrupt():
    """On the slow reference kernels, so that there is something to stop."""
    with Terminal(["run", "--cpu", "ref", "--threads", "1", "--seed", "3", "--temp", "9", "--top-k", "0", "--top-p", "1"]) as t:
        t.prompt(1)
        t.type("Tell me a very long story.")
        t.keys("Enter")
        t.wait(r"(?s)story\..{20}")
        t.keys("C-c")
        check("stopped]" in t.wait(r"stopped\]"), f"Ctrl-C stops the answer: {t.screen()}")
        t.type("/bye")
        t.leave("the program goes on after Ctrl-C and ends by /bye", "Enter")


def check_letters():
    """Letters of two bytes, wide ones, and a line that is longer than the screen."""
    with Terminal(["run", "--threads", "1"], width=40, height=24) as t:
        said = " ".join(t.prompt(1).split())
        check('a wish. "mlxcel run MODEL" talks with another one. Type a message; /help lists the commands, Ctrl-D leaves. >>>' in said, f"our own lines break between words: {said}")
        t.type("/system \u00e4\u00f6\u4e2d\u6587x")
        t.keys("Left", "Left", "BSpace", "End")
        t.type("!")
        t.keys("Enter")
        check("System prompt: \u00e4\u00f6\u6587x!" in t.wait("System prompt"), f"letters: {t.screen()}")
        t.type("/system " + "abcdefghi " * 8)
        t.keys("Home")
        for _ in range(8):
            t.keys("Right")
        t.type("X")
        t.keys("Enter")
        flat = t.wait("System prompt", 2).replace("\n", "")
        check("System prompt: Xabcdefghi" in flat, f"a long line: {t.screen()}")
        t.ready()
        t.leave("Ctrl-D leaves", "C-d")


def check_paste(folder):
    """Pasted lines are one message, and wait for Enter; a text that is higher than the screen is shown in part. Wine's console does not mark them."""
    text = "def f(x):\n\treturn x  # \u4e2d\n\nWhat does it do?\n"
    with Terminal(["run", "--seed", "3", "-n", "8", "--threads", "1", "--no-history"], width=80, height=24) as t:
        t.ready()
        t.paste(text)
        screen = t.wait(r"What does it do\?")
        check(">>> def f(x):\n    return x  # \u4e2d\n\nWhat does it do?" in screen and not FIGURES.search(screen), f"a paste is shown: {screen}")
        t.type("Tell me.")
        t.keys("Enter")
        screen = t.wait(FIGURES.pattern)
        check(len(FIGURES.findall(screen)) == 1, f"a paste is one message: {screen}")
        t.ready()
        t.keys("Up", "Up", "Home")
        t.type("X")
        t.keys("Enter")
        t.wait(FIGURES.pattern, 2)
        t.ready()
        t.paste("".join(f"line {i} of many\n" for i in range(1, 101)))
        screen = t.wait(r"line 100 of many")
        check("\n[rows 80 to 101 of 101]\nline 80 of many\n" in screen and "line 79" not in screen, f"a tall paste is shown in part: {screen}")
        t.keys(*["Up"] * 40)
        screen = t.wait(r"line 61 of many")
        check("\n[rows 61 to 82 of 101]\nline 61 of many\n" in screen and "line 83" not in screen, f"Up goes through it: {screen}")
        t.cancel()
        t.ready()
        path = f"{folder}/paste.json"
        t.type(f"/save {path}")
        t.keys("Enter")
        t.wait("4 messages are in")
        said = [m["content"] for m in json.load(open(path))["messages"] if m["role"] == "user"] if os.path.exists(path) else []
        check(said == [text + "Tell me.", text.replace("What", "XWhat") + "Tell me."], f"what was pasted, and changed when it came back: {said}")
        t.type("/bye")
        t.leave("/bye after a paste", "Enter")


def check_ways_out():
    """Whoever ends the program while a line is edited finds the terminal as it was: no marks around pastes, letters are shown."""
    import signal
    import termios
    if is_windows:
        return
    for how in ("Ctrl-D", signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        ours, theirs = pty.openpty()
        p = subprocess.Popen([program, "run", "--threads", "1", "--no-history"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(),
                             preexec_fn=lambda: [signal.signal(s, signal.SIG_DFL) for s in (signal.SIGHUP, signal.SIGINT)])  # nohup and "&" ignore them
        seen = b""
        while b">>> " not in seen:
            seen += os.read(ours, 4096)
        time.sleep(0.2)
        if how == "Ctrl-D":
            os.write(ours, b"\x04")
        else:
            p.send_signal(how)
        p.wait(60)
        os.set_blocking(ours, False)
        try:
            seen += os.read(ours, 65536)
        except OSError:
            pass
        shows = termios.tcgetattr(theirs)[3] & termios.ECHO
        os.close(theirs)
        os.close(ours)
        marks = re.findall(rb"\x1b\[\?2004([hl])", seen)
        check(marks and marks[-1] == b"l" and shows and p.returncode == (0 if how == "Ctrl-D" else -how), f"ended by {how}: {p.returncode} {seen!r}")


def check_typed_ahead():
    """What is typed while an answer comes, and Ctrl-C, are not printed into it; the typed text is the next line."""
    endless = ["--temp", "9", "--top-k", "0", "--top-p", "1"]  # any token: a story ends before a fast machine has seen the keys
    with Terminal(["run", "--cpu", "ref", "--threads", "1", "--seed", "3", "--no-history", *endless], width=70) as t:
        t.ready()
        t.type("Tell me a very long story.")
        t.keys("Enter")
        t.wait(r"(?s)story\..{150}")
        t.type("/show")
        time.sleep(0.5)
        check("/show" not in t.screen(), f"what is typed ahead is not in the answer: {t.screen()}")
        t.keys("C-c")
        screen = t.wait(r">>> /show")
        check("^C" not in screen and re.search(r"stopped\]\n>>> /show", screen), f"it is the next line, and Ctrl-C is not shown: {screen}")
        answer = screen.split("story.\n", 1)[1].split("\n[", 1)[0]
        check(re.search(r"(?m)^.{50,69}\n ?[a-z]", answer), f"lines break between words, before the edge: {answer}")
        t.keys("Enter")
        check(re.search(r"2 messages, \d+ of \d+ tokens of context", t.wait("tokens of context")), "/show")
        t.ready()
        t.leave("Ctrl-D leaves", "C-d")


def check_commands():
    """Tab, Ctrl-R, /retry, /model; history by message."""
    path = Path(home) / "history"
    path.unlink(missing_ok=True)
    with Terminal(["run", "--seed", "3", "-n", "8", "--threads", "1"], width=80, height=40) as t:
        t.ready()
        t.type("/mo")
        t.keys("Tab")
        t.wait(r">>> /model$")
        t.type("bui")
        t.keys("Tab")
        check(">>> /model built-in" in t.wait("/model built-in"), f"Tab completes commands and models: {t.screen()}")
        t.keys("Enter")
        screen = t.wait("built-in model", 2)
        check("error" not in screen, f"/model loads it: {screen}")
        t.ready()
        t.type("/s")
        t.keys("Tab")
        screen = t.wait("/system +/show|/show")
        check(all(w in screen for w in ("/system", "/show", "/set", "/save")), f"Tab shows what there is: {screen}")
        t.keys("C-u")
        t.type("First words.")
        t.keys("Enter")
        t.wait(FIGURES.pattern)
        t.ready()
        t.type("/retry")
        t.keys("Enter")
        screen = t.wait(FIGURES.pattern, 2)
        check(len(FIGURES.findall(screen)) == 2, f"/retry answers again: {screen}")
        t.ready()
        t.type("/show")
        t.keys("Enter")
        check("2 messages" in t.wait("messages,"), f"and takes the answer's place: {t.screen()}")
        t.ready()
        t.paste("one\ntwo")
        t.wait(r">>> one\ntwo$")  # where pastes are not marked, Enter at once would be a part of it
        t.keys("Enter")
        t.wait(FIGURES.pattern, 3)
        t.ready()
        t.keys("C-r")
        t.type("irst")
        check("(search: irst) First words." in t.wait(r"\(search: irst\)"), f"Ctrl-R: {t.screen()}")
        t.keys("C-g")
        t.ready()
        t.type("/bye")
        t.keys("Enter")
        t.wait("EXIT=0")
    text = path.read_text() if path.exists() else ""
    check("one\x1etwo\n" in text, f"a message of two lines is one entry: {text!r}")
    with Terminal(["run", "--threads", "1"]) as t:
        t.ready()
        t.keys("Up", "Up")
        check(re.search(r">>> one\ntwo$", t.wait("two")), f"and comes back so: {t.screen()}")
        t.cancel()
        t.ready()
        t.keys("C-d")
        t.wait("EXIT=")


def check_resize():
    """A narrower window breaks the line anew and leaves nothing of the old one behind; so does a wider one."""
    with Terminal(["run", "--threads", "1", "--no-history"], width=90, height=24) as t:
        t.ready()
        words = " ".join(f"w{i:02}" for i in range(20))
        t.type(words)
        t.wait("w19")
        for letter, width in zip("abcd", (40, 60, 30, 90)):
            t.resize(width, 24)
            if is_windows:  # the console has its own time for it
                time.sleep(0.6)
            else:  # a letter behind it shows that the program has drawn the line anew: before that, the terminal alone has broken it
                t.type(letter)
                words += letter
            end, whole = time.monotonic() + HANG, words.replace(" ", "")
            while "".join((screen := t.screen()).rpartition(">>>")[2].split()) != whole and time.monotonic() < end:
                time.sleep(0.1)  # while it is drawn it is not whole
            check(screen.count(">>>") == 1 and "".join(screen.rpartition(">>>")[2].split()) == whole and screen.count("w00") == 1, f"width {width}: {screen}")
        t.cancel()
        t.ready()
        t.keys("C-d")
        t.wait("EXIT=")


def check_history():
    """What was typed is there in the next session, and nobody else may read it."""
    path = Path(home) / "history"
    path.unlink(missing_ok=True)

    def session(*more):
        t = Terminal(["run", "--threads", "1", *more])
        t.prompt(1)
        return t

    def leave(t):
        t.type("/bye")
        t.leave("/bye", "Enter")
        t.close()

    t = session()
    t.type("/set top_k 7")
    t.keys("Enter")
    t.wait("top_k is 7 now")
    leave(t)
    text = path.read_text() if path.exists() else None
    check(text == "/set top_k 7\n/bye\n", f"the history file: {text!r}")
    check(is_windows or path.stat().st_mode & 0o777 == 0o600, "the history is the owner's alone")
    t = session("--no-history")
    t.keys("Up")
    t.type("/set top_k 8")
    t.keys("Enter")
    check("top_k is 8 now" in t.wait("top_k is 8 now"), f"--no-history has nothing to go back to: {t.screen()}")
    leave(t)
    check(path.read_text() == text, "--no-history writes nothing")
    t = session()
    t.keys("Up", "Up", "Enter")
    check("top_k is 7 now" in t.wait("top_k is 7 now"), f"Up in the next session: {t.screen()}")
    leave(t)


MARKED = "<think>\nTwo and two\n</think>\n\nThe sum is four."  # thoughts where there are no colours


def check_thoughts(folder):
    """Between <think> and </think>: not shown, or shown dimmed."""
    model = crafted.make(Path(folder) / "scripted")
    with Terminal(["run", ("Z:" if is_windows else "") + str(model), "--temp", "0"]) as t:
        t.prompt(1)
        t.type("hello")
        t.keys("Enter")
        screen = t.wait(FIGURES.pattern)
        check("The sum is four." in screen and "Two and two" not in screen and "think" not in screen, f"thoughts are hidden: {screen}")
        t.type("/set show_reasoning on")
        t.keys("Enter")
        t.wait("show_reasoning is on now")
        t.type("hello again")
        t.keys("Enter")
        screen = t.wait(FIGURES.pattern, 2)
        shown = re.search(r"Two and two\n\n+The sum is four\.", screen) and "<think>" not in screen
        check(shown or (is_windows and MARKED in screen), f"thoughts are shown: {screen}")  # Wine's console has no colours
        if not is_windows:
            colours = t.screen("-e")
            check(re.search(r"\x1b\[2mTwo and two", colours) and not re.search(r"\x1b\[2mThe sum", colours), f"thoughts are dimmed: {colours!r}")
        t.type("/bye")
        t.leave("/bye", "Enter")
    with Terminal(["run", ("Z:" if is_windows else "") + str(model), "--temp", "0", "--show-reasoning", "--no-color"]) as t:
        t.prompt(1)
        t.type("hello")
        t.keys("Enter")
        screen = t.wait(FIGURES.pattern)
        check(MARKED in screen, f"thoughts without colours: {screen}")
        check("\x1b[" not in t.screen("-e"), f"--no-color: {t.screen('-e')!r}")
        t.type("/bye")
        t.leave("/bye", "Enter")


def check_marks(folder):
    """Marks of Markdown become colours where there are some; else they stand as they are."""
    model = ("Z:" if is_windows else "") + str(crafted.make(Path(folder) / "marked", crafted.SCRIPT_MARKS))
    for what, args, env, plain in (("colours", (), {}, is_windows), ("--no-color", ("--no-color",), {}, True), ("NO_COLOR", (), {"NO_COLOR": "1"}, True)):
        with Terminal(["run", model, "--temp", "0", *args], env=env) as t:
            t.ready()
            t.type("hello")
            t.keys("Enter")
            screen = t.wait(FIGURES.pattern)
            seen = t.screen("-e")
            check(("It is **bold** and `code`." if plain else "It is bold and code.") in screen, f"{what}: {screen}")
            check(not plain or is_windows or "\x1b[" not in seen, f"{what}: no sequences: {seen!r}")
            check(plain or re.search(r"\x1b\[1mbold\x1b\[", seen), f"{what}: bold is bold: {seen!r}")
            t.ready()
            t.leave("Ctrl-D leaves", "C-d")


def check_image(folder):
    """/image: what has no tower says so; a model that sees has the picture in its prompt."""
    picture = Path(folder) / "no picture.png"
    picture.write_text("this is a text")
    with Terminal(["run", "--threads", "1", "--no-history", "-n", "4"]) as t:
        t.ready()
        for typed, says in (("/image", "0 pictures go with your next message"), ("/image /no/such.png", "cannot open /no/such.png"), (f"/image {picture}", "error: ")):
            t.type(typed)
            t.keys("Enter")
            pattern = rf"(?s){re.escape(typed[-12:])}\n.*{re.escape(says)}"  # behind what was typed: an earlier error is none of this
            check(re.search(pattern, t.wait(pattern)), f"{typed}: {t.screen()}")
            t.ready()
        t.leave("Ctrl-D leaves", "C-d")
    seeing = data / "golden-vision" if data else Path("/no")
    if not seeing.is_dir() or is_windows:
        return skip("/image for a model that sees: none here")
    with Terminal(["run", seeing / "smolvlm", "--device", "cpu", "--temp", "0", "-n", "4", "--no-history"]) as t:
        t.ready()
        t.type("What is there?")
        t.keys("Enter")
        plain = FIGURES.search(t.wait(FIGURES.pattern))
        t.ready()
        t.type("/clear")
        t.keys("Enter")
        t.wait("begins anew")
        t.type(f"/image {seeing / 'images' / 'land.png'}")
        t.keys("Enter")
        t.wait("picture")
        t.ready()
        t.type("What is there?")
        t.keys("Enter")
        found = list(FIGURES.finditer(t.wait(FIGURES.pattern, 2)))
        check(plain and len(found) == 2 and int(found[1][2]) > int(plain[2]) + 10, f"the picture is in the prompt: {t.screen()}")
        t.ready()
        t.leave("Ctrl-D leaves", "C-d")


def check_minimind():
    """minimind2-small holds a conversation."""
    model = data / "models" / "minimind2-small-mlx-8bit"
    with Terminal(["run", model, "--temp", "0", "-n", "48"]) as t:  # a draw would depend on the last bit of the logits
        t.prompt(1)
        t.type("What is the capital of France?")
        t.keys("Enter")
        screen = t.wait(FIGURES.pattern)
        check("Paris" in screen, f"minimind2: {screen}")
        t.type("And of Germany?")
        t.keys("Enter")
        check(len(FIGURES.findall(t.wait(FIGURES.pattern, 2))) == 2, f"minimind2, second turn: {t.screen()}")
        t.ready()
        t.leave("Ctrl-D leaves", "C-d")


def pipe(*args, text=""):
    return subprocess.run([*command, "run", *args], input=text, capture_output=True, text=True, timeout=HANG, env=environment(), encoding="utf-8")


def check_pipe():
    r = pipe("-n", "12", "--temp", "0", "--lines", text="Hello.\n/set max_tokens 3\nMore.\n")
    lines = r.stdout.strip().split("\n")
    check(r.returncode == 0 and ">>>" not in r.stdout and "\x1b" not in r.stdout + r.stderr and len(lines) >= 2, f"a pipe, line by line: {r.stdout!r} {r.stderr!r}")
    whole = pipe("-n", "12", "--temp", "0", text="Hello.\nMore.\n")
    said = pipe("-n", "12", "--temp", "0", "-p", "Hello.\nMore.")
    check(whole.returncode == 0 and whole.stdout == said.stdout and whole.stdout.count("\n") == said.stdout.count("\n"), f"a pipe is one message: {whole.stdout!r} {said.stdout!r}")
    words = pipe("-n", "12", "--temp", "0", "built-in", "Hello.", "You.", text="More.\n")
    said = pipe("-n", "12", "--temp", "0", "-p", "Hello. You.\n\nMore.")
    check(words.returncode == 0 and words.stdout == said.stdout, f"a prompt behind the model, and a pipe: {words.stdout!r} {said.stdout!r} {words.stderr}")
    words = pipe("-n", "12", "--temp", "0", "-m", "built-in", "Hello. You.", text="More.\n")
    check(words.returncode == 0 and words.stdout == said.stdout, f"a prompt where an option names the model: {words.stdout!r} {words.stderr}")
    r = pipe("built-in", "Hello.", "-p", "More.")
    check(r.returncode == 2 and "give the prompt once" in r.stderr, f"two prompts: {r.stderr}")
    r = pipe("-n", "12", "--temp", "0", "-p", "Hello.")
    check(r.returncode == 0 and r.stdout.strip().startswith(lines[0][:10]), f"--prompt: {r.stdout!r}")
    check(pipe(text="").returncode == 0, "nothing to say")
    r = pipe("/no/such/model")
    check(r.returncode in (1, 2) and "/no/such/model" in r.stderr, f"no such model: {r.stderr}")


def check_dumb():
    """A terminal that knows no escape sequences, such as an editor's shell window, gets none."""
    if is_windows:
        return
    ours, theirs = pty.openpty()
    p = subprocess.Popen([program, "run", "--seed", "3", "-n", "8"], stdin=theirs, stdout=theirs, stderr=theirs, env={**environment(), "TERM": "dumb"})
    os.close(theirs)
    seen = b""

    def read_until(what):
        nonlocal seen
        while what not in seen:
            try:
                seen += os.read(ours, 4096)
            except OSError:  # the program has ended
                return

    read_until(b">>> ")
    os.write(ours, "Tell me of a b\u00e4r.\n".encode())
    read_until(b" tok/s")
    os.write(ours, b"\x04")
    read_until(b"never said")
    p.wait(HANG)
    os.close(ours)
    check(p.returncode == 0 and b"\x1b" not in seen and b"[8 tokens" in seen, f"a dumb terminal: {p.returncode} {seen!r}")


def missing():
    """Why the Windows program cannot run here, or None."""
    if not os.path.exists(program):
        return "mlxcel.exe is not built here"
    if not (shutil.which("wine64") or shutil.which("wine") or os.path.exists("/usr/lib/wine/wine64")):
        return "no Wine here"
    if subprocess.run([*command, "version"], capture_output=True).returncode == 127:
        return "Wine does not run here"
    return None


def main():
    if is_windows and missing():
        skip(f"the chat under Wine: {missing()}")
        finish()
    parts(check_pipe, check_dumb, check_ways_out)
    if shutil.which("tmux"):
        with tempfile.TemporaryDirectory() as folder:
            parts((check_talk, folder), check_letters, check_interrupt, (check_paste, folder), check_typed_ahead, check_commands, check_resize, check_history, (check_thoughts, folder),
                  (check_marks, folder), (check_image, folder))
            if data:
                parts(check_minimind)
    else:
        skip("the terminal: no tmux here")
    finish()


sys.exit(main())
