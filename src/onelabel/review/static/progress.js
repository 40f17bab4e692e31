// Progress, agreement, the trail, and retraining with its log.
import { call, flush } from "./api.js";
import { $, count, h, interval, percent, say } from "./ui.js";

let source = null;
let trainable = false;

export async function show() {
  await flush();
  document.title = "Progress · review";
  const [data, trail, last] = await Promise.all([call("GET", "/progress?people=true"), call("GET", "/history?limit=50"), call("GET", "/retrain")]);
  $("cards").replaceChildren(...cards(data));
  $("history").replaceChildren(...trail.events.map(line));
  training(last.training);
  if (last.training?.status === "running") follow();
}

function card(title, big, ...rest) {
  return h("section", { class: "card" }, h("h2", {}, title), h("div", { class: "big" }, big), ...rest);
}

const text = (words) => h("p", { class: "muted" }, words);
const bar = (value, max, label) => h("progress", { max: Math.max(max, 1), value, "aria-label": label });

function cards({ missing, doubt, team }) {
  const all = missing.precision_all;
  const kappa = team.agreement.kappa;
  const made = [
    card("Missing labels", `${count(missing.done)} / ${count(missing.total)}`, bar(missing.done, missing.total, "Missing labels answered"), text(`${count(missing.confirmed)} found, ${count(missing.refuted)} refuted, ${count(missing.unsure)} unsure; ≈${count(missing.expected)} still to find`)),
    card("Precision so far", interval(missing.precision), text("share of answered suggestions that hold, with its 95% interval")),
    card("Precision of all suggestions", all ? interval(all) : "–", text(all ? `stratified by confidence; the answers speak for ${percent(all.covered)} of them` : "needs answers first")),
    card("Doubtful given labels", `${count(doubt.done)} / ${count(doubt.total)}`, bar(doubt.done, doubt.total, "Doubtful labels answered"), text(`${count(doubt.confirmed)} were wrong, ${count(doubt.refuted)} were right`)),
    card("Agreement", kappa === null ? "–" : `κ ${kappa.toFixed(2)}`, text(team.agreement.items ? `${count(team.agreement.items)} items answered by two people, ${count(team.conflicts)} in conflict` : "no item has two answers yet")),
    card("Audit", team.audit.total ? `${count(team.audit.done)} / ${count(team.audit.total)}` : "–", bar(team.audit.done, team.audit.total, "Pictures of the audit done"), text(team.audit.total ? "pictures with every class answered" : "none loaded")),
  ];
  const people = h("section", { class: "card" }, h("h2", {}, "Reviewers"));
  for (const one of team.reviewers) people.append(h("p", {}, `${one.name} · ${count(one.answers)}`));
  if (!team.reviewers.length) people.append(text("nobody yet"));
  for (const pair of team.agreement.pairs) people.append(text(`${pair.reviewers.join(" and ")}: ${percent(pair.agreement)} the same, κ ${pair.kappa === null ? "–" : pair.kappa.toFixed(2)}`));
  return [...made, people];
}

function line(event) {
  const said = event.kind === "undo" ? `undo ${event.previous ?? "skip"}` : (event.value ?? event.kind);
  const cells = [new Date(event.at * 1000).toLocaleString(), event.reviewer, event.example ?? `#${event.item}`, event.class_name ?? "", said, event.note ?? ""];
  return h("tr", { class: event.undone ? "undone" : null }, ...cells.map((value) => h("td", { title: value }, value)));
}

function training(one) {
  const running = one?.status === "running";
  $("retrain-start").disabled = running || !trainable;
  $("retrain-cancel").hidden = !running;
  const ended = one?.ended_at ? `, ended ${new Date(one.ended_at * 1000).toLocaleTimeString()}` : "";
  $("retrain-status").textContent = one ? `#${one.id} ${one.status}${ended}` : trainable ? "on the answers so far" : "no training command: start with a run, or with --retrain";
  if (running) $("retrain-bar").hidden = false;
  else if (one?.status === "succeeded") $("retrain-bar").value = 1;
}

// The last line in place of what a carriage return would overwrite; "3/10" in it moves the bar.
function append(piece) {
  const log = $("retrain-log");
  log.hidden = false;
  log.textContent = (log.textContent + piece).split("\n").map((l) => l.slice(l.replace(/\r$/, "").lastIndexOf("\r") + 1)).slice(-400).join("\n");
  log.scrollTop = log.scrollHeight;
  const steps = [...piece.matchAll(/(\d+)\s*\/\s*(\d+)/g)].pop();
  if (steps && Number(steps[2]) > 0) {
    $("retrain-bar").hidden = false;
    $("retrain-bar").value = Math.min(1, Number(steps[1]) / Number(steps[2]));
  }
}

function follow() {
  if (source) return;
  $("retrain-log").textContent = "";
  source = new EventSource("/api/retrain/events");
  source.addEventListener("log", (event) => append(JSON.parse(event.data).text));
  source.addEventListener("status", (event) => training(JSON.parse(event.data)));
  source.addEventListener("end", () => {
    source.close();
    source = null;
    say(`Training ${$("retrain-status").textContent}`);
  });
}

export function start(me) {
  trainable = me.retrain;
  $("retrain-start").addEventListener("click", async () => {
    $("retrain-start").disabled = true;
    $("retrain-bar").value = 0;
    try {
      training((await call("POST", "/retrain", {})).training);
      follow();
    } catch (error) {
      say(error.message);
      $("retrain-start").disabled = false;
    }
  });
  $("retrain-cancel").addEventListener("click", () => call("POST", "/retrain/cancel", {}).catch((error) => say(error.message)));
}

export const act = () => null;
export const key = () => false;
