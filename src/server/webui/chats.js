/* The conversations: how they are kept, their list with search and names, their addresses, and files of them. A conversation is
 * {id, rev, title, model, system, schema, tools, messages}; thread.js knows what a message is. */
"use strict";
const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 6); // begins with the time
const newestFirst = (a, b) => a.id < b.id ? 1 : -1;
function loadChats() {
  const old = load("mlxcel.chats", []); // where an earlier page kept all of them
  if (old.every(c => store(CHAT + c.id, c))) unstore("mlxcel.chats");
  return storedKeys().filter(k => k.startsWith(CHAT)).map(k => load(k, null)).filter(c => c?.messages).sort(newestFirst);
}
const jobs = new Map(); // the answers that are under way: conversation to {abort, message, node}
let chats = loadChats(), current = null, editing = -1, renaming = null;
function saveChat(chat) {
  const stored = load(CHAT + chat.id, null);
  if (stored && stored.rev !== chat.rev) { // another tab went on with it meanwhile: both stay, this one under a new name
    chat.id = newId();
    chats = [stored, ...chats.filter(c => c.id !== stored.id)].sort(newestFirst);
  }
  chat.rev = newId();
  store(CHAT + chat.id, chat);
}
const keep = chat => chats.includes(chat) && saveChat(chat);
/* What other tabs store. A conversation that is at work here stays as it is; saveChat keeps the two apart. */
addEventListener("storage", e => {
  if (e.key === CHOSEN) { Object.assign(settings, loadChosen()); setTheme(settings.theme); }
  if (!e.key?.startsWith(CHAT)) return;
  const theirs = parse(e.newValue, null), mine = chats.find(c => CHAT + c.id === e.key), isBusy = mine && (jobs.has(mine) || mine === current && editing >= 0);
  if (!theirs) chats = chats.filter(c => c !== mine);
  else if (!mine) chats = [theirs, ...chats].sort(newestFirst);
  else if (!isBusy) Object.assign(mine, theirs);
  if (mine && mine === current && theirs && !isBusy) show(); else showChats();
});

function newChat() {
  editing = -1;
  current = {id: newId(), title: "", messages: []};
  visit("");
  show();
  $("input").focus();
}
function openChat(chat) {
  editing = -1;
  current = chat;
  visit(chat.id);
  document.body.classList.remove("menu");
  show();
}
/* A conversation has an address: Back, bookmarks and a reload find it again. */
function visit(id) {
  const path = location.pathname + location.search + (id ? "#" + id : "");
  if (location.hash.slice(1) !== id) history.pushState(null, "", path);
}
function arrive() {
  const chat = chats.find(c => c.id === location.hash.slice(1));
  if (chat) openChat(chat); else newChat();
}
addEventListener("popstate", arrive);
function dropChat(chat) {
  if (!confirm(`Delete "${chat.title}"?`)) return;
  chats = chats.filter(c => c !== chat);
  jobs.get(chat)?.abort.abort();
  unstore(CHAT + chat.id);
  if (chat === current) newChat(); else showChats();
}

/* ---- the list ---- */
/* Every text of a conversation, those of other branches too. */
function* textsOf(messages) {
  for (const m of messages) {
    yield m.content || "";
    for (const f of m.files || []) yield `${f.name} ${f.text}`;
    for (const tail of m.others?.tails || []) if (tail) yield* textsOf(tail);
  }
}
/* Where all words of the search are in one of its texts: a line around the first of them; "" where only the title has them; null where nothing has. */
function found(chat, words) {
  const has = text => words.every(w => text.toLowerCase().includes(w));
  if (has(chat.title)) return "";
  for (const text of textsOf(chat.messages)) {
    if (!has(text)) continue;
    const at = text.toLowerCase().indexOf(words[0]);
    return (at > 20 ? "… " : "") + text.slice(Math.max(0, at - 20), at + 60).replace(/\s+/g, " ");
  }
  return null;
}
function showChats() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = chats.map(c => [c, words.length ? found(c, words) : ""]).filter(([, where]) => where != null);
  $("search").classList.toggle("hidden", !chats.length);
  $("export").disabled = !chats.length;
  $("chats").replaceChildren(...rows.map(([c, where]) => chatRow(c, where)), ...(words.length && !rows.length ? [el("li", {className: "none"}, "Nothing found.")] : []));
}
function chatRow(c, where) {
  if (c === renaming) return el("li", {className: "current"}, nameBox(c));
  const open = el("button", {className: jobs.has(c) ? "open busy" : "open", title: c.title}, c.title || "Conversation");
  open.onclick = () => openChat(c);
  if (c === current) open.setAttribute("aria-current", "true");
  const row = el("li", {className: c === current ? "current" : ""}, open, plainButton("drop", `Delete ${c.title}`, () => dropChat(c), "drop"));
  if (where) row.append(el("p", {className: "where"}, where));
  if (c === current) row.append(el("div", {className: "acts"}, iconButton("edit", "Rename", () => { renaming = c; showChats(); $("name").select(); }), iconButton("save", "Export", () => exportChats([c]))));
  return row;
}
function nameBox(chat) {
  const box = el("input", {id: "name", value: chat.title, maxLength: 200});
  const finish = isTaken => {
    if (renaming !== chat) return;
    renaming = null;
    if (isTaken && box.value.trim()) { chat.title = box.value.trim(); keep(chat); }
    showChats();
  };
  box.setAttribute("aria-label", "Name of the conversation");
  box.onkeydown = e => { if (e.key === "Enter" || e.key === "Escape") { e.preventDefault(); e.stopPropagation(); finish(e.key === "Enter"); } };
  box.onblur = () => finish(true);
  return box;
}

