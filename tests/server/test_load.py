#!/usr/bin/env python3
"""Many streaming clients at once, some of which leave: every answer is whole, everything is given back.

usage: test_load.py PROGRAM [CLIENTS [SECONDS]]      last line: "N passed, N failed"
"""
import asyncio
import json
import random
import re
import sys
import time

import harness
from harness import Server, check


async def stream_one(port, dice, tally):
    """One request; leaves in the middle now and then. Counts what came of it."""
    prompts = ["Once upon a time", "The dog", "Lily went to the", "One day"]
    body = {"prompt": dice.choice(prompts), "max_tokens": dice.randint(1, 40), "stream": True, "ignore_eos": True, "temperature": dice.choice([0, 1]),
            "stream_options": {"include_usage": True}}
    data = json.dumps(body).encode()
    leaves = dice.random() < 0.3
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        if leaves:
            await asyncio.sleep(dice.random() * 0.5)
            tally["left"] += 1
            return
        got = await asyncio.wait_for(reader.read(-1), 600)
        if b" 503 " in got[:20]:
            tally["busy"] += 1
            return
        usage = re.findall(rb'"completion_tokens":(\d+)', got)
        whole = got.startswith(b"HTTP/1.1 200") and b"data: [DONE]\n\n" in got and usage and int(usage[-1]) == body["max_tokens"]
        tally["whole" if whole else "broken"] += 1
        if not whole:
            print("broken:", got[-300:])
    finally:
        writer.close()


async def client(port, seed, until, tally):
    dice = random.Random(seed)
    while time.monotonic() < until:
        try:
            await stream_one(port, dice, tally)
        except Exception as e:  # whatever happens is counted
            tally["broken"] += 1
            print("broken:", type(e).__name__, e)


async def watch(pid, seconds, sizes):
    """The server's memory, twenty times."""
    for _ in range(20):
        await asyncio.sleep(seconds / 20)
        sizes.append(resident(pid))


async def load(s, n_clients, seconds, sizes):
    tally = {"whole": 0, "left": 0, "busy": 0, "broken": 0}
    until = time.monotonic() + seconds
    await asyncio.gather(watch(s.process.pid, seconds, sizes), *(client(s.port, i, until, tally) for i in range(n_clients)))
    return tally


def resident(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) / 1024
    except OSError:
        return 0.0


def main():
    n_clients = int(sys.argv[2]) if len(sys.argv) > 2 else 50
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 12
    with Server(sys.argv[1], "--parallel", "16", "--max-queue-depth", str(4 * n_clients)) as s:
        asyncio.run(load(s, n_clients, seconds / 4, []))
        sizes = [resident(s.process.pid)]
        tally = asyncio.run(load(s, n_clients, seconds * 3 / 4, sizes))
        s.wait_quiet()
        m = s.wait_for(lambda m: m["mlxcel_http_connections"] <= 2)  # those of clients that left are noticed a moment later
        sizes.append(resident(s.process.pid))
        before, after = sizes[0], sizes[-1]
        print(f"{n_clients} clients, {seconds:.0f} s: {tally}, {m['mlxcel_completion_tokens_total']:.0f} tokens")
        print("resident MiB: " + " ".join(f"{size:.1f}" for size in sizes), flush=True)
        check(tally["broken"] == 0 and tally["busy"] == 0 and tally["whole"] > 0 and tally["left"] > 0, f"{tally}")
        check(m["mlxcel_kv_blocks_used"] == m["mlxcel_generations_running"] == m["mlxcel_queue_depth"] == 0, f"everything came back: {m}")
        check(m["mlxcel_http_connections"] <= 2, f"connections: {m['mlxcel_http_connections']}")
        check(after < before * 1.1 + 10, f"at rest memory grew from {before:.1f} to {after:.1f} MiB")
        early, late = sum(sizes[1:6]) / 5, sum(sizes[-6:-1]) / 5
        check(late < early * 1.1 + 10, f"under load memory grew from {early:.1f} to {late:.1f} MiB")
        check(s.request("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200, "well after all that")
    harness.finish()


if __name__ == "__main__":
    main()
