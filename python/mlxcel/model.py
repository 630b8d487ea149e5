"""Models, and what one asks of them."""
import ctypes as c
import json
import os
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from . import _native as n
from ._native import call, lib, made, text
from .store import store_of_environment
from .stream import Stream

try:
    import numpy
except ImportError:  # lists then
    numpy = None  # type: ignore[assignment]

Message = Mapping[str, Any]
Progress = Callable[[str, int, int], Any]
PRECISIONS = ["auto", "exact", "f32", "bf16"]
POOLINGS = ["auto", "mean", "last", "first", "max"]
TOOL_CHOICES = ["auto", "none", "required"]


@dataclass
class Device:
    name: str
    description: str
    is_usable: bool
    memory_bytes: int
    free_bytes: int


@dataclass
class Info:
    """What a model is; see mlxcel_model_info in mlxcel.h."""
    name: str
    description: str
    path: str
    type: str
    weights: str
    chat_template: str
    weight_bytes: int
    vocab: int
    context: int
    parallel: int
    width: int
    kv_bits: int
    on_gpu: bool
    has_template: bool
    has_tools: bool


def devices() -> List[Device]:
    """The devices of this machine; the CPU comes first."""
    found: List[Device] = []
    while True:
        d = n.RawDevice(struct_size=c.sizeof(n.RawDevice))
        try:
            call(lib.device_get, len(found), c.byref(d))
        except n.Error as error:
            if error.name == "not found":
                return found
            raise
        found.append(Device(d.name.decode(), d.description.decode(), bool(d.is_usable), d.memory_bytes, d.free_bytes))


def _choice(name: str, value: str, words: Sequence[str]) -> int:
    if value not in words:
        raise ValueError(f"{name} is {value!r}; it is one of {', '.join(words)}")
    return words.index(value)


def _progress(progress: Optional[Progress]) -> Any:
    if progress is None:
        return n.ProgressFn()

    def tell(_user: Any, stage: int, done: int, total: int) -> int:
        return int(progress("load" if stage else "download", done, total) is False)
    return n.ProgressFn(tell)


def download(name: str, revision: Optional[str] = None, progress: Optional[Progress] = None) -> str:
    """A model from the hub into the store; gives its folder. progress(stage, done, total) may return False to end it."""
    path, store, told = c.c_void_p(), store_of_environment(), _progress(progress)
    call(lib.download, text(name), text(revision), c.byref(store), told, None, c.byref(path))
    return n.take_text(path)


