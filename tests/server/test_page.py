#!/usr/bin/env python3
"""The chat page in a real browser: streaming, stop, regenerate, storage, tabs, themes, phone; model text never becomes markup.

usage: test_page.py PROGRAM [FOLDER for pictures]      last line: "N passed, N failed[, N skipped]"
"""
import json
import os
import sys

import harness
from chatpage import CONTRAST, ENDLESS, SCREENS, WRITING, answers, ask, browser, fresh_page, idle, look, open_page, sent, titles
from harness import SLOW, Server, check, free_port, parts

NASTY = """# Title <b>x</b>

<img src=x onerror="window.pwned=1"> and <script>window.pwned=2</script> with **bold**, *slanted*, `code <i>` and
[a link](javascript:window.pwned=3) or [another](https://example.org/?a=1&b=2) and https://example.com/path.

- one
- two
  1. inner
  2. more

| a | b |
|---|---|
| 1 | <u>2</u> |

> quoted **text**

```html
<script>window.pwned=4</script>
<style>body{display:none}</style>
```
~~gone~~ ![i](https://example.org/i.png) ***"""


def check_markdown(b, picture):
    b.run(f"""(() => {{ const d = document.createElement("div"); d.id = "probe"; d.className = "md"; d.append(...markdown({json.dumps(NASTY)}));
              document.getElementById("thread").replaceChildren(d); }})()""")
    count = {tag: b.run(f'document.querySelectorAll("#probe {tag}").length')
             for tag in ("img", "script", "style", "b", "u", "i", "h1", "strong", "em", "li", "ol", "table", "td", "blockquote", "pre", "a", "s")}
    check(all(count[t] == 0 for t in ("img", "script", "style", "b", "u", "i")), f"markup of the text became markup: {count}")
    check(b.run('document.querySelectorAll("#probe .w-tag").length') > 2, "code has its colours")
    check(count["h1"] == 1 and count["li"] == 4 and count["ol"] == 1 and count["td"] == 2 and count["pre"] == 1 and count["s"] == 1, f"markdown: {count}")
    links = b.run('[...document.querySelectorAll("#probe a")].map(a => a.href)')
    check(all(u.startswith("https://example.") for u in links) and len(links) >= 2, f"links: {links}")
    b.run('document.getElementById("probe").click()')
    check(b.run("window.pwned") is None, "the text ran a script")
    picture("markdown")
    for text in ("```", "`", "**", "[x](", "| a |\n|---|", "- ", "1. ", "#", ">", "_" * 5000, "*a" * 3000, "[" * 3000, "`" * 3000, "- x\n" * 2000):
        b.run(f"void markdown({json.dumps(text)})")
    check(True, "")
    b.run('document.getElementById("probe").remove()')


def check_talk(b, picture):
    ask(b, "Tell me a story about a dog.")
    check(b.wait('document.querySelector(".assistant > .md")?.textContent.length > 5'), "text streams in")
    check(idle(b), "the answer ends")
    first = answers(b)
    check(len(first) == 1 and len(first[0]) > 20, f"an answer: {first}")
    check("tokens/s" in b.run('document.querySelector(".assistant .stats")?.textContent || ""'), "the rate is shown")
    picture("talk")
    b.run('[...document.querySelectorAll(".assistant button")].find(n => n.textContent === "Regenerate").click()')
    check(idle(b) and len(answers(b)) == 1, "regenerate replaces the answer")
    b.run('settings.max_tokens = 900')
    ask(b, "And then?")
    check(b.wait('document.querySelectorAll(".assistant > .md")[1]?.textContent.length > 5'), "a second answer begins")
    b.key("Escape")
    check(idle(b), "Esc stops")
    check(b.run('document.activeElement.id') == "input", "the cursor is back in the box")
    before = answers(b)
    b.run('document.querySelectorAll(".turn .edit")[1].click()')
    check(b.run('document.getElementById("input").value') == "And then?" and answers(b) == before, "editing keeps what there is")
    picture("editing")
    b.key("Escape")
    check(b.run('document.getElementById("input").value') == "" and answers(b) == before, "Esc gives the edit up")
    b.run('settings.max_tokens = 12')
    b.run('document.querySelectorAll(".turn .edit")[1].click()')
    ask(b, " Why?")
    check(idle(b) and b.run('document.querySelectorAll(".turn .user")[1].textContent') == "And then? Why?", "an edited message is sent")
    check(len(answers(b)) == 2 and "tokens of context" in b.run('document.getElementById("rate").textContent'), "how full the context is")


