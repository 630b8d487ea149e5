#!/usr/bin/env python3
"""Pipes, sockets, devices, folders and links in place of a model's files: each command ends with a line that names the file.

Before each case the command works; the case puts one thing in the place of one file. The limit of seconds only stops a test that hangs.

usage: test_special_files.py PROGRAM                                                  last line: "N passed, N failed"
"""
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SEED = ROOT / "tests/golden/quant/affine-4-g64"
SECONDS = 60
COMMANDS = {
    "generate": ["generate", "-n", "1", "--temperature", "0", "-t", "1", "--device", "cpu", "-p", "a", "-m"],
    "tokenize": ["tokenize", "-p", "a", "-m"],
    "inspect": ["inspect", "-m"],
    "template": ["template", "--input", "-", "-m"],
}
READ_BY = {
    "config.json": ("generate", "inspect"),
    "generation_config.json": ("generate", "inspect"),
    "model.safetensors": ("generate", "inspect"),
    "model.safetensors.index.json": ("generate", "inspect"),
    "tokenizer.json": ("generate", "tokenize"),
    "tokenizer_config.json": ("generate", "tokenize", "template"),
    "special_tokens_map.json": ("generate", "template"),
    "chat_template.jinja": ("generate", "template"),
    "chat_template.json": ("generate", "template"),
}
NO_FILE = "it is no regular file"


def put(path, kind):
    """Puts a thing of that kind there; what the message says about it. None: this machine has none of the kind."""
    if path.exists():
        path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif kind == "folder":
        path.mkdir()
        return "it is a folder"
    elif kind == "link to a pipe":
        os.mkfifo(path.parent / "pipe")
        path.symlink_to("pipe")
    elif kind == "link to itself":
        path.symlink_to(path.name)
        return "symbolic links"
    elif kind == "file that waits":
        if not os.access("/proc/kmsg", os.R_OK):
            return None
        path.symlink_to("/proc/kmsg")  # the kernel says that it is a regular file and empty, and keeps a reader waiting
        return ""
    else:
        path.symlink_to(kind)
    return NO_FILE


def run(program, command, folder):
    """Status and messages; None when it did not end."""
    request = b'{"messages":[{"role":"user","content":"a"}]}' if command == "template" else b""
    try:
        done = subprocess.run([program, *COMMANDS[command], str(folder)], input=request, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=SECONDS,
                              check=False, start_new_session=True)
    except subprocess.TimeoutExpired:
        return None
    return done.returncode, done.stderr.decode("utf-8", "replace")


def verdict(done, name, says):
    """What was wrong, or None."""
    if done is None:
        return f"did not end in {SECONDS} s"
    status, text = done
    last = text.strip().splitlines()[-1] if text.strip() else ""
    if says == "":  # an empty file, which may be wrong or not
        return None if status in (0, 1, 2) else f"status {status}: {text}"
    if status != 1 or not last.startswith("mlxcel: error: ") or name not in last or says not in last:
        return f"status {status}: {text}"
    return None


def main():
    program = os.path.abspath(sys.argv[1])
    kinds = ("pipe", "socket", "folder", "link to a pipe", "link to itself", "/dev/zero", "/dev/null", "/dev/tty", "file that waits")
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as temp:
        for name, commands in READ_BY.items():
            for kind in kinds:
                folder = Path(temp) / "model"
                shutil.copytree(SEED, folder)
                says = put(folder / name, kind)
                for command in commands:
                    if says is None:
                        skipped += 1
                        continue
                    wrong = verdict(run(program, command, folder), name, says)
                    passed += wrong is None
                    failed += wrong is not None
                    if wrong:
                        print(f"FAILED {kind} as {name}, {command}: {wrong}", flush=True)
                shutil.rmtree(folder)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
