/* The conversation that is open. A message is {role, content} and what belongs to its role: reasoning, tool_calls, tokens, json, stats, cut, error of an
 * answer; files and images of a question; tool_call_id and name of a result; others, where it has branches. */
"use strict";

/* ---- branches: a message that others stand beside holds them, each with all that follows it; chat.messages is what is shown ---- */
/* Makes room for another message in the place of i; the result is to be the new one's `others`. */
function fork(chat, i) {
  const tail = chat.messages.splice(i), others = tail[0].others || {at: 0, tails: [null]};
  delete tail[0].others;
  others.tails[others.at] = tail;
  others.tails.push(null);
  others.at = others.tails.length - 1;
  return others;
}
function turnTo(chat, i, n) {
  const tail = chat.messages.splice(i), others = tail[0].others;
  delete tail[0].others;
  others.tails[others.at] = tail;
  chat.messages.push(...others.tails[n]);
  others.tails[n] = null;
  others.at = n;
  chat.messages[i].others = others;
}
/* Takes away the message at i and what follows it; where it had branches, the one before it is shown. */
function dropMessage(chat, i) {
  const others = chat.messages[i].others;
  chat.messages.splice(i);
  if (!others) return;
  others.tails.splice(others.at, 1);
  const n = Math.max(0, others.at - 1);
  chat.messages.push(...others.tails[n]);
  others.tails[n] = null;
  others.at = n;
  if (others.tails.length > 1) chat.messages[i].others = others;
}
function branchNode(m, i) {
  const {at, tails} = m.others, go = n => { if (jobs.has(current)) return; turnTo(current, i, n); keep(current); show(); };
  const before = plainButton("left", "The branch before", () => go(at - 1)), next = plainButton("right", "The next branch", () => go(at + 1));
  before.disabled = at === 0;
  next.disabled = at === tails.length - 1;
  return el("span", {className: "branch"}, before, `${at + 1}/${tails.length}`, next);
}

/* ---- the messages ---- */
const STORIES = ["Tell me a story about a dog and a kite.", "Once upon a time, a little girl found a red ball.", "Tell me a story about a brave cat."];
const STARTERS = ["Explain in simple words why the sky is blue.", "Write a short poem about the sea at night.", "Give me three ideas for a rainy afternoon."];
function show() {
  showChats();
  showModels();
  const thread = $("thread");
  thread.replaceChildren();
  if (!current.messages.length) {
    const starters = ($("model").textContent === "built-in" ? STORIES : STARTERS).map(text => { const b = el("button", {type: "button"}, text); b.onclick = () => send(text); return b; });
    thread.append(el("div", {className: "empty"}, el("h2", {}, "What shall we talk about?"), "Everything stays between this page and your server.",
                     el("div", {className: "starters"}, ...starters)));
  }
  const job = jobs.get(current);
  current.messages.forEach((m, i) => thread.append(m === job?.message ? job.node : messageNode(m, i)));
  busy(Boolean(job));
  if (editing >= 0) note("Sending makes a branch; Esc gives it up.");
  else showContext();
  stick(true);
}
function showContext() {
  const used = current.messages.at(-1)?.used;
  note(used && context ? `${used.toLocaleString()} of ${context.toLocaleString()} tokens of context` : "");
}
function edit(i) {
  if (jobs.has(current)) return;
  editing = i;
  $("input").value = i < 0 ? "" : current.messages[i].content;
  attached = i < 0 ? [] : attachedOf(current.messages[i]);
  showAttached();
  fit();
  show();
  $("input").focus();
}
function messageNode(m, i) {
  const later = editing >= 0 && i > editing ? " replaced" : "";
  if (m.role === "tool") return el("div", {className: "msg" + later}, fold("call", `Result of ${m.name}`, el("pre", {}, m.content)));
  if (m.role === "user") {
    const drop = () => { if (jobs.has(current) || !confirm("Delete this message and what follows it?")) return; dropMessage(current, i); keep(current); show(); };
    return el("div", {className: "turn" + later + (i === editing ? " editing" : "")},
              el("div", {className: "msg user"}, ...attachedNodes(m), m.content), plainButton("edit", "Edit", () => edit(i), "quiet edit"), plainButton("drop", "Delete", drop, "quiet remove"),
              ...(m.others ? [branchNode(m, i)] : []));
  }
  const node = el("article", {className: "msg assistant" + later});
  node.setAttribute("aria-label", "Answer");
  fillAnswer(node, m, i, false);
  return node;
}
const fold = (cls, title, ...inside) => el("details", {className: cls}, el("summary", {}, title), ...inside);
function fillAnswer(node, m, i, live) {
  const wasOpen = node.querySelector("details.think")?.open;
  const parts = [];
  if (m.reasoning) {
    const think = fold("think", live && !m.content ? "Thinking …" : "Thoughts", el("div", {className: "md"}, ...markdown(m.reasoning)));
    think.open = wasOpen ?? (live && !m.content);
    parts.push(think);
  }
  const text = m.content || "", body = m.plain && m.tokens ? tokensNode(m.tokens) : el("div", {className: "md"}, ...(m.json && text ? [codeBlock("json", text)] : markdown(text)));
  if (live) (body.lastElementChild?.matches("p,h1,h2,h3,h4") ? body.lastElementChild : body).classList.add("cursor");
  parts.push(body);
  for (const c of m.tool_calls || []) parts.push(fold("call", `Call of ${c.name}`, el("pre", {}, code("json", pretty(c.arguments)))));
  if (m.error) { const e = el("div", {className: "error"}, m.error); e.setAttribute("role", "alert"); parts.push(e); }
  const isLast = i === current.messages.length - 1;
  if (!live && isLast && m.tool_calls) parts.push(resultsForm(m.tool_calls));
  if (!live && CUTS[m.cut]) parts.push(el("div", {className: "cut"}, CUTS[m.cut], ...(isLast && m.content ? [iconButton("more", "Continue", () => answer(m))] : [])));
  if (!live) parts.push(footNode(node, m, i, isLast));
  become(node, parts);
}
function footNode(node, m, i, isLast) {
  const foot = el("div", {className: "foot"}, iconButton("copy", "Copy", b => copyText(m.content, b)));
  if (m.others) foot.append(branchNode(m, i));
  if (isLast) foot.append(iconButton("again", "Regenerate", () => { if (jobs.has(current)) return; const others = fork(current, i); show(); answer(null, others); }));
  if (m.tokens) foot.append(iconButton("odds", m.plain ? "Text" : "Tokens", () => { m.plain = !m.plain; fillAnswer(node, m, i, false); }));
  if (m.stats) foot.append(el("span", {className: "stats"}, m.stats));
  return foot;
}
const CUTS = {length: "Cut off: the most tokens of an answer were reached.", left: "Not finished: the page was left while the answer came, or another tab still has it."};
const pretty = text => { try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; } };
/* The page has no tools of its own: who reads the call writes what the tool says. */
function resultsForm(calls) {
  const boxes = calls.map(c => el("textarea", {rows: 2, placeholder: `What ${c.name} answers`}));
  boxes.forEach((b, n) => b.setAttribute("aria-label", `Result of ${calls[n].name}`));
  const button = el("button", {type: "button", className: "primary"}, boxes.length > 1 ? "Send the results" : "Send the result");
  button.onclick = () => {
    if (jobs.has(current)) return;
    current.messages.push(...calls.map((c, n) => ({role: "tool", tool_call_id: c.id, name: c.name, content: boxes[n].value})));
    keep(current);
    show();
    answer();
  };
  return el("div", {className: "results"}, ...boxes, button);
}