def check_sent(b):
    """What went over the wire: a question at the end, no empty turns, and no setting that nobody chose."""
    bodies = sent(b)
    check(len(bodies) >= 4, f"chats were asked: {len(bodies)}")
    for body in bodies:
        turns = [(m["role"], bool(m["content"])) for m in body["messages"]]
        check(turns[-1] == ("user", True) and all(full for _, full in turns), f"turns: {turns}")
        check(set(body) <= {"messages", "stream", "stream_options", "max_tokens"}, f"settings that nobody chose: {body}")


def check_roles(b):
    """Roles alternate also where an answer failed or has no text: templates of many models insist on it."""
    sent = b.run("""(() => { const kept = current;
                     current = {messages: [{role: "user", content: "a"}, {role: "assistant", content: "", error: "lost"}, {role: "user", content: "b"},
                                           {role: "assistant", content: "c"}, {role: "user", content: "d"}, {role: "assistant", content: "", reasoning: ""}]};
                     try { return JSON.parse(requestBody(current)).messages.map(m => m.role + " " + m.content); } finally { current = kept; } })()""")
    check(sent == ["user a\n\nb", "assistant c", "user d"], f"roles: {sent}")


def check_kept(b, url):
    before = answers(b)
    b.call("Page.navigate", url=url)
    check(b.wait('document.readyState === "complete" && document.querySelectorAll("#chats .open").length > 0'), "conversations are listed again")
    b.run('document.querySelector("#chats .open").click()')
    check(answers(b) == before, "the conversation is as it was")
    title = b.run('document.querySelector("#chats .open").textContent')
    check(title.startswith("Tell me a story"), f"title {title}")


def check_whole(b, url, size, theme, picture):
    """A talk from its first word to the reload, on one kind of screen."""
    b.screen(*size)
    fresh_page(b, url)
    b.run(f'for (let i = 0; i < 3 && settings.theme !== "{theme}"; i++) document.getElementById("theme").click()')
    check_talk(b, lambda name: picture(f"{name}-{size[0]}-{theme}"))
    check(b.run("document.documentElement.scrollWidth") <= size[0] and b.run("innerWidth") == size[0], f"{size[0]} pixels, {theme}: nothing is wider")
    low = b.run(CONTRAST)
    check(not low, f"{size[0]} pixels, {theme}: hard to read: {low}")
    check_roles(b)
    check_sent(b)
    check_kept(b, url)
    shown = b.run('getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)')
    check((sum(shown) < 384) == (theme == "dark"), f"{size[0]} pixels, {theme}: the colours stay over a reload: {shown}")


def done(b):
    b.run('document.querySelector("#dialog button[value=ok]").click()')


def give_up(b):
    """Escape in the settings, and back when the page has taken note of it: that comes a little after the dialog is gone."""
    b.run('noted = false; document.getElementById("dialog").addEventListener("close", () => { noted = true; }, {once: true})')
    b.key("Escape")
    return b.wait("noted && !document.getElementById('dialog').open")


