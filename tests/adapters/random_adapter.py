"""An adapter of random numbers for the built-in model."""
import array
import json
import os
import random
import struct

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "tiny", "config.json")) as f:
    CONFIG = json.load(f)


def make_adapter(folder, seed):
    """As PEFT writes one: q, v and down of every layer."""
    numbers, header, data = random.Random(seed), {}, bytearray()
    width, head = CONFIG["hidden_size"], CONFIG.get("head_dim") or CONFIG["hidden_size"] // CONFIG["num_attention_heads"]
    sizes = {"self_attn.q_proj": (width, head * CONFIG["num_attention_heads"]), "self_attn.v_proj": (width, head * CONFIG["num_key_value_heads"]),
             "mlp.down_proj": (CONFIG["intermediate_size"], width)}
    for layer in range(CONFIG["num_hidden_layers"]):
        for module, (n_in, n_out) in sizes.items():
            for which, shape in (("A", (4, n_in)), ("B", (n_out, 4))):
                values = array.array("f", (numbers.gauss(0, 0.12) for _ in range(shape[0] * shape[1]))).tobytes()
                header[f"base_model.model.model.layers.{layer}.{module}.lora_{which}.weight"] = {
                    "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
                data += values
    os.makedirs(folder)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(folder, "adapter_config.json"), "w") as f:
        json.dump({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"]}, f)
    return folder
