"""The HTTP server inside of a program of Python."""
import ctypes as c
import os
from typing import Any, List, Optional, Tuple

from . import _native as n
from ._native import call, lib, made, text
from .store import store_of_environment


def _values(name: str, value: Any) -> List[Tuple[str, str]]:
    if isinstance(value, (list, tuple)):
        return [pair for one in value for pair in _values(name, one)]
    word = str(value).lower() if isinstance(value, bool) else os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    return [(name.replace("_", "-"), word)]


class Server:
    """Serves models over HTTP, as `mlxcel serve` does, from threads of its own: Server("mlx-community/Qwen3-0.6B-4bit", port=8080, api_key="secret").

    It takes requests when the constructor returns, and has loaded its one model then; several are loaded when a request names them. Further
    keywords are the long options of `mlxcel serve`, with underscores; a list gives one several times. Without a port it takes a free one.
    """

    def __init__(self, *models: str, host: str = "127.0.0.1", port: int = 0, **settings: Any) -> None:
        self._server: Optional[c.c_void_p] = None
        o, store = made(n.RawServerOptions, lib.server_options_init), store_of_environment()
        pairs = [pair for name, value in settings.items() for pair in _values(name, value)]
        names = (c.c_char_p * len(models))(*[text(os.fspath(m)) for m in models])
        raw = (n.RawSetting * len(pairs))(*[n.RawSetting(text(k), text(v)) for k, v in pairs])
        o.host, o.port, o.store = text(host), port, c.pointer(store)
        o.models, o.n_models = c.cast(names, c.POINTER(c.c_char_p)), len(models)
        o.settings, o.n_settings = c.cast(raw, c.POINTER(n.RawSetting)), len(pairs)
        started = c.c_void_p()
        call(lib.server_start, c.byref(o), c.byref(started))
        self._server = started
        self.port: int = lib.server_port(started)
        scheme = "https" if "ssl_cert_file" in settings else "http"
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def close(self) -> None:
        """Takes no more requests, and ends when those that run are answered."""
        server, self._server = getattr(self, "_server", None), None
        if server:
            lib.server_stop(server)

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *args: Any) -> None:
        self.close()
