// Before anything is drawn, so that nobody who chose dark sees a white flash.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("lcm-theme"); } catch { /* storage may be switched off */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
