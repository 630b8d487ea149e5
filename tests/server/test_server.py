#!/usr/bin/env python3
"""The server through the official openai client: every endpoint, streaming and not, sync and async.

usage: test_server.py PROGRAM [MODEL]      last line: "N passed, N failed, N skipped"
"""
import asyncio
import json
import sys

import harness
import openai
from harness import Server, check

TEXT = "Once upon a time" if len(sys.argv) < 3 else "你好"  # something that the model goes on with
PROMPT = [{"role": "user", "content": "Tell me a story about a dog."}]


def fails(call, kind, word, what):
    try:
        call()
    except kind as e:
        return check(word in str(e) or word == e.code, f"{what}: {e} ({e.code})")
    except Exception as e:  # another error than the one that was expected
        return check(False, f"{what}: {type(e).__name__} {e}")
    return check(False, f"{what}: no error")


def check_chat(client, model):
    r = client.chat.completions.create(model="any-name", messages=PROMPT, max_tokens=16, temperature=0)
    choice = r.choices[0]
    check(r.object == "chat.completion" and r.id.startswith("chatcmpl-") and r.model == model, f"chat head {r}")
    check(choice.message.role == "assistant" and len(choice.message.content) > 10 and choice.finish_reason == "length", f"chat choice {choice}")
    check(r.usage.completion_tokens == 16 and r.usage.total_tokens == r.usage.prompt_tokens + 16, f"chat usage {r.usage}")
    again = client.chat.completions.create(model=model, messages=PROMPT, max_completion_tokens=16, temperature=0)
    check(again.choices[0].message.content == choice.message.content, "greedy chat twice")
    parts = [{"role": "user", "content": [{"type": "text", "text": "Tell me a story"}, {"type": "text", "text": " about a dog."}]}]
    r = client.chat.completions.create(model=model, messages=parts, max_tokens=16, temperature=0)
    check(r.choices[0].message.content == choice.message.content, "text parts are joined")
    return choice.message.content


