#!/usr/bin/env python3
"""Random conversations through the published chat templates of DATA, rendered by mlxcel and by Jinja2: the same text, or the same error.

Conversations have roles in any order, contents that are texts, parts or nothing, thoughts, calls of tools and their answers, tools with
random schemas, and the switches that templates ask for.

usage: fuzz_chat.py PROGRAM DATA [--count N] [--seed N]     N conversations for each template; last line: "N passed, N failed"
"""
import argparse
import json
import random
import subprocess
import sys
import warnings
from pathlib import Path

import template_oracle

TEXTS = ["Hi", "", "  padded \n", "Be nice.", "<think>\nhm\n</think>\n\nYes", "x</think>y", "a<|im_end|>b", "[INST] q [/INST]", "{\"a\": 1}", "\u00e9\u4e2d\U0001F600\u200d",
         "line1\nline2\r\n\tx", "'q' \"d\" \\n <b>&amp;", "/no_think", "/think", "[TOOL_CALLS]", "<tool_call>", "1", "null", "\u2028\u0085\u00a0x"]
NUMBERS = [0, 1, -5, 3.5, 1e20, 1e-7, True, False, None, 123456789012]
TYPES = ["string", "integer", "number", "boolean", "array", "object", ["string", "null"], None]
PARTS = [{"type": "image"}, {"type": "image_url", "image_url": {"url": "x"}}, {"type": "video"}, {"text": "t"}]
SWITCHES = {"enable_thinking": [True, False], "thinking": [True, False], "date_string": ["26 Jul 2024"], "reasoning_effort": ["low", "high"],
            "builtin_tools": [["a"]], "tools_in_user_message": [False], "model_identity": ["M"], "keep_past_thinking": [True]}


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def maybe(self, chance):
        return self.r.random() < chance

    def text(self):
        return self.r.choice(TEXTS)

    def value(self, depth=2):
        kind = self.r.randrange(9)
        if kind == 3:
            return self.r.choice(NUMBERS)
        if depth and kind == 4:
            return [self.value(depth - 1) for _ in range(self.r.randrange(3))]
        if depth and kind == 5:
            return {self.r.choice(["a", "b", "\u00e9", "name", "type"]): self.value(depth - 1) for _ in range(self.r.randrange(3))}
        return self.text()

    def schema(self, depth=2):
        kind = self.r.choice(TYPES)
        s = {"type": kind} if kind else {}
        if self.maybe(0.5):
            s["description"] = self.text()
        if self.maybe(0.2):
            s["enum"] = ["a", "b", 1, None][:self.r.randrange(5)]
        if self.maybe(0.15):
            s["default"] = self.value(1)
        if kind == "array" and depth and self.maybe(0.8):
            s["items"] = self.schema(depth - 1)
        if kind == "object" and depth:
            s["properties"] = {n: self.schema(depth - 1) for n in self.r.sample(["a", "b", "loc_\u00e9", "unit"], self.r.randrange(4))}
            s["required"] = list(s["properties"])[:self.r.randrange(3)]
        if self.maybe(0.1):
            s["anyOf"] = [self.schema(0), self.schema(0)]
        return s

    def tool(self):
        f = {"name": self.r.choice(["get_weather", "f", "s\u00f6ng"])}
        if self.maybe(0.8):
            f["description"] = self.text()
        if self.maybe(0.9):
            properties = {n: self.schema() for n in self.r.sample(["location", "unit", "days", "q"], self.r.randrange(4))}
            f["parameters"] = {"type": "object", "properties": properties, "required": list(properties)[:2]}
        if self.maybe(0.2):
            f["return"] = {"type": "string", "description": "r"}
        return {"type": "function", "function": f} if self.maybe(0.9) else f

    def content(self):
        kind = self.r.random()
        if kind < 0.65:
            return self.text()
        if kind < 0.75:
            return None
        if kind < 0.95:
            return [{"type": "text", "text": self.text()} if self.maybe(0.5) else self.r.choice(PARTS) for _ in range(self.r.randrange(4))]
        return self.value()

    def call(self):
        arguments = {n: self.value() for n in self.r.sample(["location", "unit", "days"], self.r.randrange(3))}
        f = {"name": self.r.choice(["get_weather", "f"]), "arguments": json.dumps(arguments) if self.maybe(0.2) else arguments}
        if self.maybe(0.1):
            return f
        return {"type": "function", "function": f, **({"id": self.r.choice(["call_1", "abcdefghi"])} if self.maybe(0.7) else {})}

    def message(self, role):
        m = {"role": role, "content": self.content()}
        if role == "assistant" and self.maybe(0.3):
            m["tool_calls"] = [self.call() for _ in range(self.r.randrange(3))]
            if self.maybe(0.3):
                del m["content"]
        if role == "assistant" and self.maybe(0.3):
            m[self.r.choice(["reasoning_content", "thinking"])] = self.text()
        if role == "tool" and self.maybe(0.6):
            m["tool_call_id"] = self.r.choice(["call_1", "abcdefghi"])
        if self.maybe(0.5 if role == "tool" else 0.05):
            m["name"] = "f"
        return m

    def conversation(self):
        roles = [self.r.choice(["system", "system", "developer"])] if self.maybe(0.4) else []
        follows = {"user": ["assistant"], "assistant": ["user", "user", "tool"], "tool": ["assistant", "tool"]}
        role = "user"
        for _ in range(self.r.randrange(6)):
            if self.maybe(0.12):
                role = self.r.choice(["system", "tool", "user", "assistant", "ipython", "weird"])
            roles.append(role)
            role = self.r.choice(follows.get(role, ["user"]))
        c = {"messages": [self.message(role) for role in roles]}
        if self.maybe(0.7):
            c["add_generation_prompt"] = self.maybe(0.7)
        if self.maybe(0.35):
            c["tools"] = [self.tool() for _ in range(self.r.randrange(3))]
        if self.maybe(0.05):
            c["documents"] = [{"title": "T", "text": self.text()}]
        return {**c, **{k: self.r.choice(v) for k, v in SWITCHES.items() if self.maybe(0.1)}}


