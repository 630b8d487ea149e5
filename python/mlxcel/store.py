"""Where models lie and come from."""
import os

from . import _native as n
from ._native import lib, made, text


def store_of_environment() -> n.RawStore:
    """The store and the hub as the program finds them, by the environment."""
    env, store = os.environ, made(n.RawStore, lib.store_init)
    home = env.get("MLXCEL_HOME") or env.get("MLXCEL_CACHE_DIR")
    store.models_dir = text(env.get("MLXCEL_MODELS_DIR") or (os.path.join(home, "models") if home else None))
    store.hf_home = text(env.get("HF_HOME") or (os.path.join(env["XDG_CACHE_HOME"], "huggingface") if env.get("XDG_CACHE_HOME") else None))
    store.hub = text(env.get("HF_ENDPOINT") or None)
    store.token = text(env.get("HF_TOKEN") or env.get("HUGGING_FACE_HUB_TOKEN") or None)
    store.cacert = text(env.get("SSL_CERT_FILE") or None)
    store.offline = env.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    return store
