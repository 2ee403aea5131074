// What forms and buttons do: problems are shown next to them, and without a connection they are off. A form is sent once: while its request is on its way its buttons are off, and a second request is not sent. The
// server knows a repeated form by its key. Buttons of dialogs that ask for a typed text are off until it is typed.
const dialog = document.getElementById("dialog");
const sending = new Map(); // by request: its source, and the buttons that are off meanwhile

const isChange = (ctx) => !/^(get|head)$/i.test(ctx.request.method);
const submitButtons = (source) => (source.matches("form") ? [...source.querySelectorAll("button:not([type=button])")] : [source]);

// What a user uses to request something; parts of the page that refresh themselves are not.
const isControl = (source) => source?.matches?.("button, a, form");

// A message next to what caused it, until that is used again. In a dialog it stands above the buttons.
export function showProblem(source, text) {
  clearProblem(source);
  const message = document.createElement("p");
  message.className = "problem-note near";
  message.setAttribute("role", "alert");
  message.textContent = text;
  if (dialog.open && dialog.contains(source)) dialog.querySelector(".choices").before(message);
  else (source.closest(".actions, .title, .bulk, .filters, .setting") ?? source).after(message);
  problems.set(source, message);
}
const problems = new Map();
function clearProblem(source) {
  problems.get(source)?.remove();
  problems.delete(source);
}

// Without a connection: buttons that need the server are off and say why; a filter is applied when it is back.
let connected = true;
let refused = null; // the filters that could not be applied
const NEEDS_SERVER = "button[hx-get], button[hx-post], form[hx-get] button:not([type=button]), form[hx-post] button:not([type=button])";
const OFFLINE = "There is no connection to the server. Try again when it is back.";
export function setConnected(now) {
  if (now === connected) return;
  connected = now;
  for (const each of document.querySelectorAll(now ? "[data-offline]" : NEEDS_SERVER)) {
    if (!now && each.disabled) continue;
    each.disabled = !now;
    each.toggleAttribute("data-offline", !now);
    if (now) each.removeAttribute("title");
    else each.title = OFFLINE;
  }
  if (!now) return;
  for (const each of [...problems.keys()]) clearProblem(each);
  checkTyped();
  if (refused?.isConnected) refused.requestSubmit();
  refused = null;
}

document.body.addEventListener("htmx:config:request", (event) => {
  const { ctx } = event.detail;
  const source = ctx.sourceElement;
  if (!connected && isControl(source)) {
    event.preventDefault();
    if (source.id === "filters") refused = source;
    showProblem(source, source.id === "filters" ? "There is no connection to the server. The filter is applied when it is back." : OFFLINE);
    return;
  }
  clearProblem(source);
  if (!isChange(ctx)) return;
  if ([...sending.values()].some((each) => each.source === source)) {
    event.preventDefault();
    return;
  }
  const buttons = submitButtons(source).filter((each) => !each.disabled);
  const focused = buttons.find((each) => each === document.activeElement);
  sending.set(ctx, { source, buttons, focused });
  source.setAttribute("aria-busy", "true");
  for (const each of buttons) each.disabled = true;
});

document.body.addEventListener("htmx:finally:request", (event) => {
  const sent = sending.get(event.detail.ctx);
  if (!sent) return;
  sending.delete(event.detail.ctx);
  sent.source.removeAttribute("aria-busy");
  for (const each of sent.buttons) each.disabled = false;
  checkTyped();
  if (sent.focused?.isConnected && document.activeElement === document.body) sent.focused.focus();
});

// The server did not respond.
document.body.addEventListener("htmx:error", (event) => {
  const { ctx } = event.detail;
  if (!isControl(ctx?.sourceElement)) return;
  showProblem(ctx.sourceElement, isChange(ctx)
    ? "The server could not be reached. The change may not have been made. You can send it again: it has an effect once."
    : "The server could not be reached. Try again in a moment.");
});

// The name or the number that confirms what cannot be undone.
export function checkTyped() {
  const field = dialog.querySelector("[data-expected]");
  const button = dialog.querySelector("#do");
  if (field && button) button.disabled = field.value.trim() !== field.dataset.expected;
}
dialog.addEventListener("input", checkTyped);

// The focus of an opened dialog is never in a field in which Enter would destroy something: it is in the field for the
// typed text, which does nothing while it is empty, or on Cancel.
export function focusDialog() {
  checkTyped();
  const typed = dialog.querySelector("[data-expected]");
  const first = dialog.querySelector("input:not([type=hidden]), select, textarea, [data-close]");
  (typed ?? (dialog.querySelector("#do.danger") ? dialog.querySelector("[data-close]") : first))?.focus();
}
