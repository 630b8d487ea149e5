#!/usr/bin/env python3
"""Documents by how well they answer a query: cross-encoders against what transformers computed, a language model that judges in words against its own
logits, and the forms of the protocols. Also vectors of the small encoder that lies in the repository.

usage: test_rerank.py PROGRAM [DATA]
"""
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile

from harness import Server, check, finish

PROGRAM, DATA = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OWN = os.path.join(ROOT, "tests", "golden", "encoders")
FIXTURES = ["bert-cross", "xlm-roberta-cross", "modernbert-cross", "modernbert-cross-cls", "deberta-v2-cross"]
TEMPLATE = ("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]"
            "{% if enable_thinking is defined and not enable_thinking %} {% endif %}{% endif %}")
ASKED = ('[system] Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "yes" or "no".\n'
         "[user] <Instruct>: %s\n<Query>: %s\n<Document>: %s\n[assistant] ")
USUAL = "Given a web search query, retrieve relevant passages that answer the query"


def run(*args, text=None):
    got = subprocess.run([PROGRAM, *args], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8")
    return got.stdout if got.returncode == 0 else f"exit {got.returncode}: {got.stderr[-300:]}"


def near(got, want, what, far=1e-3):
    check(len(got) == len(want) and all(abs(a - b) <= far for a, b in zip(got, want)), f"{what}: {got}, expected {want}")


def by_index(rows, name):
    return [row[name] for row in sorted(rows, key=lambda row: row["index"])]


# ---- cross-encoders ------------------------------------------------------------------------------------------------------

def own_pairs():
    with open(os.path.join(OWN, "bert-cross", "scores.json"), encoding="utf-8") as f:
        given = json.load(f)
    return given["pairs"], given["scores"]


def fixture_pairs(folder):
    with open(os.path.join(folder, "texts.json"), encoding="utf-8") as f:
        pairs = json.load(f)["pairs"]
    with open(os.path.join(folder, "golden.safetensors"), "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header, body = json.loads(f.read(n)), f.read()
    first, last = header["scores"]["data_offsets"]
    return pairs, struct.unpack(f"<{(last - first) // 4}f", body[first:last])


def check_cross(folder, pairs, want, far):
    name = os.path.basename(folder)
    queries, texts = zip(*pairs)
    with Server(PROGRAM, "-m", folder, "--device", "cpu") as s:
        code, _, text = s.request("/v1/score", {"text_1": queries, "text_2": texts})
        got = [d["score"] for d in json.loads(text)["data"]] if code == 200 else []
        near(got, want, f"{name}: scores of pairs, {code} {text[:200]}", far)
        code, _, text = s.request("/v1/rerank", {"query": queries[0], "documents": texts})
        rows = json.loads(text)["results"] if code == 200 else []
        scores = [row["relevance_score"] for row in rows]
        check(len(rows) == len(texts) and scores == sorted(scores, reverse=True), f"{name}: the best first: {code} {text[:200]}")
        check(abs(by_index(rows, "relevance_score")[0] - got[0]) < 1e-7, f"{name}: the same score in a batch of others")
        alone = [json.loads(s.request("/v1/rerank", {"query": queries[0], "documents": [t]})[2])["results"][0]["relevance_score"] for t in texts]
        check(alone == by_index(rows, "relevance_score"), f"{name}: each document alone has the score that it has among others")
    rows = json.loads(run("rerank", "-m", folder, "--device", "cpu", "--json", queries[0], *texts))
    check(by_index(rows, "relevance_score") == alone, f"{name}: the command: {rows}")
    lines = run("rerank", "-m", folder, "--device", "cpu", "--top-n", "2", queries[0], text="\n".join(t.replace("\n", " ") for t in texts)).splitlines()
    check(len(lines) == 2 and lines[0].split()[1] == str(rows[0]["index"]), f"{name}: lines of standard input: {lines}")


def check_forms(folder):
    """Jina's form, that of Text Embeddings Inference, vLLM's scores; what is refused."""
    texts = ["the cat sat on the mat", {"text": "rain"}, "it was gone"]
    plain = ["the cat sat on the mat", "rain", "it was gone"]
    with Server(PROGRAM, "-m", folder, "--device", "cpu") as s:
        def ask(path, want=200, **body):
            code, _, text = s.request(path, body)
            check(code == want, f"{path} {body}: {code} {text[:200]}")
            return json.loads(text)
        for path in ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking", "/v2/rerank"):
            got = ask(path, query="where is the cat", documents=texts)
            check(sorted(row["index"] for row in got["results"]) == [0, 1, 2] and got["usage"]["prompt_tokens"] == got["usage"]["total_tokens"] > 0, f"{path}: {got}")
        got = ask("/rerank", query="where", documents=texts, top_n=2, return_documents=True)["results"]
        check(len(got) == 2 and all(row["document"]["text"] == plain[row["index"]] for row in got), f"two documents with their texts: {got}")
        check(len(ask("/rerank", query="where", documents=texts, top_n=99)["results"]) == 3, "top_n above what there is")
        got = ask("/rerank", query="where", texts=plain, return_text=True)
        check([row["text"] for row in got] == [plain[row["index"]] for row in got] and len(got) == 3, f"a list of scores: {got}")
        many, newer = ask("/score", text_1="where", text_2=plain), ask("/v1/score", queries="where", documents=plain)
        check(many["data"] == newer["data"] and [d["index"] for d in many["data"]] == [0, 1, 2], f"one query and many texts: {many} {newer}")
        for body in ({"documents": []}, {"documents": None}, {"documents": 123}, {"documents": [1]}, {"documents": ["a"], "query": 1}, {"documents": ["a"], "top_n": 0},
                     {"documents": ["a"], "instruction": 1}):
            error = ask("/v1/rerank", 400, **{"query": "a", **body})["error"]
            check(error.get("param") in body, f"{body}: {error}")
        check(ask("/v1/rerank", 400, query="a", documents=["b"], raw_scores=True)["error"]["param"] == "raw_scores", "scores as they are, refused")
        ask("/v1/rerank", query="a", documents=["b"], raw_scores=False)
        ask("/score", 400, text_1=["a", "b"], text_2=["c", "d", "e"])
        long = "cat " * 400
        error = ask("/v1/rerank", 400, query="a", documents=["b", long])["error"]
        check("text 1" in error["message"] and "160" in error["message"], f"a document that is too long: {error}")
        cut = ask("/v1/rerank", query="a", documents=[long], truncate=True)["results"][0]["relevance_score"]
        short = ask("/v1/rerank", query="a", documents=["cat " * 156], truncate=False)["results"][0]["relevance_score"]
        check(cut == short, f"cut to what the model takes: {cut} {short}")
    check("--truncate" in run("embed", "-m", os.path.join(OWN, "bert-st"), "--device", "cpu", long), "a text that is too long for the command")


def check_score_head(scratch):
    """A decoder with a head for one class on its last position. Query and text are one behind the other there: an empty query leaves the text."""
    source, folder = os.path.join(DATA, "golden2", "qwen3-st-last"), os.path.join(scratch, "score")
    shutil.copytree(source, folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(dict(config, architectures=["Qwen3ForSequenceClassification"], sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"}), f)
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header, body = json.loads(f.read(n)), f.read()
    weight = [((i * 37) % 11 - 5) / 8 for i in range(64)]
    header["score.weight"] = {"dtype": "F32", "shape": [1, 64], "data_offsets": [len(body), len(body) + 256]}
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body + struct.pack("<64f", *weight))
    with open(os.path.join(source, "texts.json"), encoding="utf-8") as f:
        texts = json.load(f)["texts"]
    with open(os.path.join(source, "golden.safetensors"), "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header, body = json.loads(f.read(n)), f.read()
    first, last = header["pool_last"]["data_offsets"]
    states = struct.unpack(f"<{(last - first) // 4}f", body[first:last])
    want = [sum(w * x for w, x in zip(weight, states[64 * i:64 * i + 64])) for i in range(len(texts))]
    rows = run("rerank", "-m", folder, "--device", "cpu", "--precision", "exact", "--json", "", *texts)
    near(by_index(json.loads(rows), "relevance_score") if rows.startswith("[") else rows, want, "a decoder's head, as it is", 1e-4)


# ---- a judge in words ----------------------------------------------------------------------------------------------------

def make_judge(folder):
    """The built-in model with two tokens called yes and no, and a chat template."""
    shutil.copytree(os.path.join(ROOT, "models", "tiny"), folder)
    path = os.path.join(folder, "tokenizer.json")
    with open(path, encoding="utf-8") as f:
        tokenizer = json.load(f)
    model = tokenizer["model"]
    for old, new in (("Yes", "yes"), ("No", "no")):
        model["vocab"][new] = model["vocab"].pop(old)
        model["merges"] = [m for m in model["merges"] if old not in "".join(m if isinstance(m, list) else m.split(" "))]
    with open(path, "w", encoding="utf-8") as f:
        json.dump(tokenizer, f)
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(TEMPLATE)
    return model["vocab"]["yes"], model["vocab"]["no"]


def logit_share(folder, words, text, scratch):
    """The share of yes at the end of a text, from the logits of all tokens."""
    ids = json.loads(run("tokenize", "-m", folder, "--json", "-p", text))
    ids = ids["ids"] if isinstance(ids, dict) else ids
    out = os.path.join(scratch, "logits")
    run("logits", "-m", folder, "--device", "cpu", "--precision", "exact", "--tokens", ",".join(map(str, ids)), "--out", out)
    with open(out, "rb") as f:
        row = f.read()[-4096 * 4:]
    yes, no = (struct.unpack_from("<f", row, 4 * w)[0] for w in words)
    return 1 / (1 + math.exp(no - yes))


def check_words(scratch):
    folder = os.path.join(scratch, "judge")
    words = make_judge(folder)
    query, texts = "where is the cat?", ["The cat is on the mat.", "It rains."]
    want = [logit_share(folder, words, ASKED % (USUAL, query, t), scratch) for t in texts]
    other = logit_share(folder, words, ASKED % ("Find rain", query, texts[1]), scratch)
    with Server(PROGRAM, "-m", folder, "--device", "cpu", "--precision", "exact") as s:
        code, _, text = s.request("/v1/rerank", {"query": query, "documents": texts})
        near(by_index(json.loads(text)["results"], "relevance_score") if code == 200 else [], want, f"yes against no: {code} {text[:200]}", 1e-5)
        code, _, text = s.request("/v1/rerank", {"query": query, "documents": texts[1:], "instruction": "Find rain"})
        near([json.loads(text)["results"][0]["relevance_score"]] if code == 200 else [], [other], f"with an instruction: {code} {text[:200]}", 1e-5)
        check(s.request("/v1/completions", {"prompt": "Once", "max_tokens": 2})[0] == 200, "and it writes text")
    rows = json.loads(run("rerank", "-m", folder, "--device", "cpu", "--precision", "exact", "--json", "--instruction", "Find rain", query, texts[1]))
    near([rows[0]["relevance_score"]], [other], "the command with an instruction", 1e-5)


def check_refusals():
    for folder, words in ((os.path.join(OWN, "bert-st"), "no head for judging"), ("built-in", "")):
        with Server(PROGRAM, "-m", folder, "--device", "cpu") as s:
            for path, body in (("/rerank", {"query": "a", "documents": ["b"]}), ("/score", {"text_1": "a", "text_2": "b"})):
                code, _, text = s.request(path, body)
                check(code == 501 and "cannot rank" in text and words in text, f"{folder} {path}: {code} {text}")
    check(run("rerank", "-m", os.path.join(OWN, "bert-st"), "a", "b").startswith("exit 1"), "the command with a model that cannot")


def check_vectors():
    """The small folder of sentence-transformers: prompts that the pooling leaves out, a dense layer; an empty text."""
    with open(os.path.join(OWN, "bert-st", "vectors.json"), encoding="utf-8") as f:
        given = json.load(f)
    for prompt, want in given["vectors"].items():
        got = [json.loads(line) for line in run("embed", "-m", os.path.join(OWN, "bert-st"), "--device", "cpu", "--prompt-name", prompt, *given["texts"]).splitlines()]
        worst = min((sum(a * b for a, b in zip(v, w)) for v, w in zip(got, want)), default=-1)
        check(len(got) == len(want) and worst >= 0.99999, f"vectors, prompt {prompt!r}: {worst}")


def main():
    check_vectors()
    check_cross(os.path.join(OWN, "bert-cross"), *own_pairs(), 1e-4)
    check_forms(os.path.join(OWN, "bert-cross"))
    check_refusals()
    with tempfile.TemporaryDirectory() as scratch:
        check_words(scratch)
        if DATA:
            check_score_head(scratch)
    for name in FIXTURES if DATA else ():
        folder = os.path.join(DATA, "golden2", name)
        check_cross(folder, *fixture_pairs(folder), 2e-3)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
