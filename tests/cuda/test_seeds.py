#!/usr/bin/env python3
"""The same seed gives the same text on the CPU and on the GPU in --precision exact, alone and among many requests.

Two servers of one model, one on the CPU and one on the GPU, answer the same requests: each sampler of SETTINGS with seeds of its own. The CPU answers
them side by side; the GPU one by one, and then all at once. Where they part, the CPU is asked again with temperatures
1e-4 to either side: when one of these gives the GPU's text, the draw lay that close to the border between two tokens. Such draws are counted and
named, and no failure. Everything else is.

usage: test_seeds.py MLXCEL [--device cuda] [--model MODEL] [--requests 64] [--tokens 64]
"""
import argparse
import concurrent.futures
import json
import subprocess
import sys
import urllib.request

NEAR = 1e-4
SETTINGS = [{"temperature": 1}, {"temperature": 0.6, "top_k": 20, "top_p": 0.95}, {"temperature": 1, "min_p": 0.05},
            {"temperature": 1.2, "repetition_penalty": 1.1, "frequency_penalty": 0.2}, {"temperature": 1, "logprobs": 5},
            {"temperature": 0.9, "typical_p": 0.8}, {"temperature": 1, "mirostat": 2}, {"temperature": 0.8, "dry_multiplier": 0.8}]


class Server:
    def __init__(self, args, device):
        model = ["-m", args.model] if args.model else []
        command = [args.mlxcel, "serve", *model, "--device", device, "--precision", "exact", "--port", "0", "--log-format", "json", "-c", "1024",
                   "--parallel", str(args.requests)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{' '.join(command)} did not start")
        self.url = json.loads(line)["url"] + "/v1/completions"

    def ask(self, body):
        """The text of an answer."""
        request = urllib.request.Request(self.url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)["choices"][0]["text"]

    def close(self):
        self.process.terminate()
        self.process.wait(60)


def requests(args):
    for i in range(args.requests):
        yield {"prompt": f"Once upon a time there were {i + 2} little birds", "max_tokens": args.tokens, "seed": 1000 + i, **SETTINGS[i % len(SETTINGS)]}


def near(cpu, body, text):
    """Whether a temperature that is 1e-4 off gives this text on the CPU."""
    return any(cpu.ask(dict(body, temperature=body["temperature"] * (1 + off))) == text for off in (-NEAR, NEAR, -NEAR / 4, NEAR / 4))


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("mlxcel")
    p.add_argument("--device", default="cuda")
    p.add_argument("--model")
    p.add_argument("--requests", type=int, default=64)
    p.add_argument("--tokens", type=int, default=64)
    args = p.parse_args()
    bodies, passed, failed, close = list(requests(args)), 0, 0, 0
    cpu, gpu = Server(args, "cpu"), Server(args, args.device)
    try:
        with concurrent.futures.ThreadPoolExecutor(args.requests) as pool:
            wanted = list(pool.map(cpu.ask, bodies))
            answers = {"alone": [gpu.ask(b) for b in bodies], f"among {args.requests}": list(pool.map(gpu.ask, bodies))}
        for how, texts in answers.items():
            for body, want, text in zip(bodies, wanted, texts):
                at_border = want != text and near(cpu, body, text)
                close += at_border
                passed += want == text or at_border
                failed += want != text and not at_border
                if want != text:
                    print(f"{'a draw at a border' if at_border else 'FAILED'}  {how}: {json.dumps(body)}\n  CPU {want!r}\n  GPU {text!r}")
    finally:
        cpu.close()
        gpu.close()
    print(f"{close} of {2 * len(bodies)} texts part at a draw within {NEAR} of a border")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