def check_looks(b, picture):
    look(b, "a talk", picture)
    light = b.run('getComputedStyle(document.body).backgroundColor')
    b.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    check(b.run('getComputedStyle(document.body).backgroundColor') != light, "dark by the system")
    picture("desktop-dark")
    b.run('document.getElementById("theme").click()')
    check(b.run('getComputedStyle(document.body).backgroundColor') == light, "light by choice")
    b.run('document.getElementById("settings").click()')
    check(b.run('document.getElementById("dialog").open'), "settings open")
    picture("settings")
    b.run('(() => { const r = document.querySelector("[data-for=s-top_p]"); r.value = "0.5"; r.oninput(); })()')
    check(b.run('document.getElementById("s-top_p").value') == "0.5", "sliders move their numbers")
    b.run('document.getElementById("s-system").value = "Be brief."; document.getElementById("s-temperature").value = "0.3"')
    check(give_up(b) and b.run("[settings.system, settings.temperature, settings.top_p]") == ["", "", ""], "Escape takes no settings")
    b.run('document.getElementById("settings").click()')
    check(b.run('document.getElementById("s-system").value') == "", "and the next look shows none")
    b.run('document.getElementById("s-system").value = "Be brief."; document.getElementById("s-temperature").value = "0.3"; document.getElementById("s-top_p").value = "0.5"')
    done(b)
    check(b.wait('!document.getElementById("dialog").open && settings.system === "Be brief."'), "settings are kept")
    body = json.loads(b.run("requestBody(current)"))
    check(body["messages"][0] == {"role": "system", "content": "Be brief."}, "the system prompt is sent")
    check((body.get("temperature"), body.get("top_p")) == (0.3, 0.5) and not {"top_k", "min_p", "repetition_penalty"} & set(body), f"what was chosen is sent: {body}")
    b.run('document.getElementById("settings").click(); document.getElementById("s-temperature").value = ""')
    done(b)
    check(b.wait('settings.temperature === ""') and "temperature" not in json.loads(b.run("requestBody(current)")), "what is emptied again is the server's")
    b.run('document.getElementById("settings").click(); document.getElementById("s-system").value = "Be long."')
    check(give_up(b) and b.run("settings.system") == "Be brief.", "Escape takes none either when settings were taken before")
    b.screen(390, 844, mobile=True)
    check(b.run("document.documentElement.scrollWidth <= 390"), "nothing is wider than a phone")
    picture("phone")
    b.run('document.getElementById("menu").click()')
    check(b.wait('document.getElementById("side").getBoundingClientRect().left === 0', 5), "the list opens on a phone")
    picture("phone-menu")
    b.run('document.getElementById("veil").click(); document.getElementById("settings").click()')
    picture("phone-settings")
    check(b.run("document.getElementById('dialog').scrollWidth <= 390"), "settings fit a phone")
    b.run('document.getElementById("dialog").close(); document.getElementById("menu").click()')
    small = b.run('[...document.querySelectorAll("button")].filter(n => n.offsetParent && n.getBoundingClientRect().height < 30).map(n => n.textContent)')
    check(not small, f"buttons too small for fingers: {small}")


def check_stop_button(program, b):
    """It is there while an answer comes, stops it on the server, and is gone afterwards."""
    shown = '!document.getElementById("stop").classList.contains("hidden") && document.getElementById("send").classList.contains("hidden")'
    with Server(program, *SLOW, "--parallel", "1") as s:
        open_page(b, s.url)
        check(not b.run(shown), "no stop button before")
        b.run("settings.max_tokens = 900;" + ENDLESS)
        ask(b, "Tell me a long story.")
        check(b.wait(shown + ' && document.querySelector(".assistant > .md")?.textContent.length > 5'), "a stop button while the text comes")
        b.run('document.getElementById("stop").click()')
        check(idle(b) and not b.run(shown), "it is gone when the answer has stopped")
        m = s.wait_quiet()
        check(m['mlxcel_generations_total{reason="cancelled"}'] == 1 and m['mlxcel_generations_total{reason="length"}'] == 0, f"the server has stopped too: {m}")
        check(len(answers(b)) == 1 and len(answers(b)[0]) > 5, "what had come stays")