def check_chat_stream(client, model, whole):
    text, finish, usage, roles = "", None, None, []
    for chunk in client.chat.completions.create(model=model, messages=PROMPT, max_tokens=16, temperature=0, stream=True,
                                                stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            roles.append(choice.delta.role)
            finish = choice.finish_reason or finish
    check(text == whole, f"streamed {text!r}, whole {whole!r}")
    check(finish == "length" and roles[0] == "assistant" and usage.completion_tokens == 16, f"stream {finish} {roles[:2]} {usage}")
    word = " " + whole.split()[3]  # the helper takes only answers that came to their end
    with client.chat.completions.stream(model=model, messages=PROMPT, max_tokens=16, temperature=0, stop=word) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    check(final.choices[0].message.content == whole[:whole.index(word)], "the stream helper's final completion")


def check_raw(client, model):
    """with_raw_response and with_streaming_response of every endpoint."""
    calls = {
        "chat": (client.chat.completions, {"messages": PROMPT, "max_tokens": 4}),
        "completions": (client.completions, {"prompt": TEXT, "max_tokens": 4}),
        "embeddings": (client.embeddings, {"input": "Once"}),
    }
    for name, (part, args) in calls.items():
        raw = part.with_raw_response.create(model=model, **args)
        parsed = raw.parse()
        check(raw.status_code == 200 and "application/json" in raw.headers["content-type"] and parsed.model == model, f"raw {name}")
        with part.with_streaming_response.create(model=model, **args) as response:
            check(response.status_code == 200 and json.loads(response.read())["model"] == model, f"streaming response of {name}")
        if name != "embeddings":
            raw = part.with_raw_response.create(model=model, stream=True, **args)
            # how many pieces the tokens come in is the clock's business: the last one says why the answer ended
            pieces = list(raw.parse())
            check("text/event-stream" in raw.headers["content-type"] and pieces[-1].choices[0].finish_reason == "length", f"raw stream of {name}: {pieces}")
            check(raw.headers["x-accel-buffering"] == "no", f"proxies hand on the stream of {name}: {raw.headers}")
            with part.with_streaming_response.create(model=model, stream=True, **args) as response:
                lines = [line for line in response.iter_lines() if line]
            check(lines[-1] == "data: [DONE]" and all(line.startswith("data: ") for line in lines), f"lines of {name}: {lines[-2:]}")
    raw = client.models.with_raw_response.list()
    check(raw.parse().data[0].id == model, "raw models")
    raw = client.models.with_raw_response.retrieve(model)
    check(raw.parse().id == model, "raw model")
    try:
        client.chat.completions.with_raw_response.create(model=model, messages=PROMPT, temperature=9)
        check(False, "a raw error: none")
    except openai.BadRequestError as e:
        check(e.status_code == 400 and e.param == "temperature" and e.type == "invalid_request_error", f"a raw error: {e}")


def check_stop(client, model, whole):
    word = whole.split()[3]
    cut = whole[:whole.index(" " + word)]
    args = {"model": model, "messages": PROMPT, "max_tokens": 16, "temperature": 0}
    for stop in (" " + word, ["never", " " + word]):
        r = client.chat.completions.create(**args, stop=stop)
        check(r.choices[0].message.content == cut and r.choices[0].finish_reason == "stop", f"stop {stop!r}: {r.choices[0]}")
    streamed = "".join(c.choices[0].delta.content or "" for c in client.chat.completions.create(**args, stop=" " + word, stream=True))
    check(streamed == cut, f"streamed with stop: {streamed!r}, expected {cut!r}")


def check_sampling(client, model):
    def ask(**args):
        r = client.chat.completions.create(model=model, messages=PROMPT, max_tokens=24, **args)
        return [c.message.content for c in r.choices]
    check(ask(seed=7, temperature=1.5) == ask(seed=7, temperature=1.5), "a seed repeats")
    check(ask(seed=7, temperature=1.5) != ask(seed=8, temperature=1.5), "seeds differ")
    several = ask(n=3, seed=7, temperature=1.5)
    check(len(several) == 3 and len(set(several)) > 1 and several[0] == ask(seed=7, temperature=1.5)[0], f"n = 3: {several}")
    greedy = ask(temperature=0)
    check(ask(temperature=1, extra_body={"top_k": 1}) == greedy, "top_k 1 is greedy")
    check(ask(temperature=1, top_p=0.000001) == greedy, "a tiny top_p is greedy")
    check(ask(temperature=0, frequency_penalty=2, presence_penalty=2, extra_body={"repetition_penalty": 1.5}) != greedy, "penalties")
    check(ask(temperature=0, extra_body={"min_p": 0.1, "typical_p": 0.9, "unknown_field": {"a": 1}}) == greedy, "unknown fields are ignored")


def check_logprobs(client, model):
    r = client.chat.completions.create(model=model, messages=PROMPT, max_tokens=8, temperature=0, logprobs=True, top_logprobs=3)
    rows = r.choices[0].logprobs.content
    check(len(rows) == 8 and all(len(t.top_logprobs) == 3 and t.logprob <= 0 for t in rows), "logprobs of 8 tokens")
    check(all(t.token == t.top_logprobs[0].token and t.logprob == t.top_logprobs[0].logprob for t in rows), "greedy is the most likely")
    check(b"".join(bytes(t.bytes) for t in rows).decode() == r.choices[0].message.content, "the tokens' bytes make up the text")
    streamed = []
    for chunk in client.chat.completions.create(model=model, messages=PROMPT, max_tokens=8, temperature=0, logprobs=True, top_logprobs=3, stream=True):
        for choice in chunk.choices:
            streamed += (choice.logprobs.content if choice.logprobs else None) or []
    check([t.token for t in streamed] == [t.token for t in rows], "streamed logprobs")
    r = client.completions.create(model=model, prompt="Once upon", max_tokens=5, temperature=0, logprobs=2)
    p = r.choices[0].logprobs
    check(len(p.tokens) == len(p.token_logprobs) == len(p.top_logprobs) == len(p.text_offset) == 5, f"completion logprobs {p}")
    check("".join(p.tokens) == r.choices[0].text and p.text_offset[0] == 0 and len(p.top_logprobs[0]) == 2, f"completion logprobs {p}")
    token = rows[0].top_logprobs[0].token
    ids = [i for i in range(4096)]
    biased = client.chat.completions.create(model=model, messages=PROMPT, max_tokens=1, temperature=0,
                                            logit_bias={str(i): -100 for i in ids[:1000]})
    check(biased.choices[0].message.content is not None and token, "logit_bias is taken")


def check_completions(client, model):
    on = {"extra_body": {"ignore_eos": True}}  # models may have nothing to add to a text
    r = client.completions.create(model=model, prompt=TEXT, max_tokens=12, temperature=0, **on)
    text = r.choices[0].text
    check(r.object == "text_completion" and r.id.startswith("cmpl-") and len(text) > 5, f"completion {r}")
    streamed = "".join(c.choices[0].text for c in client.completions.create(model=model, prompt=TEXT, max_tokens=12, temperature=0, **on, stream=True))
    check(streamed == text, f"streamed {streamed!r}, whole {text!r}")
    r = client.completions.create(model=model, prompt=[TEXT, "The cat"], max_tokens=12, temperature=0, **on, n=2, echo=True)
    check([c.index for c in r.choices] == [0, 1, 2, 3] and r.choices[0].text == TEXT + text, f"lists and echo {r.choices}")
    check(r.choices[2].text.startswith("The cat") and r.usage.completion_tokens == 48, f"lists {r.usage}")
    ids = client.completions.create(model=model, prompt=[5, 6, 7], max_tokens=3, temperature=0, **on)
    both = client.completions.create(model=model, prompt=[[5, 6, 7], [8, 9]], max_tokens=3, temperature=0, **on)
    check(ids.choices[0].text == both.choices[0].text and len(both.choices) == 2, "token ids")
    check(client.completions.create(model=model, prompt="A", temperature=0, **on).usage.completion_tokens == 16, "16 tokens by default")
    echoed = "".join(c.choices[0].text for c in client.completions.create(model=model, prompt="The cat", max_tokens=2, temperature=0, **on, stream=True, echo=True))
    check(echoed.startswith("The cat"), f"streamed echo {echoed!r}")


def check_embeddings(client, model):
    r = client.embeddings.create(model=model, input=["The dog ran home.", "A dog went home.", "Seven blue boxes"])
    vectors = [d.embedding for d in r.data]
    dot = lambda a, b: sum(x * y for x, y in zip(a, b))
    check(r.object == "list" and len(vectors) == 3 and all(abs(dot(v, v) - 1) < 1e-4 for v in vectors), "three vectors of length 1")
    check(r.usage.prompt_tokens == r.usage.total_tokens > 5, f"usage {r.usage}")
    check(dot(vectors[0], vectors[1]) > dot(vectors[0], vectors[2]), "near texts are nearer")
    one = client.embeddings.create(model=model, input="The dog ran home.", encoding_format="float").data[0].embedding
    check(len(one) == len(vectors[0]) and max(abs(a - b) for a, b in zip(one, vectors[0])) < 1e-6, "one text, as numbers")
    short = client.embeddings.create(model=model, input=[5, 6, 7], dimensions=8).data[0].embedding
    check(len(short) == 8 and abs(dot(short, short) - 1) < 1e-4, "eight dimensions")
    check(len(client.embeddings.create(model=model, input=[[5, 6], [7]]).data) == 2, "lists of ids")
    check(len(client.embeddings.create(model=model, input=["", "x"]).data) == 2, "an empty text")
    for bad in ({"input": []}, {"input": [[]]}, {"input": [-1]}, {"input": "x", "dimensions": 0},
                {"input": "x", "dimensions": 10**6}, {"input": ["x"] * 3000}):
        fails(lambda: client.embeddings.create(model=model, **bad), openai.BadRequestError, "", f"embeddings {str(bad)[:60]}")


def check_models(client, model):
    listed = client.models.list()
    check([m.id for m in listed.data] == [model] and listed.data[0].object == "model", f"models {listed}")
    check(client.models.retrieve(model).id == model, "one model")


def check_refusals(client, model):
    def chat(**args):
        return lambda: client.chat.completions.create(**{"model": model, "messages": PROMPT, "max_tokens": 2, **args})
    bad = openai.BadRequestError
    context = client.models.list().data[0].meta["n_ctx"]
    fails(chat(messages=[]), bad, "messages", "no messages")
    fails(chat(temperature=-1), bad, "temperature", "negative temperature")
    fails(chat(max_tokens=0), bad, "max_tokens", "no tokens")
    fails(chat(n=1000), bad, "n must", "too many choices")
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    fails(chat(tools=tools), bad, "tools", "tools that the template cannot show")
    check(chat(tools=tools, tool_choice="none")().choices, "tools that are not to be used")
    check(chat(response_format={"type": "text"})().choices, "response_format text")
    image = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:,"}}]}]
    fails(chat(messages=image), bad, "messages[0].content[1]", "an image")
    audio = [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}]
    fails(chat(messages=audio), bad, "input_audio", "audio")
    fails(chat(messages=[{"role": "user", "content": "long " * context}]), bad, "context_length_exceeded", "an over-long prompt")
    fails(lambda: client.completions.create(model=model, prompt=""), bad, "prompt", "an empty prompt")
    fails(lambda: client.completions.create(model=model, prompt=[10**9]), bad, "vocabulary", "an unknown token")
    fails(lambda: client.post("/no-such-thing", cast_to=object), openai.NotFoundError, "there is no POST /v1/no-such-thing", "an unknown endpoint")
    fails(chat(extra_body={"chat_template_kwargs": {"messages": []}}), bad, "chat_template_kwargs", "a keyword of ours")
    check(chat(extra_body={"chat_template_kwargs": {"enable_thinking": False}})().choices, "chat_template_kwargs")


