// What pages do without the server: the dialog, toasts, the theme, and which rows are picked.
const dialog = document.getElementById("dialog");
const toasts = document.getElementById("toasts");
const TOAST_SECONDS = 8;

document.body.addEventListener("htmx:config:request", (event) => {
  const { ctx } = event.detail;
  // Addresses people share say only what was asked for.
  if (ctx.sourceElement?.id === "filters" && ctx.request.body) {
    for (const [name, value] of [...ctx.request.body]) if (value === "") ctx.request.body.delete(name);
  }
});

document.body.addEventListener("htmx:after:swap", (event) => {
  if (event.detail.ctx?.target === dialog && dialog.querySelector("form") && !dialog.open) {
    dialog.showModal();
    dialog.querySelector("input:not([type=hidden]), select, textarea, [data-close]")?.focus();
  } else if (event.detail.ctx?.target === dialog) {
    const wrong = dialog.querySelector("[aria-invalid=true]");
    wrong?.closest("details")?.setAttribute("open", "");
    wrong?.focus();
  }
  for (const toast of toasts.querySelectorAll(".toast:not([data-seen])")) announce(toast);
  count();
});

function announce(toast) {
  toast.dataset.seen = "";
  if (dialog.open && toast.classList.contains("bad")) {
    // Behind a dialog nobody would see or hear it.
    tellInDialog(toast.querySelector("span").textContent);
    toast.remove();
    return;
  }
  if (!toast.classList.contains("bad")) setTimeout(() => toast.remove(), TOAST_SECONDS * 1000);
}

function tellInDialog(words) {
  let place = dialog.querySelector(".dialog-problem");
  if (!place) {
    place = document.createElement("p");
    place.className = "dialog-problem problem-note";
    place.setAttribute("role", "alert");
    dialog.querySelector(".choices")?.before(place);
  }
  place.textContent = words;
}

document.body.addEventListener("lcm:done", () => {
  dialog.close();
  for (const pick of picks()) pick.checked = false;
  count();
});
dialog.addEventListener("close", () => dialog.replaceChildren());
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-close]")) dialog.close();
  event.target.closest("[data-dismiss]")?.closest(".toast").remove();
  const rows = document.getElementById(event.target.closest("[data-more]")?.dataset.more);
  if (rows) oneMore(rows);
});
function oneMore(rows) {
  const row = rows.lastElementChild.cloneNode(true);
  for (const field of row.querySelectorAll("input")) {
    field.value = "";
    field.setAttribute("value", "");
    field.setAttribute("aria-label", field.getAttribute("aria-label").replace(/\d+$/, rows.children.length + 1));
  }
  rows.append(row);
  row.querySelector("input").focus();
}
// A request that found nobody: the dialog says so and keeps what was typed.
document.body.addEventListener("htmx:error", (event) => {
  if (dialog.open && dialog.contains(event.detail.ctx?.sourceElement)) tellInDialog("The server could not be reached, so nothing is known to have happened. See how it is now, then try again.");
});

document.getElementById("theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("lcm-theme", root.dataset.theme); } catch { /* storage may be switched off */ }
  document.dispatchEvent(new CustomEvent("lcm:theme"));
});

// Rows that are picked for a change of many.
const picks = () => [...document.querySelectorAll("input[name=ids]")];
function count() {
  const bulk = document.getElementById("bulk");
  if (!bulk) return;
  const some = picks().filter((each) => each.checked).length;
  bulk.hidden = some === 0;
  document.getElementById("picked").textContent = `${some} ${bulk.dataset.noun}${some === 1 ? "" : "s"} chosen`;
  const all = document.getElementById("pick-all");
  if (all) {
    all.checked = some > 0 && some === picks().length;
    all.indeterminate = some > 0 && some < picks().length;
  }
}
document.addEventListener("change", (event) => {
  if (event.target.id === "pick-all") for (const each of picks()) each.checked = event.target.checked;
  if (event.target.id === "pick-all" || event.target.name === "ids") count();
});
count();
