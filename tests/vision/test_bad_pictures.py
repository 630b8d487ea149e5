"""Damaged pictures through the server: test_bad_pictures.py PROGRAM IMAGE_PROBE DATA [--count N]

N damaged files of every format (20), bombs, pictures without pixels and too long ones, several at once: each that no decoder takes is one 400 with
the decoder's line, each other one is answered. The server's memory stays within a bound, and it answers as before.
"""
import base64
import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "server"))
import made  # noqa: E402
from harness import HANG, Server, check, finish  # noqa: E402

program, probe, data = sys.argv[1:4]
count = int(sys.argv[sys.argv.index("--count") + 1]) if "--count" in sys.argv else 20
root = f"{data}/golden-vision"
AT_ONCE, GROWTH_MOST = 4, 640 << 20  # bytes: four pictures of 50 Mi pixels, and what their requests take


def verdicts(folder, files):
    """What the decoder says of each: its error, or "" where there is a picture."""
    paths = []
    for i, content in enumerate(files):
        paths.append(os.path.join(folder, str(i)))
        with open(paths[-1], "wb") as f:
            f.write(content)
    lines = subprocess.run([probe, "-", *paths], capture_output=True, text=True, errors="replace", timeout=HANG, check=True).stdout.splitlines()
    said = [line.partition(": ")[2] for line in lines]
    return ["" if all(w.isdigit() for w in s.split(" x ")) else s for s in said]


def ask(server, content):
    """Status and the words of the error."""
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(content).decode()}}
    status, _, text = server.request("/v1/chat/completions", {"max_tokens": 1, "temperature": 0, "messages": [{"role": "user", "content": [part]}]})
    answer = json.loads(text)
    return status, answer["error"]["message"] if status != 200 else answer["choices"][0]["message"]["content"]


def agrees(verdict, status, words):
    """A picture that can be read may still have sides that its model refuses."""
    refused = status == 400 and words and "\n" not in words
    return refused and verdict in words if verdict else status == 200 or refused


def check_files(server, pool, folder, what, files):
    said = verdicts(folder, files)
    got = list(pool.map(lambda content: ask(server, content), files))
    odd = [f"{i}: {g[0]} {g[1][:200]!r} where the decoder says {v!r}" for i, (v, g) in enumerate(zip(said, got)) if not agrees(v, *g)]
    check(len(said) == len(files) and not odd, f"{what}: {len(odd)} of {len(files)}, such as {odd[:2]}")
    return sum(g[0] == 400 for g in got)


def memory(server, key):
    """Bytes that the server has now (VmRSS) or had at most (VmHWM); 0 where the system does not say it so."""
    try:
        with open(f"/proc/{server.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith(key))
    except OSError:
        return 0


def main():
    rng = random.Random(11)
    seeds = {name: open(f"{root}/images/{name}", "rb").read() for name in made.SEEDS}
    with tempfile.TemporaryDirectory() as folder, Server(program, "-m", f"{root}/qwen2_5_vl", "--device", "cpu") as s, ThreadPoolExecutor(AT_ONCE) as pool:
        good = [ask(s, content) for content in seeds.values()]
        check(all(status == 200 for status, _ in good), f"good pictures: {good}")
        before = memory(s, "VmRSS")
        for name, content in seeds.items():
            refused = check_files(s, pool, folder, f"damaged {name}", [made.damage(rng, content) for _ in range(count)])
            check(refused > 0, f"damaged {name}: none was refused")
        check_files(s, pool, folder, "bombs", list(made.bombs(1024 if count > 200 else 64).values()))
        bad = [content for content, _ in made.bad().values()]
        refused = check_files(s, pool, folder, "bad pictures", bad)
        check(refused == len(bad), f"bad pictures: {refused} of {len(bad)} were refused")
        grown = memory(s, "VmHWM") - before
        check(grown < GROWTH_MOST, f"the server took {grown >> 20} MiB more")
        check([ask(s, content) for content in seeds.values()] == good, "the good pictures again")
        m = s.wait_quiet()
        check(m["mlxcel_kv_blocks_used"] == 0, "nothing is held")
    print(f"{grown >> 20} MiB more at most")
    finish()


main()
