// Buttons that copy a text. Browsers offer the clipboard on HTTPS and on this machine only; elsewhere a selection is copied.
const SHOWN_FOR = 2000;

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const copied = await copyText(button.dataset.copy, button);
  button.textContent = copied ? "Copied" : "Press Ctrl+C";
  setTimeout(() => { button.textContent = "Copy"; }, SHOWN_FOR);
});

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const code = button.parentElement.querySelector("code");
    getSelection().selectAllChildren(code);
    return document.execCommand("copy");
  }
}