def reference(template, special, given):
    try:
        return {"ok": template.render(**{"tools": None, "documents": None, **(special or {}), **given})}
    except RecursionError:  # its words depend on where Python was
        return {"error": "RecursionError"}
    except Exception as e:  # whatever a template can raise is a result
        return {"error": str(e)}


def same(mine, want):
    """Error messages begin with the place here, and long ones are cut."""
    return mine == want or ("error" in mine and "error" in want and want["error"][:60] in mine["error"])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("data", type=Path)
    p.add_argument("--count", type=int, default=150)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    warnings.simplefilter("ignore")
    maker, passed, failed = Maker(args.seed), 0, 0
    for row in json.loads((args.data / "text" / "chat_golden.json").read_text(encoding="utf-8"))["templates"]:
        inputs = [maker.conversation() for _ in range(args.count)]
        lines = "\n".join(json.dumps({"template": row["template"], "special": row["special"], "input": i}) for i in inputs)
        done = subprocess.run([args.program, "template", "--jsonl", "--now", template_oracle.NOW.isoformat()], input=lines,
                              capture_output=True, text=True, encoding="utf-8", check=False)
        answers = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
        template = template_oracle.ENV.from_string(row["template"])
        bad = [(i, a, w) for i, a, w in ((i, a, reference(template, row["special"], i)) for i, a in zip(inputs, answers)) if not same(a, w)]
        for given, mine, want in bad[:2]:
            print(f"FAILED {row['name']}\n  input  {json.dumps(given)}\n  Jinja2 {want}\n  mlxcel {mine}")
        missing = len(inputs) - len(answers)
        if missing:
            print(f"FAILED {row['name']}: {len(answers)} answers to {len(inputs)} lines")
        failed += len(bad) + missing
        passed += len(answers) - len(bad)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
