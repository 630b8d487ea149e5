"""Language models from MLX and Hugging Face checkpoints, through libmlxcel.

    from mlxcel import Model

    for piece in Model().chat("Tell me a story"):      # the built-in model
        print(piece, end="", flush=True)
"""
from ._native import Error, version
from .model import Device, Info, Model, devices, download
from .server import Server
from .stream import Call, Event, Stream, Usage

__version__ = version()
__all__ = ["Call", "Device", "Error", "Event", "Info", "Model", "Server", "Stream", "Usage", "devices", "download", "version"]
