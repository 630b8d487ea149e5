"""The library itself: structs of include/mlxcel.h and its functions, by ctypes, which lets other threads of Python run while one computes."""
import ctypes as c
import os
import sys
from typing import Any, Iterable, Optional, Type, TypeVar

ABI = 0

CODES = {1: "wrong argument", 2: "malformed file", 3: "not supported", 4: "not found", 5: "input or output failed", 6: "out of memory",
         7: "larger than allowed", 8: "busy", 9: "cancelled", 10: "network failed", 11: "device failed", 12: "internal mistake"}


class Error(Exception):
    """What the library refuses or fails at. code: a number of enum mlxcel_code; name: what it means, in a word or two."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.name = CODES.get(code, "unknown code")


class RawError(c.Structure):
    _fields_ = [("code", c.c_int32), ("message", c.c_char * 508)]


class RawDevice(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char * 32), ("description", c.c_char * 224), ("is_usable", c.c_int32),
                ("reserved", c.c_int32), ("memory_bytes", c.c_uint64), ("free_bytes", c.c_uint64)]


class RawStore(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("models_dir", c.c_char_p), ("hf_home", c.c_char_p), ("hub", c.c_char_p), ("token", c.c_char_p),
                ("cacert", c.c_char_p), ("offline", c.c_int32), ("reserved", c.c_int32)]


ProgressFn = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_int32, c.c_uint64, c.c_uint64)


class RawModelOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("model", c.c_char_p), ("device", c.c_char_p), ("chat_template", c.c_char_p),
                ("store", c.POINTER(RawStore)), ("precision", c.c_int32), ("threads", c.c_int32), ("context", c.c_int32),
                ("parallel", c.c_int32), ("queue", c.c_int32), ("kv_bits", c.c_int32), ("logit_rows", c.c_int32), ("force", c.c_int32),
                ("progress", ProgressFn), ("user", c.c_void_p)]


class RawModelInfo(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("description", c.c_char_p), ("path", c.c_char_p), ("type", c.c_char_p),
                ("weights", c.c_char_p), ("chat_template", c.c_char_p), ("weight_bytes", c.c_uint64), ("vocab", c.c_int32),
                ("context", c.c_int32), ("parallel", c.c_int32), ("width", c.c_int32), ("kv_bits", c.c_int32), ("on_gpu", c.c_int32),
                ("has_template", c.c_int32), ("has_tools", c.c_int32)]


class RawMessage(c.Structure):
    _fields_ = [("role", c.c_char_p), ("content", c.c_char_p)]


class RawChat(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("messages", c.POINTER(RawMessage)), ("n_messages", c.c_size_t), ("messages_json", c.c_char_p),
                ("tools_json", c.c_char_p), ("template_json", c.c_char_p), ("continues", c.c_int32), ("reserved", c.c_int32)]


class RawEvent(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("kind", c.c_int32), ("call", c.c_int32), ("text", c.c_void_p), ("text_bytes", c.c_size_t),
                ("id", c.c_char_p), ("tokens", c.POINTER(c.c_int32)), ("logprobs", c.POINTER(c.c_float)), ("n_tokens", c.c_size_t),
                ("n_tops", c.POINTER(c.c_int32)), ("top_tokens", c.POINTER(c.c_int32)), ("top_logprobs", c.POINTER(c.c_float)),
                ("n_prompt", c.c_int32), ("n_read", c.c_int32), ("n_cached", c.c_int32), ("n_new", c.c_int32), ("n_reasoning", c.c_int32),
                ("finish", c.c_int32), ("code", c.c_int32), ("stopped_by", c.c_int32), ("prompt_seconds", c.c_double),
                ("new_seconds", c.c_double)]


class RawParameter(c.Structure):
    _fields_ = [("name", c.c_char_p), ("value", c.c_double)]


class RawBias(c.Structure):
    _fields_ = [("token", c.c_int32), ("bias", c.c_float)]


class RawJobOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("chat", c.POINTER(RawChat)), ("text", c.c_char_p), ("tokens", c.POINTER(c.c_int32)),
                ("n_tokens", c.c_size_t), ("max_tokens", c.c_int32), ("ignore_end", c.c_int32), ("deadline_ms", c.c_int64),
                ("stops", c.POINTER(c.c_char_p)), ("n_stops", c.c_size_t), ("json_schema", c.c_char_p), ("grammar", c.c_char_p),
                ("regex", c.c_char_p), ("json_object", c.c_int32), ("tool_choice", c.c_int32), ("tool_name", c.c_char_p),
                ("one_call", c.c_int32), ("has_seed", c.c_int32), ("seed", c.c_uint64), ("parameters", c.POINTER(RawParameter)),
                ("n_parameters", c.c_size_t), ("bias", c.POINTER(RawBias)), ("n_bias", c.c_size_t), ("logprobs", c.c_int32),
                ("wants_tokens", c.c_int32), ("wants_progress", c.c_int32), ("max_reasoning", c.c_int32), ("on_event", c.c_void_p),
                ("user", c.c_void_p)]


class RawEmbedOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("pooling", c.c_int32), ("truncate", c.c_int32), ("prompt_name", c.c_char_p)]


class RawSetting(c.Structure):
    _fields_ = [("name", c.c_char_p), ("value", c.c_char_p)]


class RawServerOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("host", c.c_char_p), ("models", c.POINTER(c.c_char_p)), ("n_models", c.c_size_t),
                ("settings", c.POINTER(RawSetting)), ("n_settings", c.c_size_t), ("store", c.POINTER(RawStore)), ("port", c.c_int32),
                ("reserved", c.c_int32)]


def _find() -> str:
    """The library beside this file, where a wheel puts it; MLXCEL_LIBRARY names another."""
    name = {"win32": "mlxcel.dll", "darwin": "libmlxcel.0.dylib"}.get(sys.platform, "libmlxcel.so.0")
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    return os.environ.get("MLXCEL_LIBRARY") or (beside if os.path.exists(beside) else name)


_P, _S, _I = c.c_void_p, c.c_size_t, c.c_int32
_IDS = c.POINTER(c.POINTER(c.c_int32))
_FLOATS = c.POINTER(c.c_float)
# name: result, arguments. A pointer to a struct is c_void_p: byref takes any.
_FUNCTIONS = {
    "version": (c.c_char_p, []), "abi": (_I, []), "free": (None, [_P]),
    "device_get": (_I, [_S, _P, _P]),
    "store_init": (None, [_P, _S]), "model_options_init": (None, [_P, _S]), "chat_init": (None, [_P, _S]), "event_init": (None, [_P, _S]),
    "job_options_init": (None, [_P, _S]), "embed_options_init": (None, [_P, _S]),
    "model_open": (_I, [_P, c.POINTER(_P), _P]), "model_close": (None, [_P]), "model_info_get": (_I, [_P, _P, _P]),
    "download": (_I, [c.c_char_p, c.c_char_p, _P, ProgressFn, _P, c.POINTER(_P), _P]),
    "tokenize": (_I, [_P, c.c_char_p, _S, c.c_uint32, _IDS, c.POINTER(_S), _P]),
    "detokenize": (_I, [_P, c.POINTER(_I), _S, c.POINTER(_P), c.POINTER(_S), _P]),
    "token_id": (_I, [_P, c.c_char_p]),
    "chat_render": (_I, [_P, _P, c.POINTER(_P), _IDS, c.POINTER(_S), _P]),
    "submit": (_I, [_P, _P, c.POINTER(_P), _P]), "next": (_I, [_P, _I, _P, _P]), "cancel": (None, [_P]), "job_free": (None, [_P]),
    "embed": (_I, [_P, _P, c.POINTER(c.c_char_p), _S, c.POINTER(_FLOATS), c.POINTER(_S), _P]),
    "logits": (_I, [_P, c.POINTER(_I), _S, _S, _FLOATS, _S, _P]),
    "score": (_I, [_P, c.POINTER(_I), _S, _FLOATS, _P]),
    "server_options_init": (None, [_P, _S]), "server_start": (_I, [_P, c.POINTER(_P), _P]), "server_port": (_I, [_P]),
    "server_stop": (None, [_P]),
    "prompt_save": (_I, [_P, c.POINTER(_I), _S, c.c_char_p, c.POINTER(_S), _P]),
    "prompt_restore": (_I, [_P, c.c_char_p, _IDS, c.POINTER(_S), _P]),
    "perplexity": (_I, [_P, c.POINTER(_I), _S, _S, c.POINTER(c.c_double), _P]),
}


class _Library:
    def __init__(self) -> None:
        lib = c.CDLL(_find())
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(lib, f"mlxcel_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:  # for type checkers: every function was set above
        raise AttributeError(name)


lib = _Library()
if lib.abi() != ABI:
    raise ImportError(f"this package is for ABI {ABI} of libmlxcel, and {_find()} has {lib.abi()}")


def version() -> str:
    return str(lib.version().decode())


def call(function: Any, *arguments: Any) -> None:
    """Calls a function that takes an error last; raises it."""
    error = RawError()
    if function(*arguments, c.byref(error)):
        raise Error(error.code, error.message.decode("utf-8", "replace"))


S = TypeVar("S", bound=c.Structure)


def made(struct: Type[S], init: Any) -> S:
    """A struct of options, filled by its init function."""
    value = struct()
    init(c.byref(value), c.sizeof(value))
    return value


def text(value: Optional[str]) -> Optional[bytes]:
    """A string for the library, which ends strings at NUL."""
    if value is None:
        return None
    if "\0" in value:
        raise ValueError("the text holds a NUL character")
    return value.encode("utf-8", "surrogatepass")


def ids(tokens: Iterable[int]) -> Any:
    values = list(tokens)
    return (c.c_int32 * len(values))(*values)


def take_text(pointer: c.c_void_p, n: Optional[int] = None) -> str:
    """A text that the library gave, which is freed."""
    data = c.string_at(pointer, -1 if n is None else n)
    lib.free(pointer)
    return data.decode("utf-8", "replace")