async def check_async(url, model, whole):
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none") as client:
        async def one(i):
            if i % 2:
                r = await client.chat.completions.create(model=model, messages=PROMPT, max_tokens=16, temperature=0)
                return r.choices[0].message.content
            stream = await client.chat.completions.create(model=model, messages=PROMPT, max_tokens=16, temperature=0, stream=True)
            return "".join([c.choices[0].delta.content or "" async for c in stream])
        texts = await asyncio.gather(*(one(i) for i in range(8)))
        check(texts == [whole] * 8, f"eight at once: {set(texts)}")
        await check_async_rest(client, model, whole)


async def check_async_rest(client, model, whole):
    on = {"model": model, "prompt": TEXT, "max_tokens": 8, "temperature": 0, "extra_body": {"ignore_eos": True}}
    text = (await client.completions.create(**on)).choices[0].text
    streamed = "".join([c.choices[0].text async for c in await client.completions.create(**on, stream=True)])
    check(streamed == text and text, f"async completions: {streamed!r} {text!r}")
    vectors = [d.embedding for d in (await client.embeddings.create(model=model, input=["a", "b"])).data]
    check(len(vectors) == 2 and len(vectors[0]) == len(vectors[1]), "async embeddings")
    check([m.id async for m in client.models.list()] == [model] and (await client.models.retrieve(model)).id == model, "async models")
    raw = await client.chat.completions.with_raw_response.create(model=model, messages=PROMPT, max_tokens=4)
    check(raw.status_code == 200 and raw.parse().choices, "async raw")
    async with client.chat.completions.with_streaming_response.create(model=model, messages=PROMPT, max_tokens=4, stream=True) as response:
        lines = [line async for line in response.iter_lines() if line]
    check(lines[-1] == "data: [DONE]", f"async lines: {lines[-1:]}")
    word = " " + whole.split()[3]
    seen = set()
    async with client.chat.completions.stream(model=model, messages=PROMPT, max_tokens=16, temperature=0, stop=word) as stream:
        async for event in stream:
            seen.add(event.type)
        final = await stream.get_final_completion()
    check(final.choices[0].message.content == whole[:whole.index(word)] and {"content.delta", "content.done"} <= seen, f"async helper {seen}")
    stream = await client.chat.completions.create(model=model, messages=PROMPT, max_tokens=400, stream=True, extra_body={"ignore_eos": True})
    async for _ in stream:
        break
    await stream.close()  # in the middle
    try:
        await client.chat.completions.create(model=model, messages=PROMPT, top_p=7)
        check(False, "async error: none")
    except openai.BadRequestError as e:
        check(e.param == "top_p", f"async error {e}")


