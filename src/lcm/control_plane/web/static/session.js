// A session that has ended: a dialog above the page says so and signs in again. The page, its place and what was typed
// stay as they are, so that the last action can be repeated.
const dialog = document.getElementById("session");
const form = document.getElementById("session-form");
const problem = document.getElementById("session-problem");
const HEADERS = "hx-headers:inherited";

const here = () => encodeURIComponent(location.pathname + location.search);

// Fields that the person has changed; scripts set others.
const changed = new Set();
document.addEventListener("input", (event) => form.contains(event.target) || changed.add(event.target));

// Nothing that a person typed or opened may be lost.
function isUntouched() {
  return !document.querySelector("dialog[open]") && ![...changed].some((field) => field.isConnected);
}

// The identity provider may still know the person: then they come back to this page without a question.
async function show() {
  if (dialog.open) return;
  const asked = fetch("/sign-in/silent/possible", { cache: "no-store" }).then((reply) => reply.json());
  const lapsed = await asked.then((reply) => reply.possible === true, () => false);
  if (dialog.open) return;
  const page = lapsed ? "/sign-in/silent" : "/sign-in";
  if (lapsed && isUntouched()) return location.assign(`${page}?next=${here()}`);
  dialog.querySelector("a").href = `${page}?next=${here()}`;
  document.getElementById("session-lapsed").hidden = !lapsed;
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
