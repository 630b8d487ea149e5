"""The chat page as its tests see it: a browser, the page of a server in it, and what a person does there."""
import contextlib
import json
import shutil

import harness
from devtools import Browser

ENDLESS = """const plain = window.fetch;
             window.fetch = (url, o) => plain(url, o?.body ? {...o, body: JSON.stringify({...JSON.parse(o.body), ignore_eos: true})} : o)"""
WRITING = 'document.querySelector(".assistant > .md")?.textContent.length > 5'

SCREENS = ((1280, 800, False), (390, 844, True))
# Of every text that can be seen, the least contrast to what lies behind it.
CONTRAST = """(() => {
  const paint = el("canvas", {width: 1, height: 1}).getContext("2d", {willReadFrequently: true});
  const rgba = c => { paint.clearRect(0, 0, 1, 1); paint.fillStyle = c; paint.fillRect(0, 0, 1, 1); return [...paint.getImageData(0, 0, 1, 1).data]; };
  const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = n => { for (; n; n = n.parentElement) { const c = rgba(getComputedStyle(n).backgroundColor); if (c[3] === 255) return c; } return rgba("white"); };
  const texts = document.createTreeWalker($("dialog").open ? $("dialog") : document.body, NodeFilter.SHOW_TEXT), low = [];
  while (texts.nextNode()) {
    const n = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !n.checkVisibility?.({opacityProperty: true, visibilityProperty: true}) || n.closest(":disabled, .replaced, script, option")) continue;
    const [a, b] = [light(rgba(getComputedStyle(n).color)), light(behind(n))], ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.3) low.push([texts.currentNode.data.slice(0, 30), ratio.toFixed(1)]);
  }
  return low; })()"""


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


def look(b, what, picture):
    """The same on both screens, light and dark: nothing wider than the screen, every text readable, buttons for fingers."""
    for width, height, mobile in SCREENS:
        b.screen(width, height, mobile)
        for theme in ("light", "dark"):
            b.run(f'setTheme("{theme}")')
            wide = b.run("document.documentElement.scrollWidth")
            low = b.run(CONTRAST)
            harness.check(wide <= width and not low, f"{what}, {width} pixels, {theme}: {wide} wide, hard to read: {low}")
            picture(f"{what}-{width}-{theme}")
        small = b.run('[...document.querySelectorAll("button, select")].filter(n => n.offsetParent && n.getBoundingClientRect().height < 30).map(n => n.textContent)')
        harness.check(not small, f"{what}: too small for fingers: {small}")
    b.screen(*SCREENS[0])
    b.run('setTheme("auto")')
