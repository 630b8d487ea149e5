#!/usr/bin/env python3
"""What the chat page has beyond a talk: models, files and pictures, branches, names, search, export and import, prompts and schemas of one
conversation, tools, thoughts, probabilities. In a browser, on a desktop and on a phone, light and dark, with what was sent.

usage: test_page_parts.py PROGRAM [DATA [FOLDER for pictures]]      last line: "N passed, N failed[, N skipped]"
"""
import base64
import json
import os
import struct
import sys
import tempfile
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import crafted  # noqa: E402
import harness  # noqa: E402
from chatpage import SCREENS, answers, ask, browser, fresh_page, idle, look, open_page, press, sent, titles  # noqa: E402
from harness import Server, check  # noqa: E402

def set_boxes(b, **values):
    """The settings as a person fills them in."""
    b.run('document.getElementById("settings").click()')
    for name, text in values.items():
        b.run(f'document.getElementById("{name.replace("_", "-", 1)}").value = {json.dumps(text)}')
    # the page takes them in its own handler of this event, which comes a little after the dialog is gone
    b.run('taken = false; document.getElementById("dialog").addEventListener("close", () => { taken = true; }, {once: true})')
    b.run('document.querySelector("#dialog button[value=ok]").click()')
    return b.wait("taken")


def check_models(program, b, picture, folder):
    for name, word in (("alpha", "one"), ("beta", "four")):
        crafted.make(os.path.join(folder, name), [crafted.GO, word, crafted.END])
    with Server(program, "-m", os.path.join(folder, "alpha"), "-m", os.path.join(folder, "beta")) as s:
        fresh_page(b, s.url)
        check(b.run('[...document.getElementById("pick").options].map(o => o.value)') == ["alpha", "beta"] and b.run('document.getElementById("pick").checkVisibility()'), "both models are offered")
        ask(b, "hello")
        check(idle(b) and answers(b) == ["one"] and sent(b)[-1].get("model") == "alpha", f"the first one answers: {answers(b)}")
        b.run('(() => { const p = document.getElementById("pick"); p.value = "beta"; p.onchange(); })()')
        ask(b, "hello")
        check(idle(b) and answers(b) == ["one", "four"] and sent(b)[-1].get("model") == "beta", f"then the other one: {answers(b)}")
        press(b, "New conversation")
        check(b.run('document.getElementById("pick").value') == "beta", "a new conversation takes the last choice")
        b.run('(() => { const p = document.getElementById("pick"); p.value = "alpha"; p.onchange(); openChat(chats[0]); })()')
        check(b.run('document.getElementById("pick").value') == "beta", "each conversation keeps its own")
        b.call("Page.reload")
        check(b.wait('document.getElementById("dot")?.className === "on" && document.getElementById("pick").value === "beta"'), "also over a reload")
        look(b, "models", picture)
    with Server(program, "--parallel", "1") as s:
        fresh_page(b, s.url)
        check(b.run('document.getElementById("pick").classList.contains("hidden")'), "one model needs no choice")
        check(b.run('meet([]), document.getElementById("model").textContent') == "the server has no model", "none is said to be none")


def check_branches(program, b, picture):
    with Server(program, "--parallel", "1") as s:
        fresh_page(b, s.url)
        b.run("settings.max_tokens = 12; settings.temperature = 1.5")
        ask(b, "A dog")
        idle(b)
        first = answers(b)
        press(b, "Regenerate")
        idle(b)
        second = answers(b)
        place = '[...document.querySelectorAll(".branch")].map(n => n.textContent)'
        check(len(second) == 1 and b.run(place) == ["2/2"], f"a second answer beside the first: {b.run(place)}")
        check(press(b, "The branch before") and answers(b) == first and b.run(place) == ["1/2"], "back to the first one")
        ask(b, "And then?")
        check(idle(b) and len(answers(b)) == 2, "it goes on from there")
        check([m["content"] for m in sent(b)[-1]["messages"]] == ["A dog", first[0], "And then?"], f"with what is shown: {sent(b)[-1]['messages']}")
        press(b, "The next branch")
        check(answers(b) == second, "the other branch has not gone on")
        press(b, "The branch before")
        check(len(answers(b)) == 2, "and the first one has")
        b.run('document.querySelectorAll(".turn .edit")[1].click(); document.getElementById("input").value = ""')
        ask(b, "Why?")
        check(idle(b) and b.run(place) == ["1/2", "2/2"], f"an edit is a branch, too: {b.run(place)}")
        look(b, "branches", picture)
        b.call("Page.reload")
        b.wait('document.getElementById("dot")?.className === "on"')
        check(b.run(place) == ["1/2", "2/2"], "branches are kept")
        b.run("window.confirm = () => true; document.querySelectorAll('.turn .remove')[1].click()")
        check(b.run('[...document.querySelectorAll(".msg.user")].map(n => n.textContent)') == ["A dog", "And then?"] and b.run(place) == ["1/2"], "a deleted branch leaves the other")
        b.run("document.querySelectorAll('.turn .remove')[1].click()")
        check(b.run('current.messages.length') == 2, "the last one of its place leaves none")