/* ---- files of conversations ---- */
const FORMAT = "mlxcel conversations";
function exportChats(list) {
  const text = JSON.stringify({format: FORMAT, version: 1, conversations: list}, null, 1);
  const name = list.length === 1 ? (list[0].title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40) || "conversation") : "conversations";
  const a = el("a", {href: URL.createObjectURL(new Blob([text], {type: "application/json"})), download: `${name}.json`});
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}
/* Takes of a file what a message may have, and nothing else. */
function cleanMessage(m) {
  if (!["user", "assistant", "tool"].includes(m?.role) || typeof m.content !== "string") throw new Error("a message without a role and a text");
  const out = {role: m.role, content: m.content}, texts = list => list.filter(f => typeof f?.name === "string");
  for (const k of ["reasoning", "stats", "cut", "error", "tool_call_id", "name"]) if (typeof m[k] === "string") out[k] = m[k];
  if (Array.isArray(m.files)) out.files = texts(m.files).filter(f => typeof f.text === "string").map(({name, text}) => ({name, text}));
  if (Array.isArray(m.images)) out.images = texts(m.images).filter(f => /^data:image\//.test(f.url)).map(({name, url}) => ({name, url}));
  if (Array.isArray(m.tool_calls)) out.tool_calls = m.tool_calls.map(c => ({id: String(c?.id), name: String(c?.name), arguments: String(c?.arguments)}));
  if (m.json) out.json = true;
  if (m.others) out.others = {at: Number(m.others.at), tails: m.others.tails.map(t => t && t.map(cleanMessage))};
  if (out.others && !(out.others.tails.findIndex(t => !t) === out.others.at)) throw new Error("branches that do not fit together");
  return out;
}
function importChats(text) {
  const data = parse(text, null);
  if (data?.format !== FORMAT || !Array.isArray(data.conversations)) throw new Error("it is no file that this page has written");
  const all = data.conversations.map(c => {
    const chat = {id: String(c?.id || newId()), title: String(c?.title || ""), messages: c.messages.map(cleanMessage)};
    for (const k of ["rev", "system", "schema", "tools", "model"]) if (typeof c[k] === "string") chat[k] = c[k];
    return chat;
  });
  const fresh = all.filter(c => !chats.some(d => d.id === c.id && d.rev === c.rev));
  for (const chat of fresh) {
    if (chats.some(d => d.id === chat.id)) chat.id = newId(); // it went on here: both stay
    store(CHAT + chat.id, chat);
    chats.push(chat);
  }
  chats.sort(newestFirst);
  showChats();
  return [fresh.length, all.length - fresh.length];
}
$("search").oninput = showChats;
$("export").onclick = () => exportChats(chats);
$("import").onclick = () => $("import-file").click();
$("import-file").onchange = async () => {
  for (const file of $("import-file").files) {
    try {
      const [taken, known] = importChats(await file.text());
      note(`${file.name}: ${taken} taken${known ? `, ${known} were here already` : ""}.`);
    } catch (e) { note(`${file.name} was not taken: ${e.message}.`); }
  }
  $("import-file").value = "";
};
