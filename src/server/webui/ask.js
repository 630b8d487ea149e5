/* Asking the server: what is sent, and what comes back piece by piece. */
"use strict";
let apiKey = "", context = 0, defaults = {};
try { apiKey = sessionStorage.getItem("mlxcel.key") || ""; } catch {}
const isEmpty = m => !(m.content || m.tool_calls || m.files?.length || m.images?.length || m.role === "tool");
function wireMessage(m) {
  if (m.role === "tool") return {role: "tool", tool_call_id: m.tool_call_id, content: m.content};
  const out = {role: m.role, content: contentOf(m)};
  if (m.tool_calls) out.tool_calls = m.tool_calls.map(c => ({id: c.id, type: "function", function: {name: c.name, arguments: c.arguments}}));
  return out;
}
const asParts = content => typeof content === "string" ? [{type: "text", text: content}] : content;
function wireMessages(chat) {
  const messages = [];
  for (const m of chat.messages.filter(m => !isEmpty(m)).map(wireMessage)) { // an answer that failed leaves two questions: many templates take one at a time
    const last = messages.at(-1);
    if (last?.role !== m.role || m.role === "tool" || m.tool_calls) messages.push(m);
    else if (typeof last.content === "string" && typeof m.content === "string") last.content += "\n\n" + m.content;
    else last.content = [...asParts(last.content), ...asParts(m.content)];
  }
  const system = chat.system || settings.system;
  if (system.trim()) messages.unshift({role: "system", content: system});
  return messages;
}
function requestBody(chat, goesOn) {
  const number = v => v === "" || v == null || isNaN(Number(v)) ? undefined : Number(v);
  const body = {messages: wireMessages(chat), stream: true, stream_options: {include_usage: true}};
  if (models.length > 1) body.model = modelOf(chat).id;
  if (goesOn) Object.assign(body, {continue_final_message: true, add_generation_prompt: false});
  for (const k of ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed"]) body[k] = number(settings[k]);
  if (settings.logprobs) Object.assign(body, {logprobs: true, top_logprobs: Number(settings.logprobs)});
  if (chat.schema) body.response_format = {type: "json_schema", json_schema: {name: "answer", schema: JSON.parse(chat.schema)}};
  if (chat.tools) body.tools = JSON.parse(chat.tools);
  return JSON.stringify(body);
}
async function* events(response) {
  const reader = response.body.getReader(), decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const {value, done} = await reader.read();
    text += decoder.decode(value, {stream: !done});
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const frame = text.slice(0, end);
      text = text.slice(end + 2);
      for (const line of frame.split("\n")) if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
    }
    if (done) return;
  }
}
async function failure(response) {
  let message = `The server answered ${response.status}.`;
  try { message = (await response.json()).error.message; } catch {}
  if (response.status === 401) message += " Enter the key under Settings.";
  return message;
}
const short = p => Math.round(p * 1000) / 1000;
/* Adds what a piece of a stream brings; whether it was anything. */
function take(m, choice) {
  const delta = choice?.delta;
  if (!delta) return false;
  for (const t of choice.logprobs?.content || []) (m.tokens ||= []).push([t.token, short(t.logprob), t.top_logprobs.map(o => [o.token, short(o.logprob)])]);
  for (const c of delta.tool_calls || []) {
    const call = (m.tool_calls ||= [])[c.index] ||= {id: "", name: "", arguments: ""};
    call.id = c.id || call.id;
    call.name += c.function?.name || "";
    call.arguments += c.function?.arguments || "";
  }
  m.content += delta.content || "";
  m.reasoning += delta.reasoning_content || "";
  return Boolean(delta.content || delta.reasoning_content || delta.tool_calls?.length);
}
/* Asks for the answer to a conversation, or for more of its last one; others: the branches beside it. It goes on while other conversations are read, and
 * what has come is kept as it comes. */
