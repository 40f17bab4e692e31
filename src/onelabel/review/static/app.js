// The frame: views, keys, theme, signing in.
import { call, flush } from "./api.js";
import * as grid from "./grid.js";
import * as pictures from "./picture.js";
import * as progress from "./progress.js";
import * as sidebar from "./sidebar.js";
import { $, say } from "./ui.js";

const VIEWS = { class: grid, picture: pictures, progress };
const KEYS = { y: "yes", n: "no", u: "unsure", s: "skip", m: "note", z: "zoom", Backspace: "undo", Y: "rest-yes", N: "rest-no" };
const view = () => VIEWS[location.hash.slice(1)] ? location.hash.slice(1) : "class";
const failed = (error) => error.status !== 401 && say(error.message || "The server does not answer");

async function show() {
  const name = view();
  for (const section of document.querySelectorAll(".view")) section.hidden = section.id !== `view-${name}`;
  for (const link of document.querySelectorAll(".tabs a")) link.toggleAttribute("aria-current", link.dataset.view === name);
  document.querySelector(`.tabs a[data-view=${name}]`).setAttribute("aria-current", "page");
  $("layout").classList.toggle("plain", name !== "class");
  await VIEWS[name].show();
}

function keydown(event) {
  if (document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("input, select, textarea");
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && !typing) {
    event.preventDefault();
    act("undo");
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "?") $("help").showModal();
  else if (event.key === "/") (view() === "picture" ? $("audit-search") : $("search")).focus();
  else if (KEYS[event.key]) act(KEYS[event.key]);
  else if (!VIEWS[view()].key(event)) return;
  event.preventDefault();
}

const act = (name) => Promise.resolve(VIEWS[view()].act(name)).catch(failed);

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = (name) => (document.documentElement.dataset.theme = name);
  const chosen = () => localStorage.getItem("theme") || (dark.matches ? "dark" : "light");
  set(chosen());
  dark.addEventListener("change", () => set(chosen()));
  $("theme").addEventListener("click", () => {
    localStorage.setItem("theme", chosen() === "dark" ? "light" : "dark");
    set(chosen());
  });
}

async function me() {
  const data = await call("GET", "/me");
  $("who").textContent = data.name ?? "Sign in";
  $("who").setAttribute("aria-label", data.name ? `Signed in as ${data.name}; change` : "Sign in");
  $("signin-token-row").hidden = !data.needs_token;
  $("signin-close").hidden = !data.name;
  return data;
}

function signIn() {
  if (!$("signin").open) $("signin").showModal();
}

async function submit(event) {
  event.preventDefault();
  try {
    // answers given under the old name are delivered under it, if the server takes them at all
    await Promise.race([flush(), new Promise((resolve) => setTimeout(resolve, 1500))]);
    await call("POST", "/leases", { action: "release" }).catch(() => null);
    await call("POST", "/session", { name: $("signin-name").value.trim(), token: $("signin-token").value || null });
    location.reload();
  } catch (error) {
    $("signin-error").textContent = error.message;
  }
}

async function start() {
  theme();
  addEventListener("signin", signIn);
  addEventListener("hashchange", () => show().catch(failed));
  document.addEventListener("keydown", keydown);
  for (const button of document.querySelectorAll("[data-act]")) button.addEventListener("click", () => act(button.dataset.act));
  for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => button.closest("dialog").close());
  $("help-open").addEventListener("click", () => $("help").showModal());
  $("who").addEventListener("click", signIn);
  $("signin-form").addEventListener("submit", submit);
  $("signin").addEventListener("cancel", (event) => $("signin-close").hidden && event.preventDefault());
  const listing = sidebar.refreshClasses().catch(() => null);
  const data = await me();
  pictures.start();
  progress.start(data);
  if (!data.name) return signIn();
  await listing;
  sidebar.start((toGrid) => grid.show(toGrid).catch(failed));
  await show();
  setInterval(() => document.hidden || call("POST", "/leases", { action: "renew" }).catch(() => null), (data.lease_seconds * 1000) / 3);
  document.documentElement.dataset.ready = "1";
  return null;
}

start().catch(failed);
