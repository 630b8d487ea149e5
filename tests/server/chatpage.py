"""The chat page as its tests see it: a browser, the page of a server in it, and what a person does there."""
import contextlib
import json
import shutil

import harness
from devtools import Browser

ENDLESS = """const plain = window.fetch;
             window.fetch = (url, o) => plain(url, o?.body ? {...o, body: JSON.stringify({...JSON.parse(o.body), ignore_eos: true})} : o)"""
WRITING = 'document.querySelector(".assistant > .md")?.textContent.length > 5'


@contextlib.contextmanager
def browser(what):
    """A browser, ended with the block. Where there is none, that is said, and the test is over."""
    program = next((p for p in ("chromium", "chromium-browser", "google-chrome") if shutil.which(p)), None)
    if not program:
        harness.skip(f"{what}: no browser here")
        harness.finish()
    b = Browser(program)
    try:
        yield b
    finally:
        if b.process.poll() is None:
            b.close()


def open_page(b, url):
    b.call("Page.navigate", url=url)
    return b.wait('document.getElementById("dot")?.className === "on"')


def fresh_page(b, url):
    """The page as somebody sees it who was never here."""
    open_page(b, url)
    b.run("localStorage.clear(); location.hash = ''")
    b.call("Page.reload")
    return b.wait('document.readyState === "complete" && document.getElementById("dot")?.className === "on" && !chats.length')


def ask(b, text):
    b.run('document.getElementById("input").focus()')
    b.type(text)
    b.key("Enter", text="\r")


def idle(b):
    return b.wait('document.getElementById("stop").classList.contains("hidden")')


def answers(b):
    return b.run('[...document.querySelectorAll(".assistant > .md")].map(n => n.textContent)')


def titles(b):
    return b.run('[...document.querySelectorAll("#chats .open")].map(n => n.textContent)')


def press(b, text, within="document"):
    """The button with this text or label."""
    return b.run(f"""(() => {{ const n = [...{within}.querySelectorAll("button")].find(n => n.offsetParent && (n.textContent.trim() === {json.dumps(text)} || n.getAttribute("aria-label") === {json.dumps(text)}));
                     n?.click(); return Boolean(n); }})()""")


def sent(b):
    """The bodies of all chats so far."""
    asked = [e["params"]["request"] for e in b.events if e["method"] == "Network.requestWillBeSent"]
    return [json.loads(r["postData"]) for r in asked if r["url"].endswith("/v1/chat/completions") and "postData" in r]
