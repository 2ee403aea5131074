import { timeZone } from "./relative-time.js";

// Lists: the history of filters, all matching rows, the chosen columns, and the keyboard.
const filters = document.getElementById("filters");
const table = () => document.querySelector("[data-total]");

// What is typed into one field until the user leaves it or presses Enter is one entry of the history. A filter keeps the
// order and the view of the list.
let edited = null; // the field whose text has an entry already
filters?.addEventListener("focusin", () => (edited = null));
document.body.addEventListener("htmx:config:request", (event) => {
  const { ctx } = event.detail;
  if (ctx.sourceElement !== filters) return;
  const now = new URLSearchParams(location.search);
  for (const name of ["sort", "view", "worker"]) {
    if (now.get(name)) ctx.request.body.set(name, now.get(name));
    else ctx.request.body.delete(name);
  }
  const field = ctx.sourceEvent?.type === "input" ? ctx.sourceEvent.target : null;
  if (field && field === edited) [ctx.push, ctx.replace] = [undefined, "true"];
  edited = field?.matches("input") ? field : null;
});

// Choosing all rows of a page offers all that match. The server finds them, and asks for their number.
const bulk = document.getElementById("bulk");
const matching = bulk?.querySelector("[name=matching]");
const offer = document.getElementById("select-matching");
const boxes = () => [...document.querySelectorAll("input[name=ids]")];
const words = (count) => `${count.toLocaleString("en")} ${bulk.dataset.noun}${count === 1 ? "" : "s"}`;

export function updateMatching() {
  if (!bulk) return;
  const all = Number(table()?.dataset.total ?? 0);
  const whole = boxes().length > 0 && boxes().every((each) => each.checked) && all > boxes().length;
  if (!whole || matching.value !== location.search.slice(1)) matching.disabled = true;
  offer.hidden = !whole || !matching.disabled;
  offer.textContent = `Select all ${words(all)} that match`;
  if (!matching.disabled) document.getElementById("selected-count").textContent = `All ${words(all)} that match are selected`;
}
offer?.addEventListener("click", () => {
  matching.value = location.search.slice(1);
  matching.disabled = false;
  updateMatching();
});

// The columns that this browser shows.
const choice = document.getElementById("columns");
const KEY = `lcm-columns-${location.pathname}`;
function hiddenColumns() {
  try { return JSON.parse(localStorage.getItem(KEY) ?? "[]"); } catch { return []; }
}
function showColumns(hidden) {
  document.body.dataset.hidden = hidden.join(" ");
  try { localStorage.setItem(KEY, JSON.stringify(hidden)); } catch { /* storage may be switched off */ }
}
function listColumns() {
  const group = choice?.querySelector("[role=group]");
  if (!group || group.childElementCount) return;
  const hidden = hiddenColumns();
  showColumns(hidden);
  for (const heading of document.querySelectorAll("thead [data-column]")) {
    const button = document.createElement("button");
    [button.type, button.value, button.textContent] = ["button", heading.dataset.column, heading.textContent.trim()];
    button.setAttribute("aria-pressed", String(!hidden.includes(heading.dataset.column)));
    group.append(button);
  }
}
choice?.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
  showColumns([...choice.querySelectorAll("[aria-pressed=false]")].map((each) => each.value));
});

// The keyboard, unless something is being typed or a dialog is open.
const keys = document.getElementById("keys");
function moveRow(step) {
  const links = [...document.querySelectorAll(".problems li > a, tbody tr th a:first-of-type")];
  const at = links.indexOf(document.activeElement?.closest("tr, .problems li")?.querySelector("th a, li > a"));
  (links[Math.max(0, Math.min(links.length - 1, at + step))] ?? links[0])?.focus();
}
const SEARCH = "#q";
function search() {
  const field = document.querySelector(SEARCH);
  if (field) field.select();
  else location.assign(`/fleet${SEARCH}`); // a page without a search field: workers are searched
}
const ACTIONS = {
  "/": search,
  j: () => moveRow(1),
  k: () => moveRow(-1),
  "?": () => keys.showModal(),
};
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input:not([type=checkbox]), select, textarea, [contenteditable]");
  if (typing && event.key === "Escape" && event.target.id === "q") event.target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (!Object.hasOwn(ACTIONS, event.key)) return;
  event.preventDefault();
  ACTIONS[event.key]();
});
document.getElementById("show-keys").addEventListener("click", (event) => {
  event.preventDefault();
  keys.showModal();
});
document.getElementById("keys-close").addEventListener("click", () => keys.close());
document.getElementById("time-zone").textContent = timeZone;

listColumns();
if (location.hash === SEARCH) search();
document.body.addEventListener("htmx:after:swap", () => {
  listColumns();
  updateMatching();
});