async function answer(unfinished, others) {
  const chat = current, m = unfinished || {role: "assistant", content: "", reasoning: ""}, abort = new AbortController();
  if (jobs.has(chat)) return;
  const node = el("article", {className: "msg assistant"}), body = requestBody(chat, unfinished), job = {abort, message: m, node};
  node.setAttribute("aria-label", "Answer");
  node.setAttribute("aria-busy", "true");
  if (others) m.others = others;
  if (chat.schema) m.json = true;
  if (!unfinished) chat.messages.push(m);
  m.cut = "left"; // until it is known how it ends
  m.reasoning ||= "";
  jobs.set(chat, job);
  let n = 0, first = 0, queued = false, usage = null, reason = "", kept = performance.now();
  const start = performance.now();
  const paint = () => {
    queued = false;
    if (jobs.get(chat) !== job) return;
    fillAnswer(node, m, -1, true);
    if (performance.now() - kept > 1000) { kept = performance.now(); keep(chat); }
    if (current !== chat) return;
    stick(false);
    if (n > 1) note(`${((n - 1) / ((performance.now() - first) / 1000)).toFixed(1)} tokens/s`);
  };
  paint();
  show();
  try {
    const headers = {"Content-Type": "application/json"};
    if (apiKey) headers.Authorization = `Bearer ${apiKey}`;
    const response = await fetch("v1/chat/completions", {method: "POST", headers, body, signal: abort.signal});
    if (!response.ok) m.error = await failure(response);
    else for await (const e of events(response)) {
      if (e.error) { m.error = e.error.message; break; }
      usage = e.usage || usage;
      reason = e.choices[0]?.finish_reason || reason;
      if (!take(m, e.choices[0])) continue;
      if (!n++) first = performance.now();
      if (!queued) { queued = true; if (document.hidden || current !== chat) setTimeout(paint, 200); else requestAnimationFrame(paint); }
    }
  } catch (e) {
    if (!abort.signal.aborted) { m.error = "The connection to the server was lost."; connect(); }
  }
  if (leaving) return;
  const count = usage ? usage.completion_tokens : n, now = performance.now();
  if (n > 1) m.stats = `${count} tokens, ${((count - 1) / ((now - first) / 1000)).toFixed(1)} tokens/s, first after ${Math.round(first - start)} ms, ${((now - start) / 1000).toFixed(1)} s in all`;
  if (usage) m.used = usage.total_tokens;
  if (reason === "length") m.cut = "length"; else delete m.cut;
  if (!m.reasoning) delete m.reasoning;
  if (!m.content && !m.error && !m.reasoning && !m.tool_calls) { if (abort.signal.aborted) dropMessage(chat, chat.messages.indexOf(m)); else m.error = "The model had nothing to say."; }
  jobs.delete(chat);
  node.removeAttribute("aria-busy");
  keep(chat);
  if (current === chat) settle(chat, m, node); else showChats();
}
/* The answer has ended where it can be seen. */
function settle(chat, m, node) {
  const stay = following;
  if (chat.messages.includes(m)) fillAnswer(node, m, chat.messages.length - 1, false); else show();
  showChats();
  busy(false);
  showContext();
  stick(stay);
  if (!getSelection().toString() && !coarse()) $("input").focus({preventScroll: true});
}
let leaving = false; // then the browser ends the requests: no answer has failed
addEventListener("pagehide", () => { leaving = true; for (const chat of jobs.keys()) keep(chat); });
function busy(on) {
  $("stop").classList.toggle("hidden", !on);
  $("send").classList.toggle("hidden", on);
}
function send(text) {
  text = text.trim();
  if (!text && !attached.length || jobs.has(current)) return;
  const m = {role: "user", content: text}, files = attached.filter(a => a.text != null), images = attached.filter(a => a.url);
  if (files.length) m.files = files;
  if (images.length) m.images = images;
  if (editing >= 0) m.others = fork(current, editing);
  editing = -1;
  attached = [];
  if (!chats.includes(current)) chats.unshift(current);
  if (!current.title) current.title = (text || [...files, ...images][0].name).slice(0, 60);
  current.messages.push(m);
  saveChat(current);
  visit(current.id);
  $("input").value = "";
  showAttached();
  fit();
  show();
  answer();
}
