// A form is sent once: while its request is on its way its buttons are off, and a second request is not sent. The
// server knows a repeated form by its key. Buttons of dialogs that ask for a typed text are off until it is typed.
const dialog = document.getElementById("dialog");
const sending = new Map(); // by request: its source, and the buttons that are off meanwhile

const isChange = (ctx) => !/^(get|head)$/i.test(ctx.request.method);
const submitButtons = (source) => (source.matches("form") ? [...source.querySelectorAll("button:not([type=button])")] : [source]);

document.body.addEventListener("htmx:config:request", (event) => {
  const { ctx } = event.detail;
  const source = ctx.sourceElement;
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