def check_defaults(program, b):
    """The server's own settings are shown and left alone; those that an earlier page stored without being told are none."""
    old = {"system": "S", "temperature": "0.8", "top_p": 0.95, "top_k": 41, "min_p": 0.05, "repetition_penalty": 1, "max_tokens": "", "seed": "", "theme": "dark"}
    with Server(program, "--parallel", "1", "--temperature", "0.35") as s:
        open_page(b, s.url)
        b.run(f'localStorage.clear(); localStorage.setItem("mlxcel.settings", {json.dumps(json.dumps(old))})')
        open_page(b, s.url)
        body = json.loads(b.run("requestBody(current)"))
        check(body.get("top_k") == 41 and not {"temperature", "top_p", "min_p", "repetition_penalty"} & set(body), f"settings of an earlier page: {body}")
        check(b.run("settings.theme") == "dark" and b.run("settings.system") == "S", "its other settings stay")
        b.run('document.getElementById("settings").click()')
        got = b.run('["s-temperature", "s-top_p"].map(id => [document.getElementById(id).value, document.getElementById(id).placeholder])')
        own = json.loads(s.request("/v1/models")[2])["data"][0]["meta"]["sampling"]
        check(got == [["", "0.35"], ["", str(own["top_p"])]], f"the server's settings are shown: {got} {own}")
        check(b.run('document.querySelector("[data-for=s-temperature]").value') == "0.35", "the slider stands there")
        check(give_up(b) and "temperature" not in json.loads(b.run("requestBody(current)")), "a look at the settings changes none")


def check_tabs(program, b):
    """Two tabs: neither loses what the other has, not even in the same conversation."""
    with Server(program, "--parallel", "2") as s:
        open_page(b, s.url)
        old = [{"id": "b2", "title": "second", "messages": [{"role": "user", "content": "x"}]}, {"id": "a1", "title": "first", "messages": [{"role": "user", "content": "y"}]}]
        b.run(f'localStorage.clear(); localStorage.setItem("mlxcel.chats", {json.dumps(json.dumps(old))})')
        open_page(b, s.url)
        other = b.open_tab(s.url)
        check(other.wait('document.getElementById("dot")?.className === "on"'), "a second tab")
        check(titles(b) == titles(other) == ["second", "first"], f"conversations of an earlier page: {titles(b)} {titles(other)}")
        for tab, text in ((b, "Here"), (other, "There"), (b, "More")):
            tab.run(f'settings.max_tokens = 4; newChat(); send("{text}")')
            check(idle(tab), f"an answer to {text}")
        want = ["More", "There", "Here", "second", "first"]
        check(b.wait(f'document.querySelectorAll("#chats .open").length === {len(want)}') and titles(b) == want, f"the first tab knows all: {titles(b)}")
        check(other.wait(f'document.querySelectorAll("#chats .open").length === {len(want)}') and titles(other) == want, f"and so does the second: {titles(other)}")
        open_page(b, s.url)
        check(titles(b) == want, f"and so it is stored: {titles(b)}")
        check_same_chat(b, other, s.url)
        other.run('window.confirm = () => true; dropChat(chats.at(-1))')
        check(b.wait('![...document.querySelectorAll("#chats .open")].some(n => n.textContent === "first")'), "what is deleted there is gone here")
        other.call("Page.close")
        b.call("Page.bringToFront")


