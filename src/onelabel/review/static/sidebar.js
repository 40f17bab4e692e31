// Classes by expected gain, and the filters.
import { call } from "./api.js";
import { $, count, h } from "./ui.js";

// classIndex: null is all classes, undefined until one is chosen
export const state = { classIndex: undefined, low: 0, high: 1, disagreement: "none" };
let known = [];
let rows = new Map();
let changed = () => {};

export const filters = () => ({
  class_index: state.classIndex,
  low: state.low,
  high: state.high,
  disagreement: state.disagreement,
});

export const currentClass = () => known.find((c) => c.index === state.classIndex);

export async function refreshClasses() {
  const kind = state.disagreement === "model" ? "doubt" : "missing";
  const search = encodeURIComponent($("search").value.trim());
  const data = await call("GET", `/classes?kind=${kind}&search=${search}&limit=200`);
  known = data.classes;
  draw(data.count);
}

// A button that goes between a press and its release takes the click with it, and one with the focus takes that.
function draw(total) {
  if ($("classes").matches(":active")) {
    setTimeout(() => draw(total), 50);
    return;
  }
  const all = { index: null, name: "All classes" };
  const entries = $("search").value.trim() ? known : [all, ...known];
  const before = rows;
  rows = new Map(entries.map((c) => [c.index, before.get(c.index) ?? row(c.index)]));
  for (const c of entries) fill(rows.get(c.index).firstChild, c);
  const items = [...rows.values()];
  const more = total - known.length;
  if (more > 0) items.push(h("li", { class: "muted" }, `${count(more)} more; type to find them`));
  const here = [...$("classes").children];
  if (items.length !== here.length || items.some((item, i) => item !== here[i])) {
    const active = document.activeElement;
    $("classes").replaceChildren(...items);
    if ($("classes").contains(active)) active.focus({ preventScroll: true });
  }
  $("class-select").replaceChildren(
    ...entries.map((c) => {
      const left = c.index === null ? "" : ` · ${count(c.total - c.done)} left`;
      return h("option", { value: c.index === null ? "" : String(c.index), selected: c.index === state.classIndex }, c.name + left);
    }),
  );
}

const row = (index) => h("li", {}, h("button", { type: "button", onclick: () => choose(index) }));

function mark(button, index) {
  if (index === state.classIndex) button.setAttribute("aria-current", "true");
  else button.removeAttribute("aria-current");
}

function fill(button, c) {
  mark(button, c.index);
  button.replaceChildren(h("span", { class: "label", title: c.name }, c.name));
  if (c.index === null) return;
  const left = c.total - c.done;
  button.append(h("span", { class: "count", title: "expected to be found · open" }, `≈${count(c.expected)} of ${count(left)}`));
  button.append(h("progress", { max: Math.max(c.total, 1), value: c.done, "aria-label": `${c.done} of ${c.total} done` }));
}

function choose(index, toGrid = true) {
  state.classIndex = index;
  for (const [at, item] of rows) mark(item.firstChild, at);
  changed(toGrid);
}

function readFilters() {
  const share = (id, otherwise) => {
    const value = Number.parseFloat($(id).value);
    return Number.isFinite(value) ? Math.min(Math.max(value / 100, 0), 1) : otherwise;
  };
  state.low = share("low", 0);
  state.high = share("high", 1);
  state.disagreement = $("disagreement").value;
}

export function start(onChange) {
  changed = onChange;
  let timer = 0;
  $("search").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => refreshClasses().catch(() => {}), 150);
  });
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && known.length) choose(known[0].index);
  });
  $("class-select").addEventListener("change", (event) => choose(event.target.value === "" ? null : Number(event.target.value), false));
  for (const id of ["low", "high", "disagreement"]) {
    $(id).addEventListener("change", async () => {
      const before = state.disagreement;
      readFilters();
      if (before !== state.disagreement) await refreshClasses();
      changed(false);
    });
  }
  if (matchMedia("(max-width: 760px)").matches) $("filters").open = false;
  readFilters();
  if (state.classIndex === undefined) state.classIndex = known[0]?.index ?? null;
  draw(known.length);
}
