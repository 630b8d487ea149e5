"""What the checks know of C: the list of our files, their text without comments or strings, and where functions begin and end."""
import os
import re
import subprocess

TOKEN = re.compile(r"""/\*.*?\*/ | //[^\n]* | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'""", re.S | re.X)


def root_of(argv):
    """The tree to check: the one given on the command line, else the repository that holds this file."""
    return os.path.abspath(argv[1]) if len(argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def files(root, *suffixes):
    """Paths from the root, '/' separated, of the files that git knows or would add; every file where there is no repository."""
    done = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=False)
    if done.returncode == 0:
        names = [n for n in done.stdout.decode().split("\0") if n and os.path.exists(os.path.join(root, n))]
    else:
        names = [os.path.relpath(os.path.join(d, n), root) for d, dirs, ns in os.walk(root) for n in ns if "/build" not in d]
    return sorted(set(n for n in names if n.endswith(suffixes)))


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read()


def blank(match):
    """Keeps the line breaks, so that line numbers stay right."""
    return re.sub(r"[^\n]", " ", match.group())


def code(text, keep_strings=False):
    """The text with comments, and unless told otherwise the insides of literals, blanked out."""
    def one(match):
        literal = match.group()[0] in "\"'"
        if literal and keep_strings:
            return match.group()
        if literal:
            return match.group()[0] + re.sub(r"[^\n]", " ", match.group()[1:-1]) + match.group()[0]
        return blank(match)
    return TOKEN.sub(one, text)


def functions(text):
    """(name, first line, last line) of each function body at file level."""
    stripped = re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", blank, code(text), flags=re.M)
    depth, start, found = 0, None, []
    line = 1
    for i, c in enumerate(stripped):
        if c == "\n":
            line += 1
        elif c == "{":
            if depth == 0:
                head = stripped[:i].rstrip()
                start = (function_name(head), line) if head.endswith(")") else None
            depth += 1
        elif c == "}":
            depth = max(0, depth - 1)
            if depth == 0 and start:
                found.append((start[0], start[1], line))
                start = None
    return found


def function_name(head):
    """The word before the parenthesis that closes at the end of head."""
    depth = 0
    for i in range(len(head) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(head[i], 0)
        if depth == 0:
            word = re.search(r"(\w+)\s*$", head[:i])
            return word.group(1) if word else "?"
    return "?"


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1