def check_same_chat(b, other, url):
    questions = '[...document.querySelectorAll(".turn .user")].map(n => n.textContent)'
    for tab in (b, other):
        tab.run('settings.max_tokens = 4; openChat(chats.find(c => c.title === "Here"))')
    b.run('send("again")')
    check(idle(b) and other.wait(f'{questions}.length === 2 && document.querySelectorAll(".assistant > .md").length === 2'), "the same conversation goes on in both")
    other.run('edit(2)')  # from here on it is at work
    b.run('send("thrice")')
    check(idle(b) and other.run('current.messages.length') == 4, "a conversation at work is left alone")
    other.run('send("else")')
    check(idle(other), "an answer to what was edited")
    kept = sorted(tuple(m["content"] for m in c["messages"] if m["role"] == "user") for c in
                  other.run('Object.keys(localStorage).filter(k => k.startsWith("mlxcel.chat.")).map(k => JSON.parse(localStorage[k])).filter(c => c.title === "Here")'))
    check(kept == [("Here", "again", "thrice"), ("Here", "else")], f"both ways are kept: {kept}")


def check_apart(program, b):
    """An answer goes on while another conversation is read, and a second one can come beside it; text that is selected stays so; a reload keeps what has come."""
    with Server(program, *SLOW, "--parallel", "2") as s:
        fresh_page(b, s.url)
        b.run("settings.max_tokens = 200;" + ENDLESS)
        ask(b, "Alpha")
        check(b.wait(WRITING), "the first answer comes")
        # the first words, selected as a finger does it
        b.run("""(() => { const walk = document.createTreeWalker(document.querySelector(".assistant > .md"), NodeFilter.SHOW_TEXT), text = walk.nextNode(), r = document.createRange();
                 r.setStart(text, 0); r.setEnd(text, Math.min(4, text.length)); getSelection().removeAllRanges(); getSelection().addRange(r); window.had = getSelection().toString();
                 window.long = document.querySelector(".assistant > .md").textContent.length; })()""")
        check(b.wait('document.querySelector(".assistant > .md").textContent.length > window.long + 20') and
              b.run('getSelection().toString() === window.had && window.had.length > 0'), "the selection stays while text comes")
        b.run("getSelection().removeAllRanges(); newChat()")
        check(b.run('document.getElementById("stop").classList.contains("hidden") && jobs.size === 1'), "a new conversation, and the first goes on")
        before = b.run('chats[0].messages.at(-1).content.length')
        ask(b, "Beta")
        check(b.wait(WRITING) and b.run("jobs.size") == 2, "a second answer beside it")
        check(b.wait(f'chats.find(c => c.title === "Alpha").messages.at(-1).content.length > {before}'), "the first one grows meanwhile")
        b.run('openChat(chats.find(c => c.title === "Alpha"))')
        check(b.run('!document.getElementById("stop").classList.contains("hidden")') and b.wait(WRITING), "back to the first: it is still being written")
        check(b.run('location.hash.slice(1) === current.id'), "a conversation has an address")
        b.run('openChat(chats.find(c => c.title === "Beta"))')
        b.run('history.back()')
        check(b.wait('current.title === "Alpha"'), "Back goes to the one before")
        had = b.run('document.querySelector(".assistant > .md").textContent')
        b.call("Page.reload")
        check(b.wait('document.readyState === "complete" && document.getElementById("dot")?.className === "on"'), "loaded again")
        check(b.run('current.title') == "Alpha", "the same conversation is open")
        now = answers(b)
        check(len(now) == 1 and now[0].startswith(had[:40]) and len(now[0]) >= len(had) - 40, f"what had come is there: {now} {had}")
        check("Not finished" in b.run('document.querySelector(".cut")?.textContent || ""'), "and is said to be unfinished")


