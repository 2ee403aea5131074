// Runs before the page is drawn, so that the dark theme does not start with a white flash.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("lcm-theme"); } catch { /* storage may be switched off */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
