// A session that has ended: a dialog above the page says so and signs in again. The page, its place and what was typed
// stay as they are, so that the last action can be repeated.
const dialog = document.getElementById("session");
const form = document.getElementById("session-form");
const problem = document.getElementById("session-problem");
const HEADERS = "hx-headers:inherited";

function show() {
  if (dialog.open) return;
  dialog.querySelector("a").href = `/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`;
  problem.hidden = true;
  dialog.showModal();
}

// Changes must carry the token of the new session.
function resume(csrf) {
  const headers = { ...JSON.parse(document.body.getAttribute(HEADERS)), "X-LCM-CSRF": csrf };
  document.body.setAttribute(HEADERS, JSON.stringify(headers));
  form.reset();
  dialog.close();
  document.dispatchEvent(new CustomEvent("lcm:signed-in"));
}

async function signIn() {
  const body = JSON.stringify({ token: form.elements.token.value });
  const response = await fetch("/api/session", { method: "POST", headers: { "Content-Type": "application/json" }, body });
  const content = await response.json();
  if (response.ok) return resume(content.csrf);
  problem.textContent = content.detail ?? content.title;
  problem.hidden = false;
}

// The user may have signed in on another tab: a page of ours then has the token of that session.
async function resumeFromOtherTab() {
  const response = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const headers = page.body.getAttribute(HEADERS);
  if (headers && dialog.open) resume(JSON.parse(headers)["X-LCM-CSRF"]);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  signIn().catch(() => {
    problem.textContent = "The server could not be reached. Try again in a moment.";
    problem.hidden = false;
  });
});
dialog.addEventListener("cancel", (event) => event.preventDefault()); // without a session nothing on the page works
addEventListener("focus", () => dialog.open && resumeFromOtherTab().catch(() => {}));
document.addEventListener("lcm:signed-out", show);