def check_cut(program, b):
    """An answer that ended at the limit says so, and goes on when it is asked to."""
    with Server(program, "--parallel", "1") as s:
        fresh_page(b, s.url)
        b.run("settings.max_tokens = 6;" + ENDLESS)
        ask(b, "Tell me a story.")
        check(idle(b) and "Cut off" in b.run('document.querySelector(".cut")?.textContent || ""'), "a cut is shown")
        first = answers(b)[0]
        b.run('document.querySelector(".cut button").click()')
        check(b.wait(f'document.querySelector(".assistant > .md").textContent.length > {len(first)}') and idle(b), "Continue brings more")
        body = b.run('requestBody(current, true)')
        check(json.loads(body)["continue_final_message"] is True and json.loads(body)["messages"][-1]["role"] == "assistant", f"asked for as a continuation: {body}")
        check(len(answers(b)) == 1 and answers(b)[0].startswith(first.rstrip()), f"of the same answer: {answers(b)} {first}")
        b.run("""settings.max_tokens = 200;
                 window.fetch = (url, o) => plain(url, o?.body ? {...o, body: JSON.stringify({...JSON.parse(o.body), stop: ["e"]})} : o); send("Bye")""")
        check(idle(b), "an answer that ends by itself")
        check(len(b.run('[...document.querySelectorAll(".cut")].map(n => n.textContent)')) == 1, "is not said to be cut")


def check_fingers(program, b):
    """Where fingers type, Enter breaks the line and the button sends."""
    with Server(program, "--parallel", "1") as s:
        b.screen(390, 844, mobile=True)
        b.call("Emulation.setTouchEmulationEnabled", enabled=True)
        b.call("Emulation.setEmulatedMedia", features=[{"name": "pointer", "value": "coarse"}, {"name": "any-pointer", "value": "coarse"}])
        open_page(b, s.url)
        b.run("localStorage.clear(); settings.max_tokens = 4")
        check(b.run("coarse()"), "a phone is known as one")
        ask(b, "one")
        b.type("two")
        check(b.run('document.getElementById("input").value') == "one\ntwo" and not answers(b), "Enter breaks the line")
        b.run('document.getElementById("send").click()')
        check(idle(b) and b.run('document.querySelector(".turn .user")?.textContent') == "one\ntwo", "the button sends")
        b.call("Emulation.setTouchEmulationEnabled", enabled=False)
        b.call("Emulation.setEmulatedMedia", features=[])
        b.screen(*SCREENS[0])


def check_dot(program, b):
    """The dot follows the server: off when it has ended, on when another has its place."""
    port, dot = free_port(), 'document.getElementById("dot").className'
    with Server(program, "--parallel", "1", port=port) as s:
        check(open_page(b, s.url), "on while it serves")
    check(b.wait(dot + ' === "off"') and b.run('document.getElementById("model").textContent') == "the server does not answer", "off when it has ended")
    with Server(program, "--parallel", "1", "--alias", "another", port=port):
        check(b.wait(dot + ' === "on" && document.getElementById("model").textContent === "another"'), "on again, with the new name")


def main():
    folder = sys.argv[2] if len(sys.argv) > 2 else None
    with browser("the chat page") as b:
        def picture(name):
            if folder:
                b.picture(os.path.join(folder, name + ".png"))
        with Server(sys.argv[1], "--parallel", "2") as s:
            b.screen(*SCREENS[0])
            for domain in ("Page", "Runtime", "Network", "Log"):
                b.call(f"{domain}.enable")
            b.call("Page.navigate", url=s.url)
            check(b.wait('document.getElementById("model")?.textContent === "built-in"'), "the model's name")
            picture("empty")
            parts((check_markdown, b, picture))
            for size in SCREENS:
                for theme in ("light", "dark"):
                    parts((check_whole, b, s.url, size, theme, picture))
            parts((check_looks, b, picture))
            asked = {e["params"]["request"]["url"] for e in b.events if e["method"] == "Network.requestWillBeSent"}
            check(all(u.startswith((s.url, "data:")) for u in asked), f"requests elsewhere: {asked}")
        parts(*((part, sys.argv[1], b) for part in (check_stop_button, check_defaults, check_tabs, check_apart, check_cut, check_fingers, check_dot)))
        errors = [e["params"] for e in b.events if e["method"] == "Runtime.exceptionThrown"]
        check(not errors, f"errors in the page: {errors}")
    harness.finish()


if __name__ == "__main__":
    main()
