// What pages do without the server: selected rows, menus, and fields that are added; see dialogs.js for the rest.
import "./dialogs.js";
import { updateMatching } from "./lists.js";

document.body.addEventListener("htmx:config:request", (event) => {
  const { ctx } = event.detail;
  // Shared URLs contain only the filters that are set.
  if (ctx.sourceElement?.id === "filters" && ctx.request.body) {
    for (const [name, value] of [...ctx.request.body]) if (value === "") ctx.request.body.delete(name);
  }
});

document.body.addEventListener("htmx:after:swap", () => updateSelection());
document.body.addEventListener("lcm:done", () => {
  for (const each of checkboxes()) each.checked = false;
  updateSelection();
});
document.addEventListener("click", (event) => {
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
