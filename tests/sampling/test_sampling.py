#!/usr/bin/env python3
"""The sampler against distributions that are computed here, by the definitions and not by the sampler's code.

For each method alone and for chains of them: 100,000 draws of build/.../sampler_draws (or as many as --draws says), compared
with the distribution by Pearson's chi-square (a token of probability 0 must never come); the sum of squares may be as far out as
happens once in a million tries. The seeds are always the same, so a run ends as the last one did. Each comparison is tried with a
distribution that is a little wrong, too, and must then fail. Every parameter of sampling that docs/server.md names has a row.
Mirostat's memory is followed token by token.

usage: test_sampling.py DRAWS_PROGRAM [--draws N]      last line: "N passed, N failed"
"""
import argparse
import json
import math
import os
import random
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counting import check, finish  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
# Parameters that docs/server.md gives by their beginning, or under another name than the sampler's.
FAMILIES = {"xtc_*": ["xtc_probability", "xtc_threshold"], "mirostat*": ["mirostat", "mirostat_tau", "mirostat_eta"],
            "dry_*": ["dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n"],
            "dynatemp_*": ["dynatemp_range", "dynatemp_exponent"], "repetition_context_size": ["repeat_last_n"]}
SAMPLING_FIELDS = ("`temperature`", "`logit_bias`")  # the list in docs/server.md begins and ends with these


# ---- the definitions -------------------------------------------------------------------------------------------------


def softmax(logits, temperature=1.0):
    """Token -> probability, of the tokens that are left."""
    best = max(logits.values())
    p = {t: math.exp((x - best) / temperature) for t, x in logits.items()}
    total = sum(p.values())
    return {t: x / total for t, x in p.items()}


def by_rank(p):
    return sorted(p, key=lambda t: (-p[t], t))


def nucleus(p, ranked, share):
    kept, held = [], 0.0
    for t in ranked:
        kept.append(t)
        held += p[t]
        if held >= share:
            break
    return kept


def penalties(logits, case):
    history, n_prompt = case["history"], case["n_prompt"]
    back = case.get("repeat_last_n", -1)
    seen = set(history if back < 0 else history[len(history) - back:] if back else [])
    factor = case.get("repetition_penalty", 1)
    for t in seen:
        if t in logits:
            logits[t] = logits[t] / factor if logits[t] > 0 else logits[t] * factor
    for t in set(history[n_prompt:]):
        if t in logits:
            logits[t] -= history[n_prompt:].count(t) * case.get("frequency_penalty", 0) + case.get("presence_penalty", 0)


def dry(logits, case):
    """For every token: the longest end of the history that stood before an earlier occurrence of it."""
    history, back = case["history"], case.get("dry_penalty_last_n", -1)
    window = history if back < 0 else history[len(history) - back:] if back else []
    longest = {}
    for i in range(1, len(window)):
        for n in range(1, i + 1):
            end = window[len(window) - n:]
            if end[0] in case.get("breakers", []) or window[i - n:i] != end:
                break
            longest[window[i]] = max(longest.get(window[i], 0), n)
    allowed = case.get("dry_allowed_length", 2)
    for t, n in longest.items():
        if n >= allowed and t in logits:
            logits[t] -= case["dry_multiplier"] * case.get("dry_base", 1.75) ** (n - allowed)


def keep(logits, tokens):
    return {t: logits[t] for t in tokens}


def temperature_of(logits, case):
    t, spread = case["temperature"], case.get("dynatemp_range", 0)
    if spread <= 0 or len(logits) < 2:
        return t
    p = softmax(logits)
    entropy = -sum(x * math.log(x) for x in p.values() if x > 0)
    low = max(0.0, t - spread)
    return low + (t + spread - low) * (entropy / math.log(len(p))) ** case.get("dynatemp_exponent", 1)


