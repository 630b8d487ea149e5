#!/usr/bin/env python3
"""Slots that are saved, restored and erased: a prompt's cache outlives the server, and a file that is not what it should be changes nothing.

usage: test_slots.py PROGRAM [DEVICE]      last line: "N passed, N failed"
"""
import json
import os
import sys
import tempfile

from harness import Server, check, finish

PROMPT = " ".join(f"In line {i} the little bird sings of the sea." for i in range(12))
ASK = {"prompt": PROMPT, "n_predict": 12, "temperature": 0, "id_slot": 1}


def post(s, path, body, want=200):
    code, _, text = s.request(path, body)
    check(code == want, f"{path} {str(body)[:100]}: {code} {text[:200]}")
    return json.loads(text)


def slot(s, number, action, name=None, want=200):
    return post(s, f"/slots/{number}?action={action}", {"filename": name} if name else {}, want)


def save(s, folder):
    first = post(s, "/completion", ASK)
    check(first["timings"]["cache_n"] == 0, "nothing is known yet")
    got = slot(s, 1, "save", "bird.bin")
    path = os.path.join(folder, "bird.bin")
    check(got["id_slot"] == 1 and got["filename"] == "bird.bin" and got["timings"]["save_ms"] >= 0, f"the fields of save: {got}")
    check(got["n_saved"] == first["tokens_cached"], f"{got['n_saved']} tokens of {first['tokens_cached']}")
    check(got["n_written"] == os.path.getsize(path) and os.listdir(folder) == ["bird.bin"], "the file alone is there")
    return first, got


def restore(s, first, saved):
    got = slot(s, 0, "restore", "bird.bin")
    check(got["id_slot"] == 0 and got["filename"] == "bird.bin" and got["timings"]["restore_ms"] >= 0, f"the fields of restore: {got}")
    check(got["n_restored"] == saved["n_saved"] and got["n_read"] == saved["n_written"], f"restored: {got}")
    again = post(s, "/completion", {**ASK, "id_slot": 0})
    check(again["content"] == first["content"], "the same text")
    check(again["timings"]["cache_n"] >= first["tokens_evaluated"] - 8, f"{again['timings']['cache_n']} of {first['tokens_evaluated']} tokens were known")
    chat = post(s, "/v1/completions", {"prompt": PROMPT, "max_tokens": 1, "temperature": 0})
    check(chat["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, "cached_tokens of another path")


def erase(s, first):
    got = slot(s, 0, "erase")
    check(got == {"id_slot": 0, "n_erased": first["tokens_cached"]}, f"the fields of erase: {got}")
    check(slot(s, 1, "erase")["n_erased"] == 0, "a slot that nobody used")
    check(s.request("/slots/1?action=erase", b"", method="POST")[0] == 200, "an empty body")


def check_refused(s, folder, first):
    path = os.path.join(folder, "bird.bin")
    whole = open(path, "rb").read()
    with open(os.path.join(folder, "cut.bin"), "wb") as f:
        f.write(whole[:-100])
    with open(os.path.join(folder, "altered.bin"), "wb") as f:
        f.write(whole[:2000] + bytes([whole[2000] ^ 4]) + whole[2001:])
    with open(os.path.join(folder, "text.bin"), "wb") as f:
        f.write(b"not a cache at all" * 100)
    before = s.metrics()
    for name, word in (("cut.bin", "not whole"), ("altered.bin", "sum is wrong"), ("text.bin", "no saved cache"), ("absent.bin", "absent.bin"),
                       ("../bird.bin", "plain name"), ("a/b.bin", "plain name"), ("C:bird", "plain name"), ("..", "plain name"), ("NUL", "plain name")):
        message = slot(s, 0, "restore", name, 400)["error"]["message"]
        check(word in message and "\n" not in message, f"{name}: {message}")
    check(post(s, "/slots/0?action=restore", {}, 400)["error"]["message"].startswith("filename"), "no name")
    check("numbers 0 to 1" in slot(s, 7, "save", "x.bin", 400)["error"]["message"], "a slot that is not there")
    check("save, restore or erase" in slot(s, 0, "keep", "x.bin", 400)["error"]["message"], "an action that is not there")
    for name in ("cut.bin", "altered.bin", "text.bin"):
        os.remove(os.path.join(folder, name))
    check(s.metrics()["mlxcel_kv_blocks_used"] == before["mlxcel_kv_blocks_used"] == 0, "no block is held")
    check(post(s, "/completion", {**ASK, "id_slot": 0})["timings"]["cache_n"] > 0, "what was known still is")


def check_other_form(program, folder):
    with Server(program, "--slot-save-path", folder, "--kv-bits", "8") as s:
        message = slot(s, 0, "restore", "bird.bin", 400)["error"]["message"]
        check("--kv-bits" in message, f"a cache of another form: {message}")
        check("is empty" in slot(s, 0, "save", "x.bin", 400)["error"]["message"], "an empty slot")


def main():
    program, device = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "cpu"
    options = ("--parallel", "2", "--ctx-size", "1024", "--device", device)
    with tempfile.TemporaryDirectory() as folder:
        args = (*options, "--slot-save-path", folder)
        with Server(program, *args) as s:
            first, saved = save(s, folder)
        with Server(program, *args) as s:
            restore(s, first, saved)
            check_refused(s, folder, first)
            n = post(s, "/completion", {**ASK, "id_slot": 0, "n_predict": 1})
            erase(s, n)
            check(post(s, "/completion", ASK)["timings"]["cache_n"] < first["tokens_evaluated"] - 8, "what was erased is computed again")
        if device == "cpu":  # elsewhere the cache has one form
            check_other_form(program, folder)
        with Server(program, *options) as s:
            check("--slot-save-path" in slot(s, 0, "save", "x.bin", 501)["error"]["message"], "without the option")
    finish()


if __name__ == "__main__":
    main()