def check_list(program, b, picture, folder):
    """Names, search, export, import."""
    with Server(program, "--parallel", "1") as s:
        fresh_page(b, s.url)
        b.run("settings.max_tokens = 3")
        for text in ("Apples are red", "Pears are green"):
            press(b, "New conversation")
            ask(b, text)
            idle(b)
        b.run('document.getElementById("search").value = "APPLES red"; document.getElementById("search").oninput()')
        check(titles(b) == ["Apples are red"], f"search by title: {titles(b)}")
        press(b, "Rename")  # of the open one, which the search hides
        b.run('document.getElementById("search").value = ""; document.getElementById("search").oninput()')
        press(b, "Rename")
        b.run('document.getElementById("name").value = ""; document.getElementById("name").focus()')
        b.type("Fruit")
        b.key("Enter", text="\r")
        check(titles(b) == ["Fruit", "Apples are red"], f"renamed: {titles(b)}")
        press(b, "Rename")
        b.type("Nuts")
        b.key("Escape")
        check(titles(b) == ["Fruit", "Apples are red"] and not b.run('document.body.classList.contains("menu")'), f"Escape keeps the name: {titles(b)}")
        b.run('document.getElementById("search").value = "pears"; document.getElementById("search").oninput()')
        check(titles(b) == ["Fruit"] and "Pears are green" in b.run('document.querySelector(".where")?.textContent || ""'), "search in the texts, with the place")
        look(b, "search", picture)
        b.run('document.getElementById("search").value = "plums"; document.getElementById("search").oninput()')
        check(titles(b) == [] and "Nothing found" in b.run('document.getElementById("chats").textContent'), "nothing is said to be found")
        b.run('document.getElementById("search").value = ""; document.getElementById("search").oninput()')
        check_files(b, folder)


def give_files(b, button, *paths):
    """As a person does it: the button makes the browser ask for files."""
    b.call("Page.setInterceptFileChooserDialog", enabled=True)
    n_before, end = len(b.events), time.monotonic() + harness.HANG
    b.call("Runtime.evaluate", expression=f'document.getElementById("{button}").click()', userGesture=True)
    while not (asked := [e for e in b.events[n_before:] if e["method"] == "Page.fileChooserOpened"]) and time.monotonic() < end:
        b.run("0")
        time.sleep(0.05)
    if check(asked, f"the button {button} asks for files"):
        b.call("DOM.setFileInputFiles", files=list(paths), backendNodeId=asked[-1]["params"]["backendNodeId"])


def check_files(b, folder):
    b.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder)
    press(b, "Export all")
    path = os.path.join(folder, "conversations.json")
    check(b.wait("true") and wait_file(path), "the file is written")
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    check([c["title"] for c in data["conversations"]] == ["Fruit", "Apples are red"] and data["conversations"][0]["messages"][0]["content"] == "Pears are green", f"exported: {data}")
    give_files(b, "import", path)
    check(b.wait('document.getElementById("rate").textContent.includes("2 were here already")') and len(titles(b)) == 2, "what is here already is not taken twice")
    b.run("window.confirm = () => true; for (const c of [...chats]) dropChat(c)")
    check(titles(b) == [], "all deleted")
    give_files(b, "import", path)
    check(b.wait('document.querySelectorAll("#chats .open").length === 2') and titles(b) == ["Fruit", "Apples are red"], f"and brought back: {titles(b)}")
    b.call("Page.reload")
    check(b.wait('document.readyState === "complete" && document.querySelectorAll("#chats .open").length === 2') and titles(b) == ["Fruit", "Apples are red"], f"and kept: {titles(b)}")
    b.run("openChat(chats[0])")
    check(len(answers(b)) == 1, "with its messages")
    for text, words in (("no JSON", "no file that this page"), ('{"format": "mlxcel conversations", "version": 1, "conversations": [{"messages": [{"role": "pirate"}]}]}', "a message without a role")):
        with open(os.path.join(folder, "bad.json"), "w", encoding="utf-8") as f:
            f.write(text)
        give_files(b, "import", os.path.join(folder, "bad.json"))
        check(b.wait(f'document.getElementById("rate").textContent.includes("{words}")') and len(titles(b)) == 2, f"a bad file: {b.run('document.getElementById(`rate`).textContent')}")