class Model:
    """A model, loaded: a folder, OWNER/NAME on the hub, or the built-in one. Any thread may use it; all answers that are on their way are computed together."""

    def __init__(self, model: Optional[str] = None, *, device: Optional[str] = None, precision: str = "auto", context: int = 0, parallel: int = 0,
                 queue: int = -1, threads: int = 0, kv_bits: int = 0, chat_template: Optional[str] = None,
                 progress: Optional[Progress] = None) -> None:
        o, store = made(n.RawModelOptions, lib.model_options_init), store_of_environment()
        self._told = _progress(progress)
        o.model, o.device, o.chat_template = text(os.fspath(model) if model is not None else None), text(device), text(chat_template)
        o.store = c.pointer(store)
        o.precision = _choice("precision", precision, PRECISIONS)
        o.context, o.parallel, o.queue, o.threads, o.kv_bits = context, parallel, queue, threads, kv_bits
        o.progress = self._told
        self._model: Optional[c.c_void_p] = None
        opened = c.c_void_p()
        call(lib.model_open, c.byref(o), c.byref(opened))
        self._model = opened

    def close(self) -> None:
        """Ends what still runs, and unloads it."""
        model, self._model = getattr(self, "_model", None), None
        if model:
            lib.model_close(model)

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *args: Any) -> None:
        self.close()

    @property
    def _open(self) -> c.c_void_p:
        if not self._model:
            raise ValueError("the model is closed")
        return self._model

    @property
    def info(self) -> Info:
        raw = n.RawModelInfo(struct_size=c.sizeof(n.RawModelInfo))
        call(lib.model_info_get, self._open, c.byref(raw))
        values: Dict[str, Any] = {name: getattr(raw, name) for name in Info.__dataclass_fields__}
        values = {k: v.decode("utf-8", "replace") if isinstance(v, bytes) else v for k, v in values.items()}
        for name in ("on_gpu", "has_template", "has_tools"):
            values[name] = bool(values[name])
        return Info(**values)

    # ---- text

    def tokenize(self, value: str, *, add_special: bool = False, parse_special: bool = False) -> List[int]:
        data, out, count = value.encode("utf-8", "surrogatepass"), c.POINTER(c.c_int32)(), c.c_size_t()
        call(lib.tokenize, self._open, data, len(data), add_special + 2 * parse_special, c.byref(out), c.byref(count))
        return self._take_ids(out, count)

    def detokenize(self, tokens: Iterable[int]) -> str:
        array, out, count = n.ids(tokens), c.c_void_p(), c.c_size_t()
        call(lib.detokenize, self._open, array, len(array), c.byref(out), c.byref(count))
        return n.take_text(out, count.value)

    @staticmethod
    def _take_ids(out: Any, count: c.c_size_t) -> List[int]:
        values = list(out[:count.value])
        lib.free(out)
        return values

    @staticmethod
    def _chat(messages: Union[str, Sequence[Message]], tools: Optional[Sequence[Any]], template: Optional[Mapping[str, Any]],
              continues: bool) -> n.RawChat:
        chat = made(n.RawChat, lib.chat_init)
        listed = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        chat.messages_json = json.dumps(listed).encode()
        chat.tools_json = json.dumps(list(tools)).encode() if tools else None
        chat.template_json = json.dumps(dict(template)).encode() if template else None
        chat.continues = continues
        return chat

    def render(self, messages: Union[str, Sequence[Message]], *, tools: Optional[Sequence[Any]] = None,
               template: Optional[Mapping[str, Any]] = None, continues: bool = False) -> str:
        """The prompt that a conversation becomes by the model's template."""
        chat, out = self._chat(messages, tools, template, continues), c.c_void_p()
        call(lib.chat_render, self._open, c.byref(chat), c.byref(out), None, None)
        return n.take_text(out)

    # ---- answers

    def chat(self, messages: Union[str, Sequence[Message]], *, tools: Optional[Sequence[Any]] = None,
             template: Optional[Mapping[str, Any]] = None, continues: bool = False, **options: Any) -> Stream:
        """The answer in a conversation: a text, or OpenAI's list of messages. Further options are those of generate."""
        chat = self._chat(messages, tools, template, continues)
        return self._submit(chat=chat, **options)

    def generate(self, prompt: Union[str, Sequence[int]], **options: Any) -> Stream:
        """A text, or tokens, that go on. Options: see _submit."""
        return self._submit(prompt=prompt, **options)

    def _submit(self, *, chat: Optional[n.RawChat] = None, prompt: Union[str, Sequence[int], None] = None, max_tokens: int = -1,
                stop: Union[str, Sequence[str]] = (), seed: Optional[int] = None, json_schema: Any = None, grammar: Optional[str] = None,
                regex: Optional[str] = None, json_object: bool = False, tool_choice: str = "auto", one_call: bool = False,
                logit_bias: Optional[Mapping[int, float]] = None, logprobs: Optional[int] = None, tokens: bool = False, progress: bool = False,
                ignore_end: bool = False, max_reasoning: int = 0, deadline: float = 0, **parameters: float) -> Stream:
        """Further keywords are numbers of the sampler: temperature, top_p, top_k, min_p, repetition_penalty ..."""
        o = made(n.RawJobOptions, lib.job_options_init)
        stops = [stop] if isinstance(stop, str) else list(stop)
        bias = dict(logit_bias or {})
        keep: List[Any] = [  # arrays that must live until the call has returned
            (c.c_char_p * len(stops))(*map(text, stops)),
            (n.RawParameter * len(parameters))(*[n.RawParameter(text(k), float(v)) for k, v in parameters.items()]),
            (n.RawBias * len(bias))(*[n.RawBias(int(k), float(v)) for k, v in bias.items()])]
        o.stops = c.cast(keep[0], c.POINTER(c.c_char_p))
        o.parameters = c.cast(keep[1], c.POINTER(n.RawParameter))
        o.bias = c.cast(keep[2], c.POINTER(n.RawBias))
        o.n_stops, o.n_parameters, o.n_bias = len(stops), len(parameters), len(bias)
        if chat is not None:
            o.chat = c.pointer(chat)
        elif isinstance(prompt, str):
            o.text = text(prompt)
        else:
            array = n.ids(prompt or ())
            keep.append(array)
            o.tokens, o.n_tokens = c.cast(array, c.POINTER(c.c_int32)), len(array)
        o.max_tokens, o.ignore_end, o.max_reasoning, o.deadline_ms = max_tokens, ignore_end, max_reasoning, int(deadline * 1000)
        o.json_schema = text(json_schema if isinstance(json_schema, str) or json_schema is None else json.dumps(json_schema))
        o.grammar, o.regex, o.json_object, o.one_call = text(grammar), text(regex), json_object, one_call
        if tool_choice in TOOL_CHOICES:
            o.tool_choice = TOOL_CHOICES.index(tool_choice)
        else:  # the name of a tool
            o.tool_choice, o.tool_name = 3, text(tool_choice)
        o.has_seed, o.seed = seed is not None, seed or 0
        o.logprobs, o.wants_tokens, o.wants_progress = -1 if logprobs is None else logprobs, tokens, progress
        job = c.c_void_p()
        call(lib.submit, self._open, c.byref(o), c.byref(job))
        return Stream(self, job)

    # ---- numbers

    def embed(self, texts: Union[str, Sequence[str]], *, pooling: str = "auto", truncate: bool = False, prompt_name: Optional[str] = None) -> Any:
        """Vectors of length 1: one for a text, a list of them for several; arrays of numpy where that is installed."""
        o, listed = made(n.RawEmbedOptions, lib.embed_options_init), [texts] if isinstance(texts, str) else list(texts)
        o.pooling, o.truncate, o.prompt_name = _choice("pooling", pooling, POOLINGS), truncate, text(prompt_name)
        array, out, width = (c.c_char_p * len(listed))(*map(text, listed)), c.POINTER(c.c_float)(), c.c_size_t()
        call(lib.embed, self._open, c.byref(o), array, len(listed), c.byref(out), c.byref(width))
        data = c.string_at(out, 4 * len(listed) * width.value)
        lib.free(out)
        rows = self._rows(data, width.value)
        return rows[0] if isinstance(texts, str) else rows

    @staticmethod
    def _rows(data: bytes, width: int) -> Any:
        if numpy is not None:
            return numpy.frombuffer(data, dtype=numpy.float32).reshape(-1, width).copy()
        flat = memoryview(data).cast("f")
        return [list(flat[i:i + width]) for i in range(0, len(flat), width)]

    def logits(self, tokens: Sequence[int], first: int = 0) -> Any:
        """The logits behind each position from `first` on."""
        array, vocab = n.ids(tokens), self.info.vocab
        out = (c.c_float * (max(len(array) - first, 0) * vocab))()
        call(lib.logits, self._open, array, len(array), first, out, len(out))
        return self._rows(bytes(out), vocab)

    def score(self, tokens: Sequence[int]) -> Any:
        """The log-probability of each token behind those before it, from the second one on."""
        array = n.ids(tokens)
        out = (c.c_float * max(len(array) - 1, 1))()
        call(lib.score, self._open, array, len(array), out)
        return self._rows(bytes(out), len(out))[0]

    def perplexity(self, tokens: Sequence[int], chunk: int = 0) -> float:
        array, out = n.ids(tokens), c.c_double()
        call(lib.perplexity, self._open, array, len(array), chunk, c.byref(out))
        return out.value

    # ---- a prompt's cache in a file

    def save_prompt(self, tokens: Sequence[int], path: Union[str, "os.PathLike[str]"]) -> int:
        """Computes what is not known of a prompt and saves its cache; how many tokens are in the file."""
        array, count = n.ids(tokens), c.c_size_t()
        call(lib.prompt_save, self._open, array, len(array), text(os.fspath(path)), c.byref(count))
        return count.value

    def restore_prompt(self, path: Union[str, "os.PathLike[str]"]) -> List[int]:
        """Puts a saved prompt back, so that prompts that begin alike find it known; its tokens."""
        out, count = c.POINTER(c.c_int32)(), c.c_size_t()
        call(lib.prompt_restore, self._open, text(os.fspath(path)), c.byref(out), c.byref(count))
        return self._take_ids(out, count)
