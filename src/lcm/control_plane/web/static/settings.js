// The theme: light, dark, or that of the system.
const root = document.documentElement;
const choices = [...document.querySelectorAll("[data-theme-choice]")];

function show() {
  const now = root.dataset.theme ?? "";
  for (const each of choices) each.setAttribute("aria-pressed", String(each.dataset.themeChoice === now));
}

function choose(theme) {
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  try {
    if (theme) localStorage.setItem("lcm-theme", theme);
    else localStorage.removeItem("lcm-theme");
  } catch { /* storage may be switched off */ }
  document.dispatchEvent(new CustomEvent("lcm:theme"));
  show();
}

for (const each of choices) each.addEventListener("click", () => choose(each.dataset.themeChoice));
document.addEventListener("lcm:theme", show);
show();