def wait_file(path):
    end = time.monotonic() + harness.HANG
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.1)
    return os.path.exists(path)


def png(width, height):
    """A picture with a colour for each place."""
    rows = b"".join(b"\0" + bytes(v for x in range(width) for v in (x % 256, y % 256, (x * y) % 256)) for y in range(height))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))  # noqa: E731
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


BRING = """(() => { const t = new DataTransfer(), bytes = Uint8Array.from(atob(%s), c => c.charCodeAt(0));
            t.items.add(new File([bytes], %s, {type: %s})); %s })()"""


def bring(b, name, kind, data, how):
    event = {"paste": 'document.getElementById("input").dispatchEvent(new ClipboardEvent("paste", {clipboardData: t, bubbles: true, cancelable: true}));',
             "drop": 'document.getElementById("thread").dispatchEvent(new DragEvent("drop", {dataTransfer: t, bubbles: true, cancelable: true}));'}[how]
    b.run(BRING % (json.dumps(base64.b64encode(data).decode()), json.dumps(name), json.dumps(kind), event))


def check_attachments(program, b, picture, folder):
    with Server(program, "--parallel", "1") as s:
        fresh_page(b, s.url)
        b.run("settings.max_tokens = 3")
        chips = '[...document.querySelectorAll(".chip")].map(n => n.textContent)'
        with open(os.path.join(folder, "notes.md"), "w", encoding="utf-8") as f:
            f.write("A note with ``` in it.\n")
        give_files(b, "attach", os.path.join(folder, "notes.md"))
        check(b.wait(chips + '.length === 1'), "a file by the button")
        bring(b, "more.txt", "text/plain", "zwölf Boxkämpfer".encode(), "drop")
        check(b.wait(chips + '.length === 2'), "a file that is dropped")
        bring(b, "bad.bin", "application/octet-stream", b"\xff\xfe\0\1", "drop")
        check(b.wait('document.getElementById("rate").textContent.includes("bad.bin was not taken")') and b.run(chips) == ["notes.md", "more.txt"], "what is neither text nor a picture is refused")
        press(b, "Remove more.txt")
        bring(b, "other.txt", "text/plain", b"Other.", "paste")
        check(b.wait(chips + '.join() === "notes.md,other.txt"'), f"removed, and one that is pasted: {b.run(chips)}")
        ask(b, "What is this?")
        idle(b)
        text = sent(b)[-1]["messages"][-1]["content"]
        check(text == "notes.md:\n````\nA note with ``` in it.\n````\n\nother.txt:\n```\nOther.\n```\n\nWhat is this?", f"files are written into the message: {text!r}")
        check(b.run('[...document.querySelectorAll(".msg.user details.file summary")].map(n => n.textContent)') == ["notes.md, 23 bytes", "other.txt, 6 bytes"], "and shown folded")
        check(b.run(chips) == [], "the box is empty again")
        look(b, "files", picture)
        check_pictures(b, picture)


