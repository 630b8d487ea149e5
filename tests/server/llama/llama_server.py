#!/usr/bin/env python3
"""Takes llama-server's command line and becomes mlxcel-server with the same meaning. Names of the hub become a tiny model of the test data.

environment: MLXCEL_PROGRAM (the mlxcel binary), MLXCEL_TEST_DATA, MLXCEL_LLAMA_WORK (a folder for models that are made here)
"""
import json
import os
import sys

# flags with a value that have the same name and meaning
SAME = {"--port", "--host", "--temp", "--seed", "--alias", "--n-predict", "--api-key", "--chat-template-file", "--batch-size", "--threads", "--pooling",
        "--api-key-file", "--slot-save-path"}
SAME_FLAGS = {"--slots", "--no-slots", "--no-ui", "--context-shift"}
# flags with a value that this program has no need of: how it is built inside, or models that are given here
UNUSED = {"--hf-repo", "--hf-file", "--model", "--model-url", "--ubatch-size", "--n-gpu-layers", "-ctk", "-ctv", "-fa", "--reasoning-format", "--media-path",
          "--reasoning", "--cache-ram", "--tags", "--mmproj-url", "--tools"}
UNUSED_FLAGS = {"--offline", "--cont-batching", "--embedding", "--reranking", "--metrics", "--kv-unified", "--swa-full", "--jinja", "--no-jinja",
                "--no-mmproj", "--no-cache-idle-slots", "--backend_sampling", "--ui-mcp-proxy"}

BOS = "{{ bos_token }}"
TEMPLATES = {
    "chatml": BOS + "{% if tools %}<tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>{{ tools | tojson }}\n{% endif %}"
                    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
                    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
                    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "llama3": BOS + "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}"
                    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    "command-r": "{% for m in messages %}<|START_OF_TURN_TOKEN|><|{{ {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'}[m.role] }}_TOKEN|>"
                 "{{ m.content | trim }}<|END_OF_TURN_TOKEN|>{% endfor %}{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
}
FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


def read_flags(words):
    """A dict of what was given, by names; a flag without a value is True."""
    given, i = {}, 0
    while i < len(words):
        word = words[i]
        if word in SAME_FLAGS | UNUSED_FLAGS or word == "--verbose":
            given[word] = True
            i += 1
        elif word in SAME | UNUSED | {"--ctx-size", "--parallel", "--chat-template", "--cors-origins"}:
            given[word] = words[i + 1]
            i += 2
        else:
            sys.exit(f"llama_server.py: {word} is not known")
    return given


def make_tokenizer(source, target, fills):
    """fills: three rare tokens get the names of those that mark a gap."""
    tokenizer = json.load(open(source))
    vocab = tokenizer["model"]["vocab"]
    for name, old in zip(FIM, sorted(vocab, key=vocab.get)[-3:]) if fills else ():
        number = vocab.pop(old)
        vocab[name] = number
        tokenizer["model"]["merges"] = [m for m in tokenizer["model"]["merges"] if "".join(m if isinstance(m, list) else m.split(" ")) != old]
        tokenizer["added_tokens"].append({"id": number, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                                          "special": True})
    json.dump(tokenizer, open(target, "w"))


def make_model(context, fills):
    """The model with a context of at least so many tokens; its folder's name ends as llama-server's files do."""
    source = os.path.join(os.environ["MLXCEL_TEST_DATA"], "models", "stories260K", "hf")
    folder = os.path.join(os.environ["MLXCEL_LLAMA_WORK"], f"stories260K-{context}{'-fim' if fills else ''}.gguf")
    if os.path.exists(os.path.join(folder, "model.safetensors")):
        return folder
    os.makedirs(folder, exist_ok=True)
    config = json.load(open(os.path.join(source, "config.json")))
    config["max_position_embeddings"] = max(config["max_position_embeddings"], context)
    json.dump(config, open(os.path.join(folder, "config.json"), "w"))
    make_tokenizer(os.path.join(source, "tokenizer.json"), os.path.join(folder, "tokenizer.json"), fills)
    for name in ("generation_config.json", "tokenizer_config.json", "model.safetensors"):
        os.symlink(os.path.join(source, name), os.path.join(folder, name))
    return folder


def template_args(given):
    if "--chat-template-file" in given:
        return []
    name = given.get("--chat-template", "chatml")
    path = os.path.join(os.environ["MLXCEL_LLAMA_WORK"], f"template-{os.getpid()}.jinja")
    with open(path, "w") as f:
        f.write(TEMPLATES.get(name, name))
    return ["--chat-template-file", path]


def main():
    given = read_flags(sys.argv[1:])
    parallel = int(given.get("--parallel", 4))
    total = int(given.get("--ctx-size", 4096))
    context = total if "--kv-unified" in given else total // parallel
    judge = os.path.join(os.environ["MLXCEL_TEST_DATA"], "golden2", "bert-cross")
    model = judge if "--reranking" in given else make_model(context, "infill" in given.get("--hf-repo", ""))
    program = os.environ["MLXCEL_PROGRAM"]
    args = ["-m", model, "--ctx-size", str(context), "--parallel", str(parallel), "--kv-tokens", str(total), *template_args(given)]
    for name, value in given.items():
        if name in SAME:
            args += [name, value]
        elif name in SAME_FLAGS:
            args.append(name)
    if given.get("--cors-origins", "*" if "--tools" not in given else "localhost") == "*":
        args += ["--cors-origins", "*"]
    # llama-server's own default is to think where the template knows how
    args += ["--reasoning", "off" if given.get("--reasoning") == "off" else "on"]
    if "--verbose" in given:
        args += ["--log-level", "debug"]
    os.execv(program, [program, "serve", *args])


if __name__ == "__main__":
    main()