/* ---- tokens with what else could have stood in their place: [text, log-probability, [[text, log-probability], ...]] ---- */
const percent = p => `${(100 * Math.exp(p)).toFixed(1)} %`;
function tokensNode(tokens) {
  const box = el("div", {className: "md tokens"}, ...tokens.map(t => { const s = el("span", {}, t[0]); s.style.setProperty("--p", Math.exp(t[1]).toFixed(3)); return s; }));
  const look = e => {
    const n = [...box.children].indexOf(e.target);
    if (n < 0) { $("odds").classList.add("hidden"); return; }
    const at = e.target.getBoundingClientRect(), rows = tokens[n][2].map(([text, p]) => el("tr", {className: text === tokens[n][0] ? "taken" : ""}, el("td", {}, JSON.stringify(text)), el("td", {}, percent(p))));
    $("odds").replaceChildren(el("p", {}, `${JSON.stringify(tokens[n][0])}: ${percent(tokens[n][1])}`), el("table", {}, ...rows));
    $("odds").classList.remove("hidden");
    const size = $("odds").getBoundingClientRect();
    $("odds").style.left = `${Math.max(4, Math.min(at.left, innerWidth - size.width - 4))}px`;
    $("odds").style.top = `${at.bottom + size.height + 4 < innerHeight ? at.bottom + 4 : at.top - size.height - 4}px`;
  };
  box.onpointerover = look;
  box.onpointerleave = () => $("odds").classList.add("hidden");
  return box;
}

/* Makes the children of a node what they should be and touches only what differs: a selection in text that stays is not lost. */
function become(node, children) {
  const old = [...node.childNodes], has = n => n.onclick || n.onpointerover || n.tagName === "TEXTAREA";
  children.forEach((want, i) => {
    const have = old[i];
    if (!have) node.append(want);
    else if (have.nodeType === 3 && want.nodeType === 3) {
      if (want.data.startsWith(have.data)) have.appendData(want.data.slice(have.data.length)); else have.data = want.data;
    } else if (have.nodeType === 1 && want.nodeType === 1 && have.tagName === want.tagName && !has(have) && !has(want) && have.namespaceURI === want.namespaceURI) {
      for (const {name} of [...have.attributes]) if (!want.hasAttribute(name)) have.removeAttribute(name);
      for (const {name, value} of want.attributes) if (have.getAttribute(name) !== value) have.setAttribute(name, value);
      become(have, [...want.childNodes]);
    } else if (!have.isEqualNode(want) || has(want)) have.replaceWith(want);
  });
  for (const extra of old.slice(children.length)) extra.remove();
}

/* ---- scrolling: follows the end unless the reader went up ---- */
let following = true;
const atEnd = () => $("log").scrollHeight - $("log").scrollTop - $("log").clientHeight < 60;
function stick(force) {
  if (force) following = true;
  if (following) $("log").scrollTop = $("log").scrollHeight;
  $("jump").classList.toggle("hidden", following);
}
$("log").onscroll = () => { following = atEnd(); $("jump").classList.toggle("hidden", following); $("odds").classList.add("hidden"); };
$("jump").onclick = () => stick(true);
