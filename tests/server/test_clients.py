#!/usr/bin/env python3
"""Clients as their users have them, unchanged, against the server: tools, structured output, streams. The model has random weights, so every answer that
has a form has it because the server held it to that form.

usage: test_clients.py PROGRAM      last line: "N passed, N failed, N skipped"; a client that is not installed is skipped by name
"""
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

from harness import Server, check, finish, skip

TEMPLATE = ("{% if tools %}<tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>{{ tools | tojson }}{% endif %}"
            "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}\n"
            "{% endfor %}assistant:")
PROMPT = [{"role": "user", "content": "Hi"}]
WEATHER = {"type": "function", "function": {"name": "weather", "description": "The weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Bonn", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"], "additionalProperties": False}}}


def is_weather(arguments):
    v = json.loads(arguments) if isinstance(arguments, str) else arguments
    return v["city"] in ("Bonn", "Rome") and 1 <= v["days"] <= 9


def animal():
    import typing

    import pydantic

    class Animal(pydantic.BaseModel):
        """An animal."""
        model_config = pydantic.ConfigDict(extra="forbid")  # random weights would go on with members of their own
        kind: typing.Literal["cat", "dog"]
        age: typing.Annotated[int, pydantic.Field(ge=0, le=30)]
        good: bool
    return Animal


def check_openai(url, model):
    import openai
    client = openai.OpenAI(base_url=url, api_key="x")

    def create(**more):
        return client.chat.completions.create(model=model, messages=PROMPT, max_tokens=300, seed=1, **more)

    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        c = create(tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False).choices[0]
        check(c.finish_reason == "tool_calls" and c.message.tool_calls[0].function.name == "weather" and is_weather(c.message.tool_calls[0].function.arguments),
              f"openai, tool_choice {choice}: {c}")
    c = create(tools=[WEATHER], tool_choice="required").choices[0]
    check(all(is_weather(t.function.arguments) for t in c.message.tool_calls), f"openai, parallel calls: {c}")
    check(create(tools=[WEATHER], max_completion_tokens=20).choices[0].message.role == "assistant", "openai, tools auto")
    call = c.message.tool_calls[0]
    back = [*PROMPT, c.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    check(client.chat.completions.create(model=model, messages=back, tools=[WEATHER], max_tokens=5).choices[0].message, "openai, a result goes back")
    parsed = client.chat.completions.parse(model=model, messages=PROMPT, max_tokens=300, response_format=animal()).choices[0].message.parsed
    check(isinstance(parsed, object) and 0 <= parsed.age <= 30, f"openai, parse: {parsed}")
    with client.chat.completions.stream(model=model, messages=PROMPT, max_tokens=300, response_format=animal()) as stream:
        for _ in stream:
            pass
        check(stream.get_final_completion().choices[0].message.parsed.kind in ("cat", "dog"), "openai, parse of a stream")
    with client.chat.completions.stream(model=model, messages=PROMPT, max_tokens=300, tools=[{**WEATHER, "function": {**WEATHER["function"], "strict": True}}],
                                        tool_choice="required", parallel_tool_calls=False) as stream:
        kinds = {event.type for event in stream}
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
        check("tool_calls.function.arguments.done" in kinds and is_weather(call.function.arguments), f"openai, calls of a stream: {kinds} {call}")


def check_langchain(url, model):
    from langchain_openai import ChatOpenAI
    chat = ChatOpenAI(base_url=url, api_key="x", model=model, max_tokens=300, seed=2)
    calls = chat.bind_tools([WEATHER], tool_choice="any", parallel_tool_calls=False).invoke("Hi").tool_calls
    check(calls and calls[0]["name"] == "weather" and is_weather(calls[0]["args"]), f"langchain, bind_tools: {calls}")
    for method in ("json_schema", "function_calling"):
        got = chat.with_structured_output(animal(), method=method).invoke("Hi")
        check(got.kind in ("cat", "dog"), f"langchain, with_structured_output by {method}: {got}")
    check("".join(part.content for part in chat.bind(max_tokens=8).stream("Hi")) is not None, "langchain, a stream")


def check_instructor(url, model):
    import instructor
    import openai
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(openai.OpenAI(base_url=url, api_key="x"), mode=mode)
        got = client.chat.completions.create(model=model, messages=PROMPT, max_tokens=300, response_model=animal())
        check(got.kind in ("cat", "dog"), f"instructor, {mode}: {got}")


def check_pydantic_ai(url, model):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    agent = Agent(OpenAIChatModel(model, provider=OpenAIProvider(base_url=url, api_key="x")), output_type=animal(), retries=3)
    got = asyncio.run(agent.run("Hi", model_settings={"max_tokens": 300, "parallel_tool_calls": False})).output
    check(got.kind in ("cat", "dog"), f"pydantic-ai, output_type: {got}")


def check_litellm(url, model):
    import litellm
    got = litellm.completion(model=f"openai/{model}", api_base=url, api_key="x", messages=PROMPT, max_tokens=300, tools=[WEATHER], tool_choice="required",
                             parallel_tool_calls=False)
    check(is_weather(got.choices[0].message.tool_calls[0].function.arguments), f"litellm, tools: {got}")
    got = litellm.completion(model=f"openai/{model}", api_base=url, api_key="x", messages=PROMPT, max_tokens=300, response_format=animal())
    check(json.loads(got.choices[0].message.content)["kind"] in ("cat", "dog"), f"litellm, response_format: {got}")
    for name, base in ((f"ollama_chat/{model}", url.removesuffix("/v1")), (f"hosted_vllm/{model}", url)):
        ask = {"model": name, "api_base": base, "api_key": "x", "messages": PROMPT, "max_tokens": 8, "temperature": 0}
        text = litellm.completion(**ask).choices[0].message.content
        parts = [p.choices[0].delta.content or "" for p in litellm.completion(**ask, stream=True)]
        check(text and "".join(parts) == text, f"litellm, {name}: {text!r} {parts}")


def check_outlines(url, model):
    import openai
    import outlines
    got = outlines.from_openai(openai.OpenAI(base_url=url, api_key="x"), model)("Hi", animal(), max_tokens=300)
    check(json.loads(got)["kind"] in ("cat", "dog"), f"outlines: {got}")


def check_ollama(url, model):
    import ollama
    client = ollama.Client(host=url.removesuffix("/v1"))
    options = {"num_predict": 8, "temperature": 0}
    check(client.list().models[0].model == model and client.ps().models[0].context_length > 0, "ollama, list and ps")
    check("tools" in client.show(model).capabilities, "ollama, show")
    whole = client.chat(model, PROMPT, options=options)
    parts = list(client.chat(model, PROMPT, options=options, stream=True))
    check(whole.eval_count == 8 and "".join(p.message.content for p in parts) == whole.message.content, f"ollama, chat: {whole}")
    whole, parts = client.generate(model, "Hi", options=options), list(client.generate(model, "Hi", options=options, stream=True))
    check("".join(p.response for p in parts) == whole.response and parts[-1].done, f"ollama, generate: {whole}")
    check(len(client.embed(model, ["a", "b"]).embeddings) == 2 and client.embeddings(model, "a").embedding, "ollama, embed")
    got = client.chat(model, PROMPT, format=animal().model_json_schema(), options={"num_predict": 300})
    check(json.loads(got.message.content)["kind"] in ("cat", "dog"), f"ollama, format: {got}")
    check(client.chat(model, PROMPT, tools=[WEATHER], options=options).done, "ollama, tools")
    try:
        client.pull("x")
        check(False, "ollama, pull is refused")
    except ollama.ResponseError as e:
        check(e.status_code == 501, f"ollama, pull: {e}")

    async def chat():
        return [p async for p in await ollama.AsyncClient(host=url.removesuffix("/v1")).chat(model, PROMPT, options=options, stream=True)]
    check(asyncio.run(chat())[-1].done, "ollama, asynchronous")


def check_langchain_ollama(url, model):
    from langchain_ollama import ChatOllama, OllamaEmbeddings, OllamaLLM
    base = url.removesuffix("/v1")
    chat = ChatOllama(model=model, base_url=base, num_predict=8, temperature=0)
    whole = chat.invoke("Hi")
    check("".join(p.content for p in chat.stream("Hi")) == whole.content and whole.usage_metadata["output_tokens"] == 8, f"langchain_ollama: {whole}")
    check(chat.bind_tools([WEATHER]).invoke("Hi").response_metadata["done"], "langchain_ollama, tools")
    got = ChatOllama(model=model, base_url=base, num_predict=300).with_structured_output(animal(), method="json_schema").invoke("Hi")
    check(got.kind in ("cat", "dog"), f"langchain_ollama, with_structured_output: {got}")
    check(OllamaLLM(model=model, base_url=base, num_predict=4).invoke("Hi"), "langchain_ollama, OllamaLLM")
    check(len(OllamaEmbeddings(model=model, base_url=base).embed_documents(["a", "b"])) == 2, "langchain_ollama, embeddings")


def check_llama_index_chat(llm, what):
    """The same text whole and in pieces, for a chat and for a prompt."""
    from llama_index.core.llms import ChatMessage
    messages = [ChatMessage(role="user", content="Hi")]
    whole = llm.chat(messages).message.content
    check(whole and "".join(p.delta or "" for p in llm.stream_chat(messages)) == whole, f"llama-index, {what}, chat: {whole!r}")
    whole = llm.complete("Hi").text
    check(whole and "".join(p.delta or "" for p in llm.stream_complete("Hi")) == whole, f"llama-index, {what}, complete: {whole!r}")


def check_llama_index(url, model):
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike
    more = {"model": model, "api_base": url, "api_key": "x", "temperature": 0}
    for is_chat in (True, False):
        check_llama_index_chat(OpenAILike(is_chat_model=is_chat, max_tokens=8, **more), "chats" if is_chat else "completions")

    def weather(city: str, days: int) -> str:
        """The weather of a city."""
        return "sunny"

    llm = OpenAILike(is_chat_model=True, is_function_calling_model=True, max_tokens=400, seed=1, **more)
    got = llm.chat_with_tools([FunctionTool.from_defaults(weather)], "Hi", tool_required=True)
    calls = llm.get_tool_calls_from_response(got, error_on_no_tool_call=False)
    check(all(c.tool_name == "weather" and set(c.tool_kwargs) <= {"city", "days"} for c in calls), f"llama-index, tools: {calls}")
    try:
        from llama_index.llms.ollama import Ollama
        check_llama_index_chat(Ollama(model=model, base_url=url.removesuffix("/v1"), temperature=0, additional_kwargs={"num_predict": 8}), "Ollama")
    except ImportError:
        skip("llama_index.llms.ollama is not installed")


def check_guidellm(url, model):
    """Three requests one after another, as streams and whole, measured by the program itself. Its tokenizer is the model's."""
    program = os.path.join(os.path.dirname(sys.executable), "guidellm")
    if "  run " not in subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout:
        skip("guidellm is older than its command run")
        return
    for streams in ("true", "false"):
        out = os.path.join(folder, f"guidellm-{streams}.json")
        command = [program, "run", "--backend", f"kind=openai_http,target={url.removesuffix('/v1')},model={model},stream={streams}", "--tokenizer",
                   f"kind=hf_auto,model={path}", "--data", "kind=synthetic_text,prompt_tokens=16,output_tokens=6", "--profile", "kind=synchronous", "--constraint",
                   "kind=max_requests,count=3", "--output", f"kind=json,path={out}", "--disable-console"]
        got = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        requests = json.load(open(out, encoding="utf-8"))["benchmarks"][0]["requests"] if os.path.exists(out) else {"successful": [], "errored": [got.stderr[-600:]]}
        check(len(requests["successful"]) == 3 and not requests["errored"], f"guidellm, stream={streams}: {str(requests)[:600]}")
        check(all(r["output_tokens"] == 6 for r in requests["successful"]), f"guidellm, stream={streams}: tokens of the answers")


CLIENTS = (("openai", check_openai), ("langchain_openai", check_langchain), ("instructor", check_instructor), ("pydantic_ai", check_pydantic_ai),
           ("litellm", check_litellm), ("outlines", check_outlines), ("ollama", check_ollama), ("langchain_ollama", check_langchain_ollama),
           ("llama_index.llms.openai_like", check_llama_index), ("guidellm", check_guidellm))


def is_installed(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False


program = os.path.abspath(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model")
    subprocess.run([program, "synth", "--shape", "tiny", "-o", path], check=True, capture_output=True)
    with open(os.path.join(path, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(TEMPLATE)
    with Server(program, "-m", path, "--parallel", "4") as s:
        for name, part in CLIENTS:
            if not is_installed(name):
                skip(f"{name} is not installed")
                continue
            try:
                part(s.url + "/v1" if not s.url.endswith("/v1") else s.url, "model")
            except Exception as e:  # a client that stops is a failure of the server's until shown otherwise
                check(False, f"{name} stopped: {type(e).__name__}: {str(e)[:600]}")
finish()
