// What pages do without the server: the dialog, toasts, the theme, and selected rows.
import { updateMatching } from "./lists.js";
import { checkTyped, focusDialog, showProblem } from "./forms.js";

const dialog = document.getElementById("dialog");
const toasts = document.getElementById("toasts");
const TOAST_SECONDS = 8;

document.body.addEventListener("htmx:config:request", (event) => {
  const { ctx } = event.detail;
  // Shared URLs contain only the filters that are set.
  if (ctx.sourceElement?.id === "filters" && ctx.request.body) {
    for (const [name, value] of [...ctx.request.body]) if (value === "") ctx.request.body.delete(name);
  }
});

document.body.addEventListener("htmx:after:swap", (event) => {
  if (event.detail.ctx?.target === dialog && dialog.querySelector("form") && !dialog.open) {
    dialog.showModal();
    focusDialog();
  } else if (event.detail.ctx?.target === dialog) {
    const invalid = dialog.querySelector("[aria-invalid=true]");
    invalid?.closest("details")?.setAttribute("open", "");
    invalid?.focus();
    checkTyped();
  }
  for (const toast of toasts.querySelectorAll(".toast:not([data-seen])")) announce(toast, event.detail.ctx);
  updateSelection();
});

function announce(toast, ctx) {
  toast.dataset.seen = "";
  const source = ctx?.sourceElement;
  if (toast.classList.contains("bad") && ctx?.response?.status >= 400 && source?.matches("button, a, form")) {
    // The problem of an action belongs next to its button; behind a dialog a toast could not be seen or heard.
    showProblem(source, toast.querySelector("span").textContent);
    toast.remove();
    return;
  }
  if (!toast.classList.contains("bad")) setTimeout(() => toast.remove(), TOAST_SECONDS * 1000);
}

document.body.addEventListener("lcm:done", () => {
  dialog.close();
  for (const each of checkboxes()) each.checked = false;
  updateSelection();
});
dialog.addEventListener("close", () => dialog.replaceChildren());
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-close]")) dialog.close();
  event.target.closest("[data-dismiss]")?.closest(".toast").remove();
  const rows = document.getElementById(event.target.closest("[data-more]")?.dataset.more);
  if (rows) addRow(rows);
});

// A menu closes when something else is used, and with Escape.
const openMenus = () => [...document.querySelectorAll("details.menu[open], details.columns[open]")];
document.addEventListener("click", (event) => {
  for (const menu of openMenus()) {
    if (!menu.contains(event.target) || event.target.closest("[hx-get]")) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" ? openMenus().at(-1) : null;
  if (!menu || document.querySelector("dialog[open]")) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});
function addRow(rows) {
  const row = rows.lastElementChild.cloneNode(true);
  for (const field of row.querySelectorAll("input")) {
    field.value = "";
    field.setAttribute("value", "");
    field.setAttribute("aria-label", field.getAttribute("aria-label").replace(/\d+$/, rows.children.length + 1));
  }
  rows.append(row);
  row.querySelector("input").focus();
}
document.getElementById("theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("lcm-theme", root.dataset.theme); } catch { /* storage may be switched off */ }
  document.dispatchEvent(new CustomEvent("lcm:theme"));
});

// Rows that are selected for a bulk action.
const checkboxes = () => [...document.querySelectorAll("input[name=ids]")];
function updateSelection() {
  const bulk = document.getElementById("bulk");
  if (!bulk) return;
  const selected = checkboxes().filter((each) => each.checked).length;
  bulk.hidden = selected === 0;
  document.getElementById("selected-count").textContent = `${selected} ${bulk.dataset.noun}${selected === 1 ? "" : "s"} selected`;
  const all = document.getElementById("select-all");
  if (all) {
    all.checked = selected > 0 && selected === checkboxes().length;
    all.indeterminate = selected > 0 && selected < checkboxes().length;
  }
  updateMatching();
}
document.addEventListener("change", (event) => {
  if (event.target.id === "select-all") for (const each of checkboxes()) each.checked = event.target.checked;
  if (event.target.id === "select-all" || event.target.name === "ids") updateSelection();
});
updateSelection();
