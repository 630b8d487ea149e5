"""The examples of README.md, docs/cli.md and the guide: which there are, what they become on a machine without a hub, and who tries those that cannot be run here."""
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Each page with what its words in capitals, and what is too large for a test, stand for; the longer ones come first.
PAGES = {"README.md": {}, "docs/cli.md": {"path/to/reranker": "reranker"}, "docs/start.md": {}, "docs/install.md": {}, "docs/questions.md": {}, "docs/windows.md": {}, "docs/wsl2.md": {},
         "docs/models.md": {"MODEL OWNER/NAME": "qwen3:0.6b acme/another", "OWNER/NAME": "mlx-community/Qwen3-0.6B-4bit", "--verify NAME": "--verify acme/copy", "WORD...": "qwen3"},
         "docs/offline.md": {"download OWNER/NAME --local-dir NAME": "download mlx-community/Qwen3-0.6B-4bit --local-dir carried", "import NAME OWNER/NAME": "import carried acme/carried", "OWNER/NAME": "acme/carried",
                             "path/to/NAME": "carried"},
         "docs/large.md": {},
         "docs/adapters.md": {"-m MODEL --adapter DIR -o NEW": "-m fixtures/llama --adapter fixtures/mlx-lora -o fused-by-adapter", "-m MODEL --surgery FILE -o NEW": "-m folder --surgery edits.toml -o fused-by-edits",
                              "-m MODEL": "-m fixtures/llama", "=DIR": "=fixtures/mlx-lora", "adapter DIR": "adapter fixtures/mlx-lora", "=OTHER": "=fixtures/peft-plain", "path/to/other": "folder", "layers.3": "layers.1"},
         "docs/grammar.md": {"--schema schema.json < text": "--schema schema.json < answer.json", "--gbnf rules.gbnf -m MODEL < text": "--gbnf rules.gbnf -m folder < words", "--json < text": "--json < words"},
         "docs/slow-paths.md": {"bench -m MODEL": "bench -m folder -p 64 -n 8 -r 1", "MODEL": "folder", "NAME": "tiny"},
         "docs/SPEED.md": {"--shape NAME --image 1024x1024": "--shape gemma-3-4b/1 --image 224x224 -r 1", "bench --shape NAME": "bench --shape tiny -p 64 -n 8 -r 1", "NAME": "tiny", "BITS": "4", "BATCH": "2"},
         "docs/speculation.md": {"MODEL": "folder"}, "docs/images.md": {"MODEL": "seeing", "--out FILE": "--out logits.bin"}}
# Files that a page shows, by the page and the language of the block: they are written down for the commands of the page.
FILES = {("docs/adapters.md", "toml"): "edits.toml", ("docs/adapters.md", "yaml"): "edits.yaml"}
# Pages whose examples another test runs line by line, with a balancer and ports of their own.
OTHERS = {"docs/scale.md": "tests/scale/test_page.py"}
# What is measured is a small shape on the processor; servers have a port of their own, and nothing opens a browser.
CHANGES = {"--port 8080": "", "--shape qwen3-0.6b": "--shape tiny -r 1", "--shape llama-3.2-1b -p 512 -n 128": "--shape tiny -p 64 -n 8 -r 1", " --open": "", "curl.exe": "curl", "--device cuda": "--device cpu",
           "-p 2048": "-p 64", "-n 128": "-n 8", "-n 64": "-n 8", "-b 1,64": "-b 1,2", "-c 4096": "-c 256"}
SHORT = {"mlxcel generate --image FILE", "mlxcel generate", "mlxcel grammar"}  # mentioned in a sentence, not to be typed; those with a model are on the page, too
FIRST = re.compile(r"(mlxcel|cat|echo|curl|sha256sum|make) ?\b")
SCRIPT = re.compile(r"(?:python3 )?((?:bench|tests)/\S+\.py)\b")
INLINE = re.compile(r"`((?:mlxcel|cat|make|sudo|tar|sha256sum|certutil|powershell|wsl|chcp|curl|git|python3|bench/\w+\.py|tests/\S+\.py) [^`\n]+)`")
# What other tests run, with a word of theirs.
ELSEWHERE = {
    "tar xf FILE && mlxcel-*/mlxcel run": ("tests/release/test_first.py", "tar.extractall"),
    "sudo dpkg -i FILE": ("tests/release/test_release.py", '"dpkg"'),
    "sudo rpm -i FILE": ("tests/release/test_release.py", '"rpm"'),
    "sudo dpkg -i mlxcel_VERSION_amd64.deb": ("tests/release/test_release.py", '"dpkg"'),
}
# What needs Windows itself; scripts of ours have to be there and know their words.
OF_WINDOWS = {
    "certutil -hashfile mlxcel-windows-x86_64-cuda13.zip SHA256": None,
    "wsl --update": None,
    "chcp 65001": None,
    "powershell -ExecutionPolicy Bypass -File service.ps1 install -Model mlx-community/Qwen3-0.6B-4bit": "packaging/windows/service.ps1",
    "powershell -ExecutionPolicy Bypass -File service.ps1 remove": "packaging/windows/service.ps1",
    "powershell -ExecutionPolicy Bypass -File smoke.ps1": "packaging/windows/smoke.ps1",
}


def read(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as f:
        return f.read()


def guide():
    """The pages that the index calls the guide."""
    section = re.search(r"^## Guide\n(.*?)^## ", read("docs/README.md"), re.M | re.S).group(1)
    return ["docs/" + name for name in re.findall(r"\(([\w-]+\.md)\)", section)]


def blocks(page):
    """(language, lines) of each block of code, indented or fenced."""
    for m in re.finditer(r"^```(\w*)\n(.*?)^```|(?<=\n\n)((?: {4}[^\n]+\n)+)", read(page), re.M | re.S):
        text = m.group(2) if m.group(2) is not None else m.group(3)
        yield m.group(1) or "", [line.strip() for line in text.splitlines() if line.strip()]


def examples(page):
    """Lines of blocks, and commands of the running text, without their comments. The sentences of docs/cli.md are those of --help, with its blocks as examples."""
    for language, lines in blocks(page):
        if not language:
            yield from (re.sub(r"\s+#.*$", "", line) for line in lines if page != "docs/cli.md" or FIRST.match(line))
    if page != "docs/cli.md":
        yield from (c for c in INLINE.findall(read(page)) if c not in SHORT)


def files(page):
    """(name, text) of the files that a page shows; a block in a language that nothing is known of has no name."""
    for language, lines in blocks(page):
        if language:
            yield FILES.get((page, language)), local_form(page, "\n".join(lines) + "\n")


def local_form(page, command, port=0):
    for word, name in {**PAGES[page], **CHANGES, "127.0.0.1:8080": f"127.0.0.1:{port}"}.items():
        command = command.replace(word, name)
    return command


def strangers():
    """Examples that nothing runs: those of pages and of kinds that nobody has put into the tables above."""
    for page in ["README.md", *guide()]:
        if page in OTHERS:
            if f'"{page}"' not in read(OTHERS[page]) or OTHERS[page] not in read("tests/suites.list"):
                yield f"{page}: {OTHERS[page]} does not read it, or no suite runs that"
            continue
        if page not in PAGES:
            yield f"{page} is a page of the guide, and its examples are not run"
            continue
        for command in examples(page):
            if not FIRST.match(command) and not SCRIPT.match(command) and command not in ELSEWHERE and command not in OF_WINDOWS:
                yield f"{page}: nothing runs {command!r}"
        yield from (f"{page}: nothing reads the block that begins with {text[:40]!r}" for name, text in files(page) if not name)
