// Classes by expected gain, and the filters.
import { call } from "./api.js";
import { $, count, h } from "./ui.js";

export const state = { classIndex: null, low: 0, high: 1, disagreement: "none" };
let known = [];
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

function draw(total) {
  const all = { index: null, name: "All classes" };
  const entries = $("search").value.trim() ? known : [all, ...known];
  $("classes").replaceChildren(...entries.map(row));
  if (total > known.length) {
    $("classes").append(h("li", { class: "muted" }, `${count(total - known.length)} more; type to find them`));
  }
  $("class-select").replaceChildren(
    ...entries.map((c) => {
      const left = c.index === null ? "" : ` · ${count(c.total - c.done)} left`;
      return h("option", { value: c.index === null ? "" : String(c.index), selected: c.index === state.classIndex }, c.name + left);
    }),
  );
}

function row(c) {
  const here = c.index === state.classIndex;
  const button = h("button", { type: "button", "aria-current": here ? "true" : null, onclick: () => choose(c.index) });
  button.append(h("span", { class: "label", title: c.name }, c.name));
  if (c.index !== null) {
    const left = c.total - c.done;
    button.append(h("span", { class: "count", title: "expected to be found · open" }, `≈${count(c.expected)} of ${count(left)}`));
    button.append(h("progress", { max: Math.max(c.total, 1), value: c.done, "aria-label": `${c.done} of ${c.total} done` }));
  }
  return h("li", {}, button);
}

function choose(index, toGrid = true) {
  state.classIndex = index;
  for (const button of $("classes").querySelectorAll("button")) button.removeAttribute("aria-current");
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
  if (state.classIndex === null && known.length) state.classIndex = known[0].index;
  draw(known.length);
}