def mirostat_kept(p, case, mu, vocab):
    ranked = by_rank(p)
    if case["mirostat"] == 2:
        kept = [t for t in ranked if -math.log2(p[t]) <= mu]
        return kept or ranked[:1]
    tb = tt = 0.0
    for i in range(min(100, len(ranked)) - 1):
        t, b = math.log((i + 2) / (i + 1)), math.log(p[ranked[i]] / p[ranked[i + 1]])
        tb, tt = tb + t * b, tt + t * t
    s = tb / tt
    k = (((s - 1) * 2**mu) / (1 - vocab ** -(s - 1))) ** (1 / s)
    return ranked[:max(1, min(int(k), len(ranked)))]


def renormal(p, tokens):
    total = sum(p[t] for t in tokens)
    return {t: p[t] / total for t in tokens}


def distribution(case):
    """Token -> probability of the next token."""
    logits = {t: float(x) for t, x in enumerate(case["logits"]) if x is not None}
    for t, by in case.get("logit_bias", []):
        if t in logits:
            logits[t] += by
    penalties(logits, case)
    if case.get("dry_multiplier", 0) > 0:
        dry(logits, case)
    if case["temperature"] == 0:
        return {max(logits, key=lambda t: (logits[t], -t)): 1.0}
    if case.get("mirostat"):
        p = softmax(logits, temperature_of(logits, case))
        return renormal(p, mirostat_kept(p, case, case["mu"], len(case["logits"])))
    if 0 < case.get("top_k", 0) < len(logits):
        logits = keep(logits, by_rank(logits)[:case["top_k"]])
    if case.get("typical_p", 1) < 1:
        p = softmax(logits)
        entropy = -sum(x * math.log(x) for x in p.values() if x > 0)
        logits = keep(logits, nucleus(p, sorted(p, key=lambda t: (abs(-math.log(p[t]) - entropy), t)), case["typical_p"]))
    if case.get("top_p", 1) < 1:
        p = softmax(logits)
        logits = keep(logits, nucleus(p, by_rank(p), case["top_p"]))
    if case.get("min_p", 0) > 0:
        p = softmax(logits)
        bar = case["min_p"] * max(p.values())
        logits = keep(logits, [t for t in p if p[t] >= bar])
    chance = case.get("xtc_probability", 0) if case.get("xtc_threshold", 0.1) <= 0.5 else 0
    p = softmax(logits)
    above = [t for t in by_rank(p) if p[t] >= case.get("xtc_threshold", 0.1)]
    rest = keep(logits, [t for t in logits if t not in above[:-1]])
    mixed = {}
    for weight, left in ((1 - chance, logits), (chance, rest)):
        for t, x in softmax(left, temperature_of(left, case)).items():
            mixed[t] = mixed.get(t, 0) + weight * x
    return mixed


# ---- the comparison --------------------------------------------------------------------------------------------------


