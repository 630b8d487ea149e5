"""The Python package, as it was installed. For pytest; run as a program it needs nothing but Python. Functions that begin with test_ are the tests."""
import asyncio
import ctypes
import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import traceback
import urllib.error
import urllib.request

import mlxcel
from mlxcel import Error, Model, Server, _native

MODEL = Model(device="cpu", threads=1, parallel=4)
ABI = os.environ.get("MLXCEL_ABI_LIST", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../library/abi.txt"))
# shows how calls are written
CALLS = ("{% if tools %}<tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>{{ tools | tojson }}{% endif %}"
         "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:")
HANG = 300  # seconds after which a server that does not answer counts as hanging
STORY = {"max_tokens": 24, "temperature": 0}


def raises(function, *args, **options):
    try:
        function(*args, **options)
    except (Error, ValueError) as error:
        return error
    raise AssertionError("nothing was raised")


def test_structs_are_those_of_the_header():
    want = {}
    for line in open(ABI):
        kind, name, *numbers = line.split()
        if kind in ("struct", "field"):
            want[name] = [int(x) for x in numbers]
    names = {"RawError": "error", "RawDevice": "device", "RawStore": "store", "RawModelOptions": "model_options", "RawModelInfo": "model_info",
             "RawMessage": "message", "RawChat": "chat", "RawEvent": "event", "RawParameter": "parameter", "RawBias": "bias",
             "RawJobOptions": "job_options", "RawEmbedOptions": "embed_options", "RawSetting": "setting", "RawServerOptions": "server_options"}
    assert sorted(names.values()) == sorted(k[7:] for k in want if "." not in k)
    for python, c_name in names.items():
        struct = getattr(_native, python)
        assert [ctypes.sizeof(struct)] == want[f"mlxcel_{c_name}"], python
        got = {f"mlxcel_{c_name}.{name}": [getattr(struct, name).offset, getattr(struct, name).size] for name, _ in struct._fields_}
        assert got == {k: v for k, v in want.items() if k.startswith(f"mlxcel_{c_name}.")}, python


def test_stream_is_the_whole_text():
    stream = MODEL.generate("Once upon a time", **STORY)
    pieces = list(stream)
    assert len(pieces) > 3 and "".join(pieces) == MODEL.generate("Once upon a time", **STORY).text()
    assert stream.finish == "length" and stream.usage.n_new == 24 and list(stream) == []


def test_chat():
    text = MODEL.chat("Tell me a story", max_tokens=20, seed=1).text()
    assert text and text == MODEL.chat([{"role": "user", "content": "Tell me a story"}], max_tokens=20, seed=1).text()
    assert "Tell me a story" in MODEL.render("Tell me a story")


def test_dropped_streams_are_cancelled():
    with Model(device="cpu", threads=1, parallel=1) as model:  # one place: the second answer comes only if the first one gave it up
        stream = model.generate("Once", ignore_end=True)
        next(iter(stream))
        del stream
        gc.collect()
        assert model.generate("Once", **STORY).text()


def test_cancel_from_another_thread():
    stream = MODEL.generate("Once", ignore_end=True)
    threading.Timer(0.05, stream.cancel).start()
    stream.text()
    assert stream.finish == "cancelled"


def test_python_runs_while_the_library_computes():
    counted, stream = [0], MODEL.generate("Once upon a time", max_tokens=100, ignore_end=True)
    reader = threading.Thread(target=stream.text)
    reader.start()
    while reader.is_alive():
        counted[0] += 1
    assert counted[0] > 100


def test_many_at_once():
    prompts = ["Once upon a time", "The dog", "She", "One day a big", "Tim had"]
    alone = [MODEL.generate(p, **STORY).text() for p in prompts]
    streams = [MODEL.generate(p, **STORY) for p in prompts]
    assert [s.text() for s in streams] == alone


def test_asyncio():
    async def one(prompt):
        return "".join([piece async for piece in MODEL.generate(prompt, **STORY)])

    async def both():
        return await asyncio.gather(one("The dog"), one("She"))
    assert asyncio.run(both()) == [MODEL.generate(p, **STORY).text() for p in ("The dog", "She")]

    async def cut_short():
        n_read, stream = [0], MODEL.generate("Once", ignore_end=True)

        async def read():
            async for _ in stream:
                n_read[0] += 1
        task = asyncio.ensure_future(read())
        while not stream.finish and n_read[0] < 5:
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return stream.finish
    assert asyncio.run(cut_short()) == "cancelled"


def test_forms():
    assert MODEL.generate("Yes or no: ", regex="(yes|no)", temperature=0).text() in ("yes", "no")
    assert json.loads(MODEL.generate("A colour: ", json_schema={"enum": ["red", "blue"]}, temperature=0).text()) in ("red", "blue")


def test_calls():
    """Calls that must be made are made, with arguments by the tool's schema."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in ("first", "second")]
    with Model(device="cpu", threads=1, parallel=2, chat_template=CALLS) as model:
        assert model.info.has_tools
        for choice, names in (("required", ("first", "second")), ("second", ("second",))):
            stream = model.chat("Hi", tools=tools, tool_choice=choice, one_call=True, max_tokens=300, seed=5)
            kinds = [e.kind for e in stream.events()]
            assert stream.finish == "stop" and kinds[0] == "call" and kinds[-2:] == ["call_end", "end"], kinds
            assert [c.name in names for c in stream.calls] == [True] and 1 <= json.loads(stream.calls[0].arguments)["n"] <= 9
        assert "third" in str(raises(model.chat, "Hi", tools=tools, tool_choice="third"))


def test_download():
    """From a hub on this machine: the folder is the hub's, progress is told, the model answers by its name."""
    if not os.environ.get("MLXCEL_TEST_HUB"):
        return
    sys.path.insert(0, os.environ["MLXCEL_TEST_HUB"])
    from fakehub import Hub
    hub, kept, told = Hub(), dict(os.environ), []
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "source")
        subprocess.run([sys.executable, "-m", "mlxcel", "synth", "--shape", "tiny", "-o", source], check=True, capture_output=True)
        hub.add("acme/tiny", source)
        os.environ.update(HF_ENDPOINT=hub.url, MLXCEL_MODELS_DIR=os.path.join(folder, "models"), HF_HOME=os.path.join(folder, "hf"))
        try:
            assert raises(mlxcel.download, "acme/none").name == "not found"
            stopped = raises(mlxcel.download, "acme/tiny", progress=lambda *_: False)
            assert stopped.name == "cancelled", stopped
            path = mlxcel.download("acme/tiny", progress=lambda *args: told.append(args))
            for name in os.listdir(source):
                assert open(os.path.join(source, name), "rb").read() == open(os.path.join(path, name), "rb").read(), name
            assert told and {t[0] for t in told} == {"download"} and told[-1][1] == told[-1][2]
            with Model("acme/tiny", device="cpu", threads=1) as model, Model(source, device="cpu", threads=1) as same:
                assert model.info.path == path and model.generate("Hi", **STORY).text() == same.generate("Hi", **STORY).text()
        finally:
            os.environ.clear()
            os.environ.update(kept)
            hub.close()


