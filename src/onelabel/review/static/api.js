// Talking to the server: calls, and an outbox that delivers every answer exactly once and in order.
import { $, identifier, say } from "./ui.js";

// A reload keeps the tab's number; a duplicated tab, which copies this storage while it is open, gets its own.
function number() {
  const kept = sessionStorage.getItem("tab");
  const reloaded = performance.getEntriesByType("navigation")[0]?.type === "reload";
  const id = kept && (reloaded || !sessionStorage.getItem("open")) ? kept : identifier();
  sessionStorage.setItem("tab", id);
  sessionStorage.setItem("open", "1");
  return id;
}
const tab = number();
addEventListener("pagehide", () => sessionStorage.removeItem("open"));

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export async function call(method, path, body, sender = tab) {
  const headers = { "X-Onelabel-Tab": sender };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(`/api${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  if (response.status === 204) return null;
  const data = await response.json().catch(() => ({}));
  if (response.ok) return data;
  if (response.status === 401 && path !== "/session") dispatchEvent(new Event("signin"));
  throw new Refused(response.status, typeof data.detail === "string" ? data.detail : "the server did not accept this");
}

const waiting = JSON.parse(sessionStorage.getItem("outbox") || "[]");
const watchers = new Map();
let sending = null;

function show(text, bad = false) {
  $("saving").textContent = text;
  $("saving").classList.toggle("bad", bad);
}

const keep = () => sessionStorage.setItem("outbox", JSON.stringify(waiting));

// Queue a request that carries its own id; resolves with the response once the server has it.
export function send(path, body) {
  const entry = { path, tab, body: { request_id: identifier(), ...body } };
  waiting.push(entry);
  keep();
  const result = new Promise((resolve, reject) => watchers.set(entry.body.request_id, { resolve, reject }));
  flush();
  return result;
}

export function flush() {
  if (!sending) sending = drain().finally(() => (sending = null));
  return sending;
}

async function drain() {
  let pause = 250;
  while (waiting.length) {
    const entry = waiting[0];
    const watcher = watchers.get(entry.body.request_id);
    show("Saving…");
    try {
      const response = await call("POST", entry.path, entry.body, entry.tab);
      waiting.shift();
      keep();
      watchers.delete(entry.body.request_id);
      watcher?.resolve(response);
      pause = 250;
    } catch (error) {
      if (error instanceof Refused && error.status < 500 && error.status !== 401 && error.status !== 429) {
        waiting.shift(); // it will never be accepted: say so and go on
        keep();
        say(error.message);
        watcher?.reject(error);
        continue;
      }
      show(`Not saved yet: ${waiting.length} waiting`, true);
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, 4000);
    }
  }
  show("All saved");
}

addEventListener("online", () => flush());
addEventListener("beforeunload", (event) => {
  if (waiting.length > 20) event.preventDefault();
});
