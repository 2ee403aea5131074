// A seat link carries its code after #, so that no log contains it, and a preview of the link does not open it. The
// person opens the lab with the button, which sends the code.
const code = location.hash.slice(1);
const form = document.getElementById("open");
if (form && /^[a-z0-9-]+\.[0-9a-f]{64}$/.test(code)) {
  document.getElementById("code").value = code;
  form.hidden = false;
  document.getElementById("no-code")?.remove();
}