def check_pictures(b, picture):
    small, large = png(40, 30), png(2000, 1000)
    bring(b, "small.png", "image/png", small, "paste")
    bring(b, "large.png", "image/png", large, "drop")
    check(b.wait('document.querySelectorAll(".chip img").length === 2'), "pictures by paste and by drop")
    ask(b, "What is there?")
    idle(b)
    parts = sent(b)[-1]["messages"][-1]["content"]
    check([p["type"] for p in parts] == ["image_url", "image_url", "text"] and parts[2]["text"] == "What is there?", f"parts: {str(parts)[:300]}")
    check(parts[0]["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(small).decode(), "a small picture goes as it is")
    sizes = b.run('Promise.all(current.messages.at(-2).images.map(i => new Promise(done => { const n = new Image(); n.onload = () => done([n.width, n.height]); n.src = i.url; })))')
    check(sizes == [[40, 30], [1568, 784]], f"a large one is made smaller: {sizes}")
    check("image" in b.run('document.querySelector(".error")?.textContent || ""') or "picture" in b.run('document.querySelector(".error")?.textContent || ""'), "a model without a tower says so")
    look(b, "pictures", picture)
    b.run('document.querySelectorAll(".turn .edit")[1].click()')
    check(b.run('document.querySelectorAll(".chip img").length') == 2, "an edit has the pictures again")
    b.key("Escape")
    check(b.run('document.querySelectorAll(".chip").length') == 0, "and Escape puts them away")


def check_seeing(program, b, data):
    """A picture that is pasted reaches a model that sees, and is part of its prompt."""
    model = os.path.join(data or "", "golden-vision/smolvlm")
    if not os.path.isdir(model):
        harness.skip("a picture for a model that sees: the test data has none")
        return
    with open(os.path.join(data, "golden-vision/images/land.png"), "rb") as f:
        land = f.read()
    with Server(program, "-m", model, "--device", "cpu") as s:
        fresh_page(b, s.url)
        b.run("settings.max_tokens = 4; settings.temperature = 0")
        ask(b, "What is there?")
        idle(b)
        plain = b.run("current.messages.at(-1).used")
        press(b, "New conversation")
        bring(b, "land.png", "image/png", land, "paste")
        b.wait('document.querySelectorAll(".chip img").length === 1')
        ask(b, "What is there?")
        check(idle(b) and b.run('document.querySelector(".error")') is None, f"no error: {b.run('document.querySelector(`.error`)?.textContent')}")
        seen = b.run("current.messages.at(-1).used")
        check(seen > plain + 10, f"the picture is in the prompt: {plain} tokens without it, {seen} with it")


SCHEMA = {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}}, "required": ["kind"], "additionalProperties": False}


def check_own_settings(program, b, picture):
    """A system prompt and a schema of one conversation; probabilities."""
    with Server(program, "--parallel", "1") as s:
        fresh_page(b, s.url)
        set_boxes(b, s_system="Be brief.", c_system="Be long.", c_schema=json.dumps(SCHEMA), s_max_tokens="400")
        ask(b, "A cat?")
        idle(b)
        body = sent(b)[-1]
        check(body["messages"][0] == {"role": "system", "content": "Be long."}, f"its own system prompt: {body['messages']}")
        check(body.get("response_format") == {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}, f"the schema is sent: {body}")
        said = b.run("current.messages.at(-1).content")
        check(json.loads(said)["kind"] in ("cat", "dog") and b.run('document.querySelector(".assistant pre code").textContent') == said.removesuffix("\n"), f"obeyed, and shown as code: {said}")
        b.run('document.getElementById("settings").click()')
        look(b, "settings", picture)
        b.run('document.getElementById("c-schema").value = "{"; document.querySelector("#dialog button[value=ok]").click()')
        check(b.run('document.getElementById("dialog").open && document.getElementById("wrong").textContent.startsWith("The JSON schema: ")'), "a bad schema is said to be one")
        b.run('document.getElementById("c-schema").value = "[]"; document.querySelector("#dialog button[value=ok]").click()')
        check("an object" in b.run('document.getElementById("wrong").textContent'), "a list is no schema")
        b.run('document.querySelector("#dialog button[value=\'\']").click()')
        check(b.wait('!document.getElementById("dialog").open') and json.loads(b.run("current.schema")) == SCHEMA, "Cancel leaves it as it was")
        press(b, "New conversation")
        set_boxes(b, s_logprobs="5", s_max_tokens="8")
        ask(b, "Hi")
        idle(b)
        body = sent(b)[-1]
        check(body["messages"][0]["content"] == "Be brief." and "response_format" not in body, f"the next one has neither: {body}")
        check((body["logprobs"], body["top_logprobs"]) == (True, 5), f"probabilities are asked for: {body}")
        check_odds(b, picture)