def post(url, body, key=None):
    """The status and the answer."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=HANG) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_server():
    """Two at once, each with its own settings; the text is that of a stream."""
    body = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
    with Server(threads=1, parallel=2, api_key=["one", "two"]) as first, Server("built-in", threads=1, alias="teller") as second:
        status, answer = post(first.url + "/v1/completions", body, "two")
        assert status == 200 and answer["choices"][0]["text"] == MODEL.generate("Once upon a time", **STORY).text()
        assert post(first.url + "/v1/completions", body)[0] == 401 and first.port != second.port
        status, answer = post(second.url + "/v1/completions", body)
        assert status == 200 and answer["model"] == "teller", answer
        assert str(first.port) in str(raises(Server, port=first.port, threads=1))
    first.close()
    try:
        urllib.request.urlopen(first.url, timeout=HANG).close()
    except urllib.error.URLError:
        return
    raise AssertionError("a server that was closed still answers")


def test_server_refuses():
    assert "ctx-siz" in str(raises(Server, ctx_siz=7))
    assert "ctx-size" in str(raises(Server, ctx_size="many"))
    assert "log-level" in str(raises(Server, log_level="debug"))
    assert "/no/such/model" in str(raises(Server, "/no/such/model"))
    assert "port" in str(raises(Server, port=70000))
    assert "ssl" in str(raises(Server, ssl_cert_file="/no/such/file"))
    assert "nowhere" in str(raises(Server, host="nowhere.invalid", threads=1))


def test_server_drains():
    """What runs when a server is told to end is answered whole."""
    got, server = [], Server(threads=1, parallel=2)
    body = {"prompt": "Once", "max_tokens": 300, "temperature": 0, "ignore_eos": True}
    reader = threading.Thread(target=lambda: got.append(post(server.url + "/v1/completions", body)))
    reader.start()
    while not any(slot["is_processing"] for slot in json.loads(urllib.request.urlopen(server.url + "/slots", timeout=HANG).read())) and not got:
        pass
    server.close()
    reader.join()
    assert got[0][0] == 200 and got[0][1]["usage"]["completion_tokens"] == 300, got


def test_events():
    stream = MODEL.generate("Once", logprobs=2, progress=True, **STORY)
    events = list(stream.events())
    tokens = [e for e in events if e.kind == "tokens"]
    assert sum(len(e.tokens) for e in tokens) == 24 and all(len(t) == 2 for e in tokens for t in e.tops)
    assert events[-1].kind == "end" and any(e.kind == "progress" for e in events)


def test_text_and_tokens():
    tokens = MODEL.tokenize("Lily saw a cat.")
    assert MODEL.detokenize(tokens) == "Lily saw a cat."
    assert MODEL.generate(tokens, **STORY).text() == MODEL.generate(MODEL.tokenize("Lily saw a cat."), **STORY).text()


def test_numbers():
    one, many = MODEL.embed("A cat."), MODEL.embed(["A cat.", "The dog ran."])
    assert [float(x) for x in one] == [float(x) for x in many[0]] and len(many) == 2
    assert abs(sum(float(x) ** 2 for x in one) - 1) < 1e-4 and len(one) == MODEL.info.width
    tokens = MODEL.tokenize("Once upon a time there was a little girl.")
    scores, logits = MODEL.score(tokens), MODEL.logits(tokens, first=len(tokens) - 2)
    assert len(scores) == len(tokens) - 1 and len(logits) == 2
    row = [float(x) for x in logits[0]]
    total = max(row) + math.log(sum(math.exp(x - max(row)) for x in row))
    assert abs(row[tokens[-1]] - total - float(scores[-1])) < 1e-3
    assert abs(MODEL.perplexity(tokens) - math.exp(-sum(map(float, scores)) / len(scores))) < 1e-3


def test_saved_prompts():
    tokens = list(range(5, 105))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "prompt.cache")
        assert MODEL.save_prompt(tokens, path) == 100
        with Model(device="cpu", threads=1) as other:
            assert other.restore_prompt(path) == tokens
            stream = other.generate(tokens, **STORY)
            assert stream.text() == MODEL.generate(tokens, **STORY).text() and stream.usage.n_cached == 99
            assert "absent" in str(raises(other.restore_prompt, os.path.join(folder, "absent")))


def test_errors():
    assert raises(MODEL.generate, "Once", heat=1).code == 1
    assert "top_p" in str(raises(MODEL.generate, "Once", top_p=7))
    assert raises(Model, "/no/such/model").name in ("not found", "wrong argument", "input or output failed")
    assert "precision" in str(raises(Model, precision="f64"))
    assert "NUL" in str(raises(MODEL.generate, "a\0b"))
    closed = Model(device="cpu", threads=1)
    stream = closed.generate("Once", ignore_end=True)
    closed.close()
    closed.close()
    stream.text()
    assert stream.finish == "cancelled" and "closed" in str(raises(closed.generate, "Once"))


def test_facts():
    assert MODEL.info.vocab > 100 and MODEL.info.has_template in (True, False) and mlxcel.devices()[0].name == "cpu"
    assert mlxcel.version() == mlxcel.__version__


def test_progress_is_told():
    told = []
    Model(device="cpu", threads=1, progress=lambda stage, done, total: told.append((stage, done, total))).close()
    assert told and told[-1][0] == "load" and told[-1][1] == told[-1][2]


def test_the_program_comes_with_it():
    for command in ([sys.executable, "-m", "mlxcel"], [os.path.join(os.path.dirname(sys.executable), "mlxcel")]):
        if os.path.exists(command[0]):
            said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
            assert mlxcel.__version__ in said


def main():
    failed = 0
    tests = [(name, f) for name, f in globals().items() if name.startswith("test_")]
    for name, function in tests:
        try:
            function()
        except Exception:
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
    print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
