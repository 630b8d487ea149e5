/* What goes with a message: files of text, which are written into it, and pictures. By the button, by paste, or dropped on the page. */
"use strict";
let attached = []; // with the message that is being written: {name, text} or {name, url}
const MOST_TEXT = 1 << 20, LONGEST_SIDE = 1568, MOST_PICTURE = 700000; // bytes of a text; pixels, and letters of an address that the browser is to keep
const attachedOf = m => [...(m.images || []), ...(m.files || [])];
/* The text with its files before it; a fence is longer than any in them. */
function withFiles(m) {
  const parts = (m.files || []).map(f => {
    const fence = "`".repeat(Math.max(3, ...[...f.text.matchAll(/`+/g)].map(r => r[0].length + 1)));
    return `${f.name}:\n${fence}\n${f.text.replace(/\n$/, "")}\n${fence}`;
  });
  return [...parts, ...(m.content ? [m.content] : [])].join("\n\n");
}
/* As OpenAI's protocol has it: a text, or parts where there are pictures. */
function contentOf(m) {
  const text = withFiles(m);
  if (!m.images?.length) return text;
  return [...m.images.map(i => ({type: "image_url", image_url: {url: i.url}})), ...(text ? [{type: "text", text}] : [])];
}
const size = n => n < 1000 ? `${n} bytes` : n < 1e6 ? `${(n / 1000).toFixed(1)} KB` : `${(n / 1e6).toFixed(1)} MB`;
function attachedNodes(m) {
  const pictures = (m.images || []).map(i => el("img", {src: i.url, alt: i.name, title: i.name}));
  return [...pictures, ...(m.files || []).map(f => { const d = el("details", {className: "file"}, el("summary", {}, `${f.name}, ${size(f.text.length)}`), el("pre", {}, f.text)); return d; })];
}
function showAttached() {
  $("attached").replaceChildren(...attached.map(a => el("span", {className: "chip"}, ...(a.url ? [el("img", {src: a.url, alt: ""})] : []), a.name,
    plainButton("drop", `Remove ${a.name}`, () => { attached = attached.filter(b => b !== a); showAttached(); fit(); $("input").focus(); }))));
}
/* A picture as it is where it is small; else drawn again, its longer side 1,568 pixels: more than models look at, less than the browser can keep. */
async function pictureOf(file) {
  const url = await new Promise((done, failed) => { const r = new FileReader(); r.onload = () => done(r.result); r.onerror = failed; r.readAsDataURL(file); });
  let bitmap;
  try { bitmap = await createImageBitmap(file); } catch { throw new Error("it is no picture that this browser can read"); }
  const scale = Math.min(1, LONGEST_SIDE / Math.max(bitmap.width, bitmap.height));
  if (scale === 1 && url.length <= MOST_PICTURE) return url;
  const canvas = el("canvas", {width: Math.round(bitmap.width * scale), height: Math.round(bitmap.height * scale)}), pen = canvas.getContext("2d");
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.9);
}
async function textOf(file) {
  if (file.size > MOST_TEXT) throw new Error(`it has ${size(file.size)}, and ${size(MOST_TEXT)} is the most`);
  let text;
  try { text = new TextDecoder("utf-8", {fatal: true}).decode(await file.arrayBuffer()); } catch { throw new Error("it is neither a picture nor text"); }
  if (text.includes("\0")) throw new Error("it is neither a picture nor text");
  return text;
}
async function attach(files) {
  let why = "";
  for (const file of files) {
    const name = file.name || "picture";
    try { attached.push(/^image\/(?!svg)/.test(file.type) ? {name, url: await pictureOf(file)} : {name, text: await textOf(file)}); }
    catch (e) { why = `${name} was not taken: ${e.message}.`; }
  }
  showAttached();
  fit();
  note(why);
}
$("attach").onclick = () => $("file").click();
$("file").onchange = async () => { await attach([...$("file").files]); $("file").value = ""; $("input").focus(); };
document.addEventListener("paste", e => { if (e.clipboardData?.files.length && !$("dialog").open) { e.preventDefault(); attach([...e.clipboardData.files]); } });
const brings = e => [...(e.dataTransfer?.types || [])].includes("Files");
document.addEventListener("dragover", e => { if (brings(e)) { e.preventDefault(); document.body.classList.add("drag"); } });
document.addEventListener("dragleave", e => { if (!e.relatedTarget) document.body.classList.remove("drag"); });
document.addEventListener("drop", e => {
  document.body.classList.remove("drag");
  if (!brings(e)) return;
  e.preventDefault();
  attach([...e.dataTransfer.files]);
});