def check_odds(b, picture):
    text = answers(b)[0]
    check(press(b, "Tokens") and b.wait('document.querySelectorAll(".tokens span").length >= 8'), "the answer as tokens")
    check("".join(b.run('[...document.querySelectorAll(".tokens span")].map(n => n.textContent)')).split() == text.split(), "which are its text")
    at = b.run('(r => [r.left + r.width / 2, r.top + r.height / 2])(document.querySelectorAll(".tokens span")[2].getBoundingClientRect())')
    b.call("Input.dispatchMouseEvent", type="mouseMoved", x=at[0], y=at[1])
    rows = '[...document.querySelectorAll("#odds:not(.hidden) tr")].map(n => [...n.children].map(c => c.textContent))'
    check(b.wait(rows + ".length === 5"), f"under the pointer: five that could stand there: {b.run(rows)}")
    odds = [float(p.removesuffix(" %")) for _, p in b.run(rows)]
    check(odds == sorted(odds, reverse=True) and sum(odds) <= 100.3, f"from likely to unlikely: {odds}")
    picture("odds")
    b.call("Input.dispatchMouseEvent", type="mouseMoved", x=5, y=5)
    check(b.wait('document.getElementById("odds").classList.contains("hidden")'), "and away again")
    look(b, "tokens", picture)
    check(press(b, "Text") and answers(b) == [text], "back to the text")


TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}]


def check_tools(program, b, picture, folder):
    crafted.make(os.path.join(folder, "agent"), crafted.AGENT, template=crafted.AGENT_TEMPLATE)
    with Server(program, "-m", os.path.join(folder, "agent")) as s:
        fresh_page(b, s.url)
        set_boxes(b, c_tools=json.dumps(TOOLS))
        ask(b, "hello")
        answered = b.wait('document.querySelectorAll(".assistant").length === 1') and idle(b)
        check(answered and sent(b)[-1].get("tools") == TOOLS, f"the tools are sent: {sent(b)[-1]}")
        check(b.run('[...document.querySelectorAll("details.call")].map(n => [n.open, n.firstChild.textContent])') == [[False, "Call of weather"]], "the call is there, folded")
        check(json.loads(b.run('document.querySelector("details.call pre").textContent')) == {"city": "Bonn", "days": 2}, "with its arguments")
        look(b, "tools", picture)
        b.run('document.querySelector(".results textarea").value = "sunny"')
        check(press(b, "Send the result") and b.wait('document.querySelectorAll(".assistant").length === 2') and idle(b), "a result is sent")
        turns = sent(b)[-1]["messages"]
        call = turns[1]["tool_calls"][0]
        check(turns[2] == {"role": "tool", "tool_call_id": call["id"], "content": "sunny"} and call["function"]["name"] == "weather" and call["id"], f"as the protocol has it: {turns}")
        check(answers(b)[-1] == "It is sunny in Bonn.", f"and answered: {answers(b)}")
        check(b.run('document.querySelector(".results")') is None, "no box is left over")
        open_page(b, s.url + "/#" + b.run("current.id"))
        check(b.wait('document.querySelectorAll("details.call").length === 2'), "kept over a reload")
    crafted.make(os.path.join(folder, "thinker"), crafted.SCRIPT)
    with Server(program, "-m", os.path.join(folder, "thinker")) as s:
        fresh_page(b, s.url)
        ask(b, "hello")
        check(idle(b) and b.run('[...document.querySelectorAll("details.think")].map(n => [n.open, n.firstChild.textContent, n.lastChild.textContent])') == [[False, "Thoughts", "Two and two"]],
              "thoughts are folded when the answer is there")
        check(answers(b) == ["The sum is four."], f"the answer: {answers(b)}")
        check("s in all" in b.run('document.querySelector(".stats").textContent'), "its time is shown")


def main():
    program, data, pictures = (sys.argv[1:] + [None, None])[:3]
    with browser("the parts of the chat page") as b, tempfile.TemporaryDirectory() as folder:
        def picture(name):
            if pictures:
                b.picture(os.path.join(pictures, name + ".png"))
        b.screen(*SCREENS[0])
        for domain in ("Page", "Runtime", "DOM"):
            b.call(f"{domain}.enable")
        b.call("Network.enable", maxPostDataSize=1 << 24)
        harness.parts((check_models, program, b, picture, folder), (check_branches, program, b, picture), (check_list, program, b, picture, folder),
                      (check_attachments, program, b, picture, folder), (check_seeing, program, b, data), (check_own_settings, program, b, picture), (check_tools, program, b, picture, folder))
        errors = [e["params"] for e in b.events if e["method"] == "Runtime.exceptionThrown"]
        check(not errors, f"errors in the page: {errors}")
    harness.finish()


if __name__ == "__main__":
    main()
