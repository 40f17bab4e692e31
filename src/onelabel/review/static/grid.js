// By class: a page of suggestions, answered one by one or many at once.
import { call, flush, send } from "./api.js";
import { currentClass, filters, refreshClasses, state } from "./sidebar.js";
import { $, askNote, chance, count, h, interval, percent, picture, say, zoom } from "./ui.js";

const WORDS = { yes: "✓ Yes", no: "✕ No", unsure: "? Unsure", skip: "Skipped", held: "With someone else", settled: "Answered already", unknown: "Gone" };
let items = [];
let tiles = new Map();
let focused = 0;
let loading = 0;

const size = () => (matchMedia("(max-width: 760px)").matches ? 12 : 24);
const open = (item) => !item.answer;

export async function show(toGrid = false) {
  const turn = ++loading;
  if (items.some(open)) {
    items = []; // a key pressed meanwhile must not answer what is about to leave
    draw("Loading…");
  }
  await flush();
  const data = await call("POST", "/queue", { ...filters(), count: size() });
  if (turn !== loading) return; // another class was chosen meanwhile
  items = data.items;
  draw();
  if (toGrid) focus(0);
  await numbers();
}

function title() {
  const one = currentClass();
  const name = one ? one.name : null;
  const words = { none: ["Is there a ", "?"], model: ["Is ", " really there?"], reviewers: ["Who is right about ", "?"] }[state.disagreement];
  $("question").replaceChildren(words[0], h("em", {}, name ?? "…"), words[1]);
  if (!name) $("question").replaceChildren("Does the picture show what is asked below it?");
  document.title = `${name ?? "All classes"} · review`;
}

function draw(nothing = "Nothing left here. Choose another class, or widen the filters.") {
  title();
  tiles = new Map(items.map((item) => [item.id, tile(item)]));
  $("grid").replaceChildren(...tiles.values());
  $("grid-empty").hidden = items.length > 0;
  $("grid").hidden = items.length === 0;
  $("grid-empty").textContent = items.length ? "" : nothing;
  const active = document.activeElement;
  focus(items.findIndex(open), active === document.body || active === $("main") || $("grid").contains(active));
}

function describe(item) {
  const likely = item.probability === null ? "" : `, ${chance(item.probability)} likely`;
  const given = item.given.length ? `, given ${item.given.join(", ")}` : "";
  return `${item.class_name}${likely}${given}, ${item.example}`;
}

function tile(item) {
  const image = h("img", { src: picture(item.row, "thumb"), alt: "", loading: "eager", decoding: "async" });
  const pic = h("button", { type: "button", class: "pic", tabindex: "-1", "aria-pressed": "false", "aria-label": describe(item) }, image);
  image.addEventListener("error", () => image.replaceWith(h("span", { class: "missing" }, item.example)));
  pic.addEventListener("click", () => {
    focus(items.indexOf(item));
    toggle(item);
  });
  pic.addEventListener("dblclick", () => zoom(item.row, describe(item)));
  pic.addEventListener("focus", () => (focused = items.indexOf(item)));
  const act = (word, label) =>
    h("button", { type: "button", class: word, tabindex: "-1", "aria-label": `${label}: ${describe(item)}`, onclick: () => answer([item], word) }, label);
  const text = h("div", { class: "text" });
  const named = state.classIndex === null || state.disagreement !== "none" ? `${item.class_name} · ` : "";
  text.append(h("span", { class: "chance" }, named + (item.probability === null ? "" : chance(item.probability))));
  text.append(h("span", { class: "muted", title: item.given.join(", ") }, item.given.length ? `given: ${item.given.join(", ")}` : item.example));
  for (const note of item.notes) text.append(h("span", { class: "muted", title: note }, `✎ ${note}`));
  return h("li", { class: "tile" }, pic, text, h("div", { class: "acts" }, act("yes", "Yes"), act("no", "No"), act("unsure", "Unsure")));
}

function mark(item) {
  const element = tiles.get(item.id);
  if (!element) return;
  element.querySelector(".mark")?.remove();
  element.querySelector(".pic").setAttribute("aria-pressed", String(Boolean(item.selected)));
  if (item.answer) {
    element.dataset.answer = item.answer;
    const tone = ["yes", "no", "unsure"].includes(item.answer) ? item.answer : "plain";
    element.prepend(h("span", { class: `mark ${tone}` }, WORDS[item.answer]));
    element.querySelector(".pic").setAttribute("aria-label", `${WORDS[item.answer]}: ${describe(item)}`);
  } else {
    delete element.dataset.answer;
    element.querySelector(".pic").setAttribute("aria-label", describe(item));
  }
}