def check_keys(program):
    with Server(program, "--api-key", "key-one,key-two", "--parallel", "1") as s:
        good = openai.OpenAI(base_url=s.url + "/v1", api_key="key-two", max_retries=0)
        wrong = openai.OpenAI(base_url=s.url + "/v1", api_key="key-tw", max_retries=0)
        check(good.models.list().data, "the right key")
        fails(wrong.models.list, openai.AuthenticationError, "invalid_api_key", "a wrong key")
        status, _, text = s.request("/v1/models")
        check(status == 401 and "missing_api_key" in text, f"no key: {status} {text}")
        check(s.request("/health")[0] == 200, "health needs no key")
        check(s.request("/metrics")[0] == 401, "metrics need one")
    check("key-one" not in s.log and "key-two" not in s.log, "keys do not stand in the log")


def main():
    program, model_args = sys.argv[1], (["-m", sys.argv[2]] if len(sys.argv) > 2 else [])
    with Server(program, *model_args, "--parallel", "4") as s:
        client = openai.OpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0)
        model = s.ready["model"]
        whole = check_chat(client, model)
        check_chat_stream(client, model, whole)
        check_raw(client, model)
        check_stop(client, model, whole)
        check_sampling(client, model)
        check_logprobs(client, model)
        check_completions(client, model)
        check_embeddings(client, model)
        check_models(client, model)
        check_refusals(client, model)
        asyncio.run(check_async(s.url, model, whole))
        m = s.wait_quiet()
        check(m["mlxcel_kv_blocks_used"] == 0 and m["mlxcel_generations_running"] == 0, f"everything came back: {m}")
    check("dog" not in s.log, "prompts do not stand in the log")
    check_keys(program)
    harness.finish()


if __name__ == "__main__":
    main()
