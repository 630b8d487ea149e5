/* What every part of the page uses: elements by name, icons, the clipboard, and the browser's storage. In the bundle of tools/bundle_page.py, first. */
"use strict";
const $ = id => document.getElementById(id);
const ICONS = {
  edit: "M4 20h4L19 9l-4-4L4 16v4M13 7l4 4", copy: "M9 9h10v10H9zM5 15V5h10", again: "M20 11a8 8 0 1 0-2 6M20 5v6h-6", done: "M5 13l4 4L19 7",
  auto: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16", light: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  more: "M5 12h14M13 6l6 6-6 6", dark: "M20 14A8 8 0 1 1 10 4a6.5 6.5 0 0 0 10 10", drop: "M7 7l10 10M17 7L7 17", save: "M12 4v11M7 10l5 5 5-5M5 20h14",
  left: "M14 6l-6 6 6 6", right: "M10 6l6 6-6 6", odds: "M5 20V12M12 20V4M19 20v-6",
};
function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}
const iconButton = (name, text, run, cls = "quiet") => { const b = el("button", {className: cls, type: "button"}, icon(name), text); b.onclick = () => run(b); return b; };
/* One that shows its icon alone: what it does is its label. */
function plainButton(name, label, run, cls = "quiet") {
  const b = iconButton(name, "", run, cls);
  b.setAttribute("aria-label", label);
  b.title = label;
  return b;
}
async function copyText(text, button) {
  try { await navigator.clipboard.writeText(text); }
  catch { const t = el("textarea", {value: text}); document.body.append(t); t.select(); document.execCommand("copy"); t.remove(); }
  button.replaceChildren(icon("done"), "Copied");
  setTimeout(() => button.replaceChildren(icon("copy"), "Copy"), 1200);
}
function note(text) { $("rate").textContent = text; }

/* ---- what is kept in the browser ---- */
const CHOSEN = "mlxcel.chosen", CHAT = "mlxcel.chat."; // a conversation has a place of its own: tabs write side by side
const DEFAULTS = {system: "", temperature: "", top_p: "", top_k: "", min_p: "", repetition_penalty: "", max_tokens: "", seed: "", logprobs: "", model: "", theme: "auto"}; // "": as the server wants it
const parse = (text, absent) => { try { return JSON.parse(text) ?? absent; } catch { return absent; } };
const load = (key, absent) => { try { return parse(localStorage.getItem(key), absent); } catch { return absent; } };
const unstore = key => { try { localStorage.removeItem(key); } catch {} };
const store = (key, value) => {
  try { localStorage.setItem(key, JSON.stringify(value)); return true; } catch { note("The browser's storage is full: this conversation is not kept."); return false; }
};
const storedKeys = () => { try { return Object.keys(localStorage); } catch { return []; } };
function loadChosen() {
  const old = load("mlxcel.settings", {}), unasked = {temperature: 0.8, top_p: 0.95, top_k: 40, min_p: 0.05, repetition_penalty: 1};
  for (const k in unasked) if (Number(old[k]) === unasked[k]) delete old[k]; // an earlier page kept these where nobody had chosen anything
  return {...DEFAULTS, ...load(CHOSEN, old)};
}
const settings = loadChosen();
