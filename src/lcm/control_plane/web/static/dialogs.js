// The dialog, toasts and the theme: what every page with buttons has.
import { checkTyped, focusDialog, showProblem } from "./forms.js";

const dialog = document.getElementById("dialog");
const toasts = document.getElementById("toasts");
const TOAST_SECONDS = 8;

document.body.addEventListener("htmx:after:swap", (event) => {
  if (event.detail.ctx?.target === dialog && dialog.querySelector("form") && !dialog.open) {
    dialog.showModal();
    focusDialog();
  } else if (event.detail.ctx?.target === dialog) {
    const invalid = dialog.querySelector("[aria-invalid=true]");
    invalid?.closest("details")?.setAttribute("open", "");
    invalid?.focus();
    checkTyped();
    if (!dialog.contains(document.activeElement)) focusDialog();
  }
  for (const toast of toasts.querySelectorAll(".toast:not([data-seen])")) announce(toast, event.detail.ctx);
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

document.body.addEventListener("lcm:done", () => dialog.close());
dialog.addEventListener("close", () => dialog.replaceChildren());
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-close]")) dialog.close();
  event.target.closest("[data-dismiss]")?.closest(".toast").remove();
});
document.getElementById("theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("lcm-theme", root.dataset.theme); } catch { /* storage may be switched off */ }
  document.dispatchEvent(new CustomEvent("lcm:theme"));
});