def chi_square_ok(counts, p):
    """Tokens expected less than 5 times are taken together. By Wilson and Hilferty: 4.9 standard deviations."""
    n, sum_squares, cells, rare, n_rare = sum(counts), 0.0, 0, 0.0, 0
    for t, count in enumerate(counts):
        want = p.get(t, 0.0) * n
        if p.get(t, 0.0) == 0:
            if count:
                return False, f"token {t} came {count} times and cannot"
        elif want < 5:
            rare, n_rare = rare + want, n_rare + count
        else:
            sum_squares, cells = sum_squares + (count - want) ** 2 / want, cells + 1
    if rare >= 5:
        sum_squares, cells = sum_squares + (n_rare - rare) ** 2 / rare, cells + 1
    freedom = cells - 1
    if freedom == 0:
        return True, "one token"
    z = ((sum_squares / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return z < 4.9, f"chi-square {sum_squares:.1f} of {freedom}, z {z:.2f}"


def make_cases():
    rng = random.Random(5)
    base = {"logits": [round(rng.gauss(0, 2), 4) for _ in range(40)], "history": [3, 9, 4, 17, 3, 9, 4, 22, 5, 3, 9], "n_prompt": 4,
            "temperature": 1}
    base["logits"][7] = base["logits"][21] = None  # masked
    long = dict(base, logits=[round(2.2 * math.log(120 / (i + 1)) + rng.gauss(0, 0.1), 4) for i in range(120)], mu=4.5)
    methods = {
        "temperature 1": {}, "temperature 0.5": {"temperature": 0.5}, "temperature 1.7": {"temperature": 1.7},
        "greedy": {"temperature": 0}, "top-k 5": {"top_k": 5}, "top-k 1": {"top_k": 1}, "top-k more than there are": {"top_k": 1000},
        "top-p 0.8": {"top_p": 0.8}, "top-p 0.3": {"top_p": 0.3}, "min-p 0.1": {"min_p": 0.1}, "min-p 1": {"min_p": 1},
        "typical 0.7": {"typical_p": 0.7}, "typical 0.2": {"typical_p": 0.2},
        "xtc always": {"xtc_probability": 1, "xtc_threshold": 0.08}, "xtc half": {"xtc_probability": 0.5, "xtc_threshold": 0.05},
        "xtc off by threshold": {"xtc_probability": 1, "xtc_threshold": 0.6},
        "repetition 1.6": {"repetition_penalty": 1.6}, "repetition 0.7": {"repetition_penalty": 0.7},
        "repetition, last 3": {"repetition_penalty": 2, "repeat_last_n": 3}, "repetition, last 0": {"repetition_penalty": 2, "repeat_last_n": 0},
        "frequency": {"frequency_penalty": 0.7}, "presence": {"presence_penalty": 1.1}, "negative presence": {"presence_penalty": -1},
        "frequency, presence, repetition": {"frequency_penalty": 0.3, "presence_penalty": 0.4, "repetition_penalty": 1.2},
        "dry": {"dry_multiplier": 0.8}, "dry, allowed 1": {"dry_multiplier": 0.5, "dry_allowed_length": 1, "dry_base": 1.3},
        "dry, last 7": {"dry_multiplier": 0.8, "dry_penalty_last_n": 7}, "dry, last 0": {"dry_multiplier": 0.8, "dry_penalty_last_n": 0},
        "dry, a breaker": {"dry_multiplier": 0.8, "breakers": [3]}, "dry, the last token breaks": {"dry_multiplier": 0.8, "breakers": [9]},
        "dynamic temperature": {"dynatemp_range": 0.5}, "dynamic temperature, exponent": {"temperature": 0.8, "dynatemp_range": 0.9, "dynatemp_exponent": 2},
        "bias": {"logit_bias": [[4, 2.5], [30, -100], [1, -0.5]]},
        "chain": {"temperature": 0.8, "top_k": 25, "typical_p": 0.95, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.1},
        "chain with everything": {"temperature": 1.2, "top_k": 30, "typical_p": 0.97, "top_p": 0.95, "min_p": 0.01, "xtc_probability": 0.4,
                                  "xtc_threshold": 0.1, "repetition_penalty": 1.3, "frequency_penalty": 0.2, "presence_penalty": 0.1,
                                  "dry_multiplier": 0.6, "dynatemp_range": 0.3, "logit_bias": [[2, 1.5]]},
    }
    for name, params in methods.items():
        yield name, dict(base, **params)
    wide = dict(base, logits=[round(rng.gauss(0, 1.5), 4) for _ in range(1500)])  # several groups and spans of the row
    for i in range(40):
        wide["logits"][37 * i] += 4
    for name in ("temperature 1", "temperature 0.5", "top-p 0.8", "typical 0.7", "min-p 0.1", "xtc half", "dynamic temperature", "repetition 1.6",
                 "chain", "chain with everything"):
        yield f"{name}, of 1,500", dict(wide, **methods[name])
    yield "top-k 300, of 1,500", dict(wide, top_k=300)
    yield "mirostat 1, of 1,500", dict(wide, mirostat=1, mu=6.0)
    yield "mirostat 2, of 1,500", dict(wide, mirostat=2, mu=8.0)
    for version in (1, 2):
        for temperature, mu in ((1, 4.5), (1, 1.0), (0.7, 6.0)):
            yield f"mirostat {version}, temperature {temperature}, mu {mu}", dict(long, mirostat=version, temperature=temperature, mu=mu)


class Draws:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, case):
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def follow_mirostat(draws):
    """Every token is one that may come, and mu moves by the surprise of the token."""
    rng = random.Random(9)
    logits = [round(1.1 * math.log(200 / (i + 1)) + rng.gauss(0, 0.2), 4) for i in range(200)]
    for version in (1, 2):
        case = {"logits": logits, "history": [1], "n_prompt": 1, "temperature": 1, "mirostat": version, "mirostat_tau": 3, "mirostat_eta": 0.2}
        mu, p, surprises, ok = 6.0, softmax(dict(enumerate(logits))), [], True
        for token, new_mu in draws.ask(dict(case, sequence=2000)):
            kept = renormal(p, mirostat_kept(p, case, mu, len(logits)))
            ok = ok and token in kept
            if not ok:
                break
            surprises.append(-math.log2(kept[token]))
            mu -= 0.2 * (surprises[-1] - 3)
            ok = abs(mu - new_mu) < 1e-3
            mu = new_mu
        check(ok, f"mirostat {version}: token {token}, mu {mu} and {new_mu}")
        mean = sum(surprises[200:]) / max(1, len(surprises[200:]))
        check(abs(mean - 3) < 0.15, f"mirostat {version}: mean surprise {mean:.3f}, wanted 3")


def with_a_fault(p, n):
    """Every second token a little too likely, by 6 % for a million draws; of one token: another one."""
    if len(p) == 1:
        return {next(iter(p)) + 1: 1.0}
    odd = {t: x * (1 + 60 / math.sqrt(n)) if i % 2 else x for i, (t, x) in enumerate((t, p[t]) for t in by_rank(p))}
    return renormal(odd, odd)


def documented_parameters():
    """The names in docs/server.md, from temperature to logit_bias."""
    with open(os.path.join(ROOT, "docs", "server.md"), encoding="utf-8") as f:
        text = f.read()
    first = text.index(SAMPLING_FIELDS[0], text.index("Fields of both completions"))
    names = re.findall(r"`([a-z_*]+)`", text[first:text.index(SAMPLING_FIELDS[1], first) + len(SAMPLING_FIELDS[1])])
    return [one for name in names for one in FAMILIES.get(name, [name])]


def check_rows(cases):
    """A parameter has a row where a case sets it to something else than most do; the memory of mirostat is followed apart."""
    followed = {"mirostat_tau", "mirostat_eta"}
    for name in documented_parameters():
        check(name in followed or any(name in case for _, case in cases), f"no row for {name} of docs/server.md")


def compare(draws, name, case, n):
    n = n // 4 if len(case["logits"]) > 1000 else n
    counts = draws.ask(dict(case, draws=n))
    want = distribution(case)
    ok, why = chi_square_ok(counts, want) if isinstance(counts, list) else (False, counts)
    check(ok, f"{name}: {why}")
    if isinstance(counts, list):
        ok, why = chi_square_ok(counts, with_a_fault(want, n))
        check(not ok, f"{name}: a fault is not seen: {why}")


def main():
    args = argparse.ArgumentParser()
    args.add_argument("program")
    args.add_argument("--draws", type=int, default=100_000)
    args = args.parse_args()
    draws = Draws(args.program)
    cases = list(make_cases())
    check_rows(cases)
    for name, case in cases:
        compare(draws, name, case, args.draws)
    positions = dict(logits=[0.3, 1.2, -0.7, 2.0, None, 0.1], history=[0], n_prompt=0, temperature=1)
    ok, why = chi_square_ok(draws.ask(dict(positions, draws=args.draws, by="position")), distribution(positions))
    check(ok, f"over positions: {why}")
    for other in ("frequency_penalty", "top_k"):
        check(draws.ask(dict(positions, draws=100, **{other: 0})) == draws.ask(dict(positions, draws=100)), f"{other} 0 changes nothing")
    check("no numbers" in draws.ask(dict(positions, logits=[0, "nan", 1], draws=1)), "NaN is an error")
    check("all are masked" in draws.ask(dict(positions, logits=[None, None], draws=1)), "nothing left is an error")
    follow_mirostat(draws)
    check(draws.close() == 0, "the program ended well")
    finish()


sys.exit(main())
