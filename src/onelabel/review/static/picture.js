// By picture: an audit, every class of one picture answered.
import { call, flush, send } from "./api.js";
import { $, askNote, h, picture, say, zoom } from "./ui.js";

let current = null;
let focused = 0;
const LABELS = [["yes", "Yes"], ["no", "No"], ["unsure", "Unsure"]];

export async function show(skip = null) {
  await flush();
  const data = await call("POST", "/audit", skip === null ? {} : { skip });
  current = data.picture;
  document.title = "Audit · review";
  $("audit-progress").max = Math.max(data.total, 1);
  $("audit-progress").value = data.done;
  $("audit-body").hidden = !current;
  $("audit-empty").hidden = Boolean(current);
  if (!current) {
    $("audit-title").textContent = "Audit";
    $("audit-note").textContent = data.total ? `${data.done} of ${data.total} pictures done` : "";
    $("audit-empty").textContent = data.total ? "Every picture of the audit is done or with someone else." : "No audit is loaded. Draw one with “onelabel audit plan” and start with --audit.";
    return;
  }
  $("audit-title").textContent = current.example;
  $("audit-image").src = picture(current.row, "preview");
  $("audit-image").alt = `Picture ${current.example}`;
  $("audit-zoom").setAttribute("aria-label", `Zoom ${current.example}`);
  $("audit-search").value = "";
  $("audit-note").dataset.done = `${data.done} of ${data.total} pictures done`;
  draw();
  focus(Math.max(0, current.classes.findIndex((c) => !c.answer)));
}

const line = (i) => $("audit-classes").children[i]?.firstElementChild;

function draw() {
  $("audit-classes").replaceChildren(
    ...current.classes.map((entry, i) => {
      const radios = LABELS.map(([word, label]) =>
        h("button", { type: "button", role: "radio", class: word, tabindex: "-1", "aria-checked": "false", "data-word": word, onclick: () => answer([i], word) }, label),
      );
      const group = h("div", { class: "line", role: "radiogroup", "aria-label": entry.name, tabindex: "-1" }, h("span", { class: "label" }, entry.name), ...radios);
      group.addEventListener("focus", () => (focused = i));
      return h("li", {}, group);
    }),
  );
  current.classes.forEach((_, i) => mark(i));
  note();
}

function mark(i) {
  for (const radio of line(i).querySelectorAll("[role=radio]")) radio.setAttribute("aria-checked", String(radio.dataset.word === current.classes[i].answer));
}

function note() {
  const left = current.classes.filter((c) => !c.answer).length;
  const given = current.given.length ? ` · given: ${current.given.join(", ")}` : "";
  $("audit-note").textContent = `${left} of ${current.classes.length} classes open${given} · ${$("audit-note").dataset.done}`;
}

function focus(i) {
  focused = Math.max(0, Math.min(i, current.classes.length - 1));
  current.classes.forEach((_, j) => line(j).setAttribute("tabindex", j === focused ? "0" : "-1"));
  line(focused).focus();
}

async function answer(indices, word, noteText) {
  if (!current || !indices.length) return;
  const held = current;
  for (const i of indices) {
    held.classes[i].answer = word;
    mark(i);
  }
  note();
  const next = held.classes.findIndex((c, j) => j > focused && !c.answer && !$("audit-classes").children[j].hidden);
  focus(next >= 0 ? next : Math.max(0, held.classes.findIndex((c) => !c.answer)));
  let finished = false;
  for (let start = 0; start < indices.length; start += 500) {
    const part = indices.slice(start, start + 500);
    const answers = part.map((i) => ({ item: held.classes[i].item, answer: word, revise: true, note: noteText || null }));
    const response = await send("/answers", { answers }).catch(() => null);
    finished ||= Boolean(response?.finished.includes(held.row));
    if (response?.results.some((r) => r.status === "held")) {
      say("This picture went to someone else meanwhile");
      finished = true;
    }
  }
  if (finished && current === held) {
    say("Picture done");
    await show();
  }
}

async function undo() {
  await flush();
  const response = await send("/undo", {}).catch(() => null);
  if (!response?.undone.length) {
    say("Nothing to undo");
    return;
  }
  await show();
  const at = current?.classes.findIndex((c) => c.item === response.undone[0]) ?? -1;
  if (at >= 0) focus(at);
  say("Taken back");
}

async function writeNote() {
  const text = current ? await askNote() : "";
  if (!text) return;
  await send("/answers", { answers: [{ item: current.classes[focused].item, answer: "note", note: text }] });
  say("Note saved");
}

export function act(name) {
  if (name === "undo") return undo();
  if (!current) return null;
  if (["yes", "no", "unsure"].includes(name)) return answer([focused], name);
  if (name === "rest-no") return answer(current.classes.flatMap((c, i) => (c.answer ? [] : [i])), "no");
  if (name === "skip") return show(current.row);
  if (name === "note") return writeNote();
  if (name === "zoom") zoom(current.row, current.example);
  return null;
}

export function key(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step === undefined || !current) return false;
  focus(focused + step);
  return true;
}

export function start() {
  $("audit-zoom").addEventListener("click", () => act("zoom"));
  $("audit-search").addEventListener("input", () => {
    const text = $("audit-search").value.trim().toLowerCase();
    current?.classes.forEach((c, i) => ($("audit-classes").children[i].hidden = !c.name.toLowerCase().includes(text)));
  });
  $("audit-search").addEventListener("keydown", (event) => {
    const visible = current?.classes.findIndex((_, i) => !$("audit-classes").children[i].hidden) ?? -1;
    if (event.key === "Enter" && visible >= 0) {
      $("audit-search").value = "";
      $("audit-search").dispatchEvent(new Event("input"));
      focused = visible;
      answer([visible], "yes");
    } else if (event.key === "Escape" && current) focus(focused);
  });
}
