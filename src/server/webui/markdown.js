/* The model's text to nodes of the page. markdown-it parses, KaTeX sets formulas, Prism finds the words of code; each gives a tree of its own, from
 * which nodes are made here: no text ever becomes markup, so nothing has to be cleaned. In the bundle of tools/bundle_page.py, before the page. */
"use strict";
const parser = markdownIt({html: false, linkify: true, breaks: true, maxNesting: 40});
const el = (tag, attrs = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs)) k in node && k !== "list" ? node[k] = v : node.setAttribute(k, v);
  node.append(...children);
  return node;
};

/* ---- formulas: $x$, $$x$$, \(x\), \[x\] ---- */
/* A dollar sign is money unless what it opens touches it, and no digit follows where it closes. */
function inlineFormula(state, silent) {
  const at = state.src.slice(state.pos, state.posMax);
  const m = /^\\\(([\s\S]+?)\\\)|^\\\[([\s\S]+?)\\\]|^\$\$([\s\S]+?)\$\$|^\$((?:[^\s$\\]|\\[\s\S])(?:(?:[^$\\]|\\[\s\S])*?(?:[^\s$\\]|\\[^\s]))?)\$(?!\d)/.exec(at);
  if (!m) return false;
  if (!silent) Object.assign(state.push("formula", "", 0), {content: m[1] ?? m[2] ?? m[3] ?? m[4], meta: {wide: m[2] != null || m[3] != null}});
  state.pos += m[0].length;
  return true;
}
/* Lines of their own: $$ or \[ alone, up to where it closes. One that never closes is text. */
function blockFormula(state, first, last, silent) {
  const line = n => state.src.slice(state.bMarks[n] + state.tShift[n], state.eMarks[n]);
  const open = /^(?:\$\$|\\\[)/.exec(line(first))?.[0];
  if (!open || state.sCount[first] - state.blkIndent >= 4) return false;
  const close = open === "$$" ? /\$\$\s*$/ : /\\\]\s*$/, lines = [];
  for (let n = first; n < last; n++) {
    const text = n === first ? line(n).slice(2) : line(n), ends = close.test(text);
    if (n > first && !text.trim()) return false;
    lines.push(ends ? text.replace(close, "") : text);
    if (!ends) continue;
    if (silent) return true;
    Object.assign(state.push("formula", "", 0), {content: lines.join("\n"), meta: {wide: true}, map: [first, n + 1]});
    state.line = n + 1;
    return true;
  }
  return false;
}
parser.inline.ruler.before("escape", "formula", inlineFormula);
parser.block.ruler.before("paragraph", "formula", blockFormula, {alt: ["paragraph", "reference", "blockquote", "list"]});
/* The text rule stops at signs that may begin something; $ is none of them. */
parser.inline.ruler.at("text", (state, silent) => {
  let pos = state.pos;
  while (pos < state.posMax && !/[\n!#$%&*+\-:<=>@[\\\]^_`{}~]/.test(state.src[pos])) pos++;
  if (pos === state.pos) return false;
  if (!silent) state.pending += state.src.slice(state.pos, pos);
  state.pos = pos;
  return true;
});
function formula(text, wide) {
  const node = el(wide ? "div" : "span", {className: wide ? "formula wide" : "formula"});
  try { katex.render(text.trim(), node, {displayMode: wide, output: "mathml", trust: false, strict: "ignore", maxSize: 20, maxExpand: 500}); }
  catch { node.replaceChildren(el("code", {}, text)); } // half of one, or none at all
  return node;
}

/* ---- code ---- */
const ALIASES = {"c++": "cpp", "c#": "csharp", sh: "bash", shell: "bash", zsh: "bash", console: "bash", html: "markup", xml: "markup", svg: "markup", dockerfile: "docker", objc: "objectivec",
                 ps1: "powershell", tex: "latex", golang: "go", jsonc: "json"};
function words(tokens) {
  return tokens.map(t => typeof t === "string" ? t : el("span", {className: `w-${t.type}`}, ...words([t.content].flat())));
}
function code(language, text) {
  const name = language.toLowerCase(), grammar = text.length < 50000 && (Prism.languages[ALIASES[name] || name]);
  return el("code", {}, ...(grammar && typeof grammar === "object" ? words(Prism.tokenize(text, grammar)) : [text]));
}
function codeBlock(language, text) {
  text = text.replace(/\n$/, "");
  const copy = iconButton("copy", "Copy", b => copyText(text, b));
  return el("div", {className: "code"}, el("div", {className: "bar"}, el("span", {}, language || "code"), copy), el("pre", {tabIndex: 0}, code(language, text)));
}

/* ---- tokens to nodes ---- */
function link(url, title) {
  let ok = false;
  try { ok = ["http:", "https:", "mailto:"].includes(new URL(url).protocol); } catch {}
  const node = ok ? el("a", {href: url, target: "_blank", rel: "noopener noreferrer nofollow"}) : el("span");
  if (title) node.title = title;
  return node;
}
const language = t => parser.utils.unescapeAll(t.info).trim().split(/\s+/)[0];
const inCell = t => { if (t.type === "code_inline") t.content = t.content.replaceAll("\\|", "|"); return t; }; // there a | in code is written as \|
const LEAVES = {
  text: t => t.content, softbreak: () => el("br"), hardbreak: () => el("br"), hr: () => el("hr"),
  code_inline: t => el("code", {}, t.content), fence: t => codeBlock(language(t), t.content), code_block: t => codeBlock("", t.content),
  formula: t => formula(t.content, t.meta.wide),
  image: t => { const a = link(t.attrGet("src") || "", t.attrGet("title")); a.append(t.content || "picture"); return a; }, // nothing is fetched from elsewhere
};
function opened(t) {
  if (t.type === "link_open") return link(t.attrGet("href") || "", t.attrGet("title"));
  const node = el(t.tag);
  if (t.tag === "ol" && t.attrGet("start") != null) node.start = Number(t.attrGet("start"));
  const align = /text-align:(\w+)/.exec(t.attrGet("style") || "");
  if (align) node.style.textAlign = align[1];
  return node;
}
/* [ ] and [x] before the text of an item: a box that shows, and cannot be ticked. */
function taskBox(item) {
  const holder = item.firstElementChild?.tagName === "P" && !item.firstChild.data ? item.firstElementChild : item, first = holder.firstChild;
  const m = first?.nodeType === 3 && /^\[([ xX])\]\s+/.exec(first.data);
  if (!m) return;
  first.data = first.data.slice(m[0].length);
  holder.prepend(el("input", {type: "checkbox", disabled: true, defaultChecked: m[1] !== " "}), " ");
  item.classList.add("task");
}
function nodes(tokens) {
  const top = document.createDocumentFragment(), stack = [top];
  for (const t of tokens) {
    if (t.type === "inline") stack.at(-1).append(...nodes(/^T[DH]$/.test(stack.at(-1).tagName) ? t.children.map(inCell) : t.children));
    else if (t.nesting === 0) stack.at(-1).append(LEAVES[t.type] ? LEAVES[t.type](t) : t.content);
    else if (t.nesting > 0) stack.push(t.hidden ? document.createDocumentFragment() : opened(t));
    else {
      const done = stack.pop();
      if (done.tagName === "LI") taskBox(done);
      stack.at(-1).append(done.tagName === "TABLE" ? el("div", {className: "wide"}, done) : done);
    }
  }
  return [...top.childNodes];
}
function markdown(text) { return nodes(parser.parse(text, {})); }