function focus(index, really = true) {
  focused = Math.max(0, Math.min(index, items.length - 1));
  items.forEach((item, i) => tiles.get(item.id).querySelector(".pic").setAttribute("tabindex", i === focused ? "0" : "-1"));
  if (really && items.length) tiles.get(items[focused].id).querySelector(".pic").focus();
}

function toggle(item) {
  if (item.answer) return;
  item.selected = !item.selected;
  mark(item);
}

function targets() {
  const chosen = items.filter((item) => item.selected && open(item));
  const one = items[focused];
  return chosen.length ? chosen : one && open(one) ? [one] : [];
}

async function answer(chosen, word, note) {
  const list = chosen.filter(open);
  if (!list.length) return;
  for (const item of list) {
    item.answer = word;
    item.selected = false;
    mark(item);
  }
  const next = items.findIndex((item, i) => i > focused && open(item));
  focus(next >= 0 ? next : items.findIndex(open) >= 0 ? items.findIndex(open) : focused);
  const revise = state.disagreement === "reviewers";
  const response = await send("/answers", { answers: list.map((item) => ({ item: item.id, answer: word, revise, note: note || null })) }).catch(() => null);
  const refused = response ? response.results.filter((r) => r.status !== "stored") : [];
  for (const result of refused) {
    const item = items.find((i) => i.id === result.item);
    if (item) Object.assign(item, { answer: result.status }) && mark(item);
  }
  if (refused.length) say(`${refused.length} not stored: ${WORDS[refused[0].status].toLowerCase()}`);
  if (items.length && !items.some(open)) await show();
  else await numbers();
}

export async function undo() {
  await flush();
  const response = await send("/undo", {}).catch(() => null);
  if (!response) return;
  if (!response.items.length) {
    say("Nothing to undo");
    return;
  }
  for (const back of response.items.reverse()) {
    const here = items.find((item) => item.id === back.id);
    if (here) delete here.answer;
    else items.unshift(back);
  }
  draw();
  items.forEach(mark);
  focus(items.findIndex((item) => item.id === response.items[response.items.length - 1].id));
  say(response.items.length === 1 ? "Answer taken back" : `${response.items.length} answers taken back`);
  await numbers();
}

let asked = 0;
async function numbers() {
  const turn = ++asked;
  const query = state.classIndex === null ? "" : `?class_index=${state.classIndex}`;
  const data = await call("GET", `/progress${query}`).catch(() => null);
  if (!data || turn !== asked) return;
  const kind = data[state.disagreement === "model" ? "doubt" : "missing"];
  const cell = (value, label) => h("div", {}, h("b", {}, value), h("span", {}, label));
  const all = kind.precision_all;
  $("class-numbers").replaceChildren(
    cell(`${count(kind.done)} / ${count(kind.total)}`, "answered"),
    cell(interval(kind.precision), "right so far"),
    cell(all && all.covered > 0 ? interval(all) : "–", all ? `of all (${percent(all.covered)} covered)` : "of all suggestions"),
    cell(`≈${count(kind.expected)}`, "still to find"),
  );
  $("class-note").textContent = `${items.filter(open).length} open on this page`;
  if (turn % 8 === 1) refreshClasses().catch(() => {});
}

async function note() {
  const chosen = targets().length ? targets() : items[focused] ? [items[focused]] : [];
  if (!chosen.length) return;
  const text = await askNote();
  if (!text) return;
  await send("/answers", { answers: chosen.map((item) => ({ item: item.id, answer: "note", note: text })) });
  say("Note saved");
}

export function act(name) {
  const rest = items.filter(open);
  if (["yes", "no", "unsure", "skip"].includes(name)) return answer(targets(), name);
  if (name === "rest-yes") return answer(rest, "yes");
  if (name === "rest-no") return answer(rest, "no");
  if (name === "note") return note();
  if (name === "undo") return undo();
  if (name === "zoom" && items[focused]) zoom(items[focused].row, describe(items[focused]));
  return null;
}

export function key(event) {
  const pic = event.target.classList?.contains("pic");
  const columns = getComputedStyle($("grid")).gridTemplateColumns.split(" ").length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
  if (step !== undefined && (pic || event.target === document.body || event.target === $("main"))) {
    focus(focused + step);
    return true;
  }
  if (event.key === " " && pic) return toggle(items[focused]) || true;
  if (event.key === "Enter" && pic) return act("zoom") || true;
  return false;
}
