// Small helpers. Names come from files nobody vouches for: they enter the page as text only.

export const $ = (id) => document.getElementById(id);

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const percent = (x) => `${Math.round(100 * x)}%`;
// A probability; nobody is told that something is certain.
export const chance = (p) => (p >= 0.995 ? ">99%" : p < 0.005 ? "<1%" : percent(p));
export const count = (n) => Math.round(n).toLocaleString("en");
export const interval = (e) => (e ? `${percent(e.value)} (${percent(e.low)}–${percent(e.high)})` : "–");

let timer = 0;
export function say(text) {
  const toast = $("toast");
  toast.textContent = text;
  toast.classList.add("on");
  clearTimeout(timer);
  timer = setTimeout(() => toast.classList.remove("on"), 3500);
}

export const picture = (row, size) => `/api/pictures/${row}/image?size=${size}`;

export function zoom(row, text) {
  $("zoom-image").src = picture(row, "zoom");
  $("zoom-image").alt = text;
  $("zoom-text").textContent = text;
  $("zoom").showModal();
}

export function askNote() {
  const dialog = $("note");
  $("note-text").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    const done = () => resolve(dialog.returnValue === "save" ? $("note-text").value.trim() : "");
    dialog.addEventListener("close", done, { once: true });
  });
}

export const identifier = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
