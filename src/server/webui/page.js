/* The controls: the box, keys, themes, settings, which model, and how the server is. In the bundle last: it begins the page. */
"use strict";
const fit = () => { const t = $("input"); t.style.height = "auto"; t.style.height = t.scrollHeight + "px"; $("send").disabled = !t.value.trim() && !attached.length; };
$("input").oninput = fit;
/* A finger's keyboard has no Shift+Enter: there Enter breaks the line, and the button sends. */
const coarse = () => matchMedia("(pointer: coarse)").matches && !matchMedia("(any-pointer: fine)").matches;
$("input").onkeydown = e => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing && (!coarse() || e.ctrlKey || e.metaKey)) { e.preventDefault(); send($("input").value); } };
$("form").onsubmit = e => { e.preventDefault(); send($("input").value); };
const stopAnswer = () => jobs.get(current)?.abort.abort();
$("stop").onclick = stopAnswer;
$("new").onclick = () => { document.body.classList.remove("menu"); newChat(); };
const setMenu = on => { document.body.classList.toggle("menu", on); $("menu").setAttribute("aria-expanded", on); };
$("menu").onclick = () => setMenu(!document.body.classList.contains("menu"));
$("veil").onclick = () => setMenu(false);
document.addEventListener("keydown", e => {
  if (e.key === "Escape" && !$("dialog").open) { setMenu(false); if (jobs.has(current)) stopAnswer(); else if (editing >= 0) edit(-1); }
  if (e.key.toLowerCase() === "o" && (e.ctrlKey || e.metaKey) && e.shiftKey) { e.preventDefault(); newChat(); }
});

/* ---- colours ---- */
const THEMES = {auto: "Auto", light: "Light", dark: "Dark"};
function setTheme(theme) {
  settings.theme = theme in THEMES ? theme : "auto";
  if (settings.theme === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = settings.theme;
  $("theme").replaceChildren(icon(settings.theme), el("span", {className: "word"}, THEMES[settings.theme]));
  $("theme").setAttribute("aria-label", `Colours: ${THEMES[settings.theme]}`);
  $("theme").title = `Colours: ${THEMES[settings.theme]}`;
}
$("theme").onclick = () => { const names = Object.keys(THEMES); setTheme(names[(names.indexOf(settings.theme) + 1) % 3]); store(CHOSEN, settings); };

/* ---- settings: s- boxes are for all conversations, c- boxes for the one that is open ---- */
const slides = [...document.querySelectorAll("input[type=range]")];
for (const slide of slides) {
  const box = $(slide.dataset.for);
  slide.oninput = () => box.value = slide.value;
  box.oninput = () => slide.value = box.value || box.placeholder;
}
const boxes = Object.keys(DEFAULTS).filter(k => $("s-" + k)), OWN = ["system", "schema", "tools"];
let shown = {}; // what the dialog began with: only what was changed in it is taken
const fill = values => {
  for (const k of boxes) {
    $("s-" + k).value = values[k];
    if (k in defaults) $("s-" + k).placeholder = defaults[k];
  }
  for (const slide of slides) slide.value = $(slide.dataset.for).value || $(slide.dataset.for).placeholder;
};
$("settings").onclick = () => {
  shown = {...settings};
  fill(settings);
  for (const k of OWN) $("c-" + k).value = current[k] || "";
  $("c-system").placeholder = settings.system || "as above";
  $("own").open = OWN.some(k => current[k]);
  $("s-key").value = apiKey;
  $("wrong").textContent = "";
  $("dialog").returnValue = "";
  $("dialog").showModal();
};
$("reset").onclick = () => fill(DEFAULTS);
/* What is wrong with the boxes of JSON, or "". */
function wrongJson() {
  for (const [id, name, fits] of [["c-schema", "The JSON schema", v => v && typeof v === "object" && !Array.isArray(v)], ["c-tools", "The tools", Array.isArray]]) {
    const text = $(id).value.trim();
    if (!text) continue;
    try { if (!fits(JSON.parse(text))) return `${name}: ${id === "c-tools" ? "a list [...]" : "an object {...}"} is wanted.`; } catch (e) { return `${name}: ${e.message}.`; }
  }
  return "";
}
$("choices").onsubmit = e => {
  if (e.submitter?.value !== "ok") return;
  $("wrong").textContent = wrongJson();
  if ($("wrong").textContent) { e.preventDefault(); $("own").open = true; $("wrong").scrollIntoView(); }
};
$("dialog").onclose = () => {
  $("input").focus();
  if ($("dialog").returnValue !== "ok") return; // Escape: as it was
  for (const k of boxes) if ($("s-" + k).value !== String(shown[k])) settings[k] = $("s-" + k).value;
  for (const k of OWN) if ($("c-" + k).value.trim()) current[k] = $("c-" + k).value.trim(); else delete current[k];
  keep(current);
  apiKey = $("s-key").value.trim();
  try { sessionStorage.setItem("mlxcel.key", apiKey); } catch {}
  store(CHOSEN, settings);
  connect();
};

/* ---- models ---- */
let models = []; // as the server lists them
/* The conversation's own, or the one that was chosen last, or the first. */
const modelOf = chat => models.find(m => m.id === chat.model) || models.find(m => m.id === settings.model) || models[0];
function showModels() {
  const several = models.length > 1, label = m => m.id + (!m.status || m.status.value === "loaded" ? "" : ` (${m.status.value})`);
  $("pick").classList.toggle("hidden", !several);
  $("model").classList.toggle("hidden", several);
  if (!several) return;
  const labels = models.map(label);
  if ([...$("pick").options].map(o => o.text).join("\n") !== labels.join("\n")) $("pick").replaceChildren(...models.map(m => el("option", {value: m.id}, label(m))));
  $("pick").value = modelOf(current).id;
}
$("pick").onchange = () => {
  settings.model = current.model = $("pick").value;
  store(CHOSEN, settings);
  keep(current);
  meet(models);
};
/* Asked again and again: the dot tells how the server is now. */
let nextCheck = 0;
async function connect() {
  let pause = 5000;
  try {
    const response = await fetch("v1/models", {headers: apiKey ? {Authorization: `Bearer ${apiKey}`} : {}, signal: AbortSignal.timeout(10000)});
    $("dot").className = response.ok ? "on" : "off";
    if (response.ok) meet((await response.json()).data);
    else missing(response.status === 401 ? "an API key is needed: see Settings" : await failure(response));
    if (response.status === 503) pause = 1500;
  } catch { $("dot").className = "off"; missing("the server does not answer"); pause = 3000; }
  clearTimeout(nextCheck);
  nextCheck = setTimeout(() => document.hidden || connect(), pause);
}
function missing(why) {
  models = [];
  showModels();
  $("model").textContent = why;
}
function meet(list) {
  if (!list.length) { missing("the server has no model"); return; }
  models = list;
  const model = modelOf(current), isNew = $("model").textContent !== model.id || context !== (model.meta?.n_ctx || 0);
  $("model").textContent = model.id;
  context = model.meta?.n_ctx || 0;
  defaults = model.meta?.sampling || {};
  showModels();
  if (!isNew || jobs.has(current)) return;
  if (current.messages.length) showContext(); else show();
}
document.addEventListener("visibilitychange", () => document.hidden || connect());
setTheme(settings.theme);
arrive();
connect();
