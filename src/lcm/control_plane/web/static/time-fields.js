// Fields for a time show it in the zone of the viewer; the server renders and reads UTC. Every request carries the instant,
// with its Z, so that no zone has to be guessed. Without scripts the fields stay in UTC, as their labels say.
import { timeZone, localMinute } from "./relative-time.js";

const FIELDS = "input[data-instant]";
function instant(local) {
  const moment = new Date(local);
  return Number.isNaN(moment.getTime()) ? local : moment.toISOString().replace(/:\d+\.\d+Z$/, "Z");
}

// Shown on hover: an hour that a change of the clocks repeats or leaves out is then no riddle.
const describe = (field) => (field.title = field.value ? instant(field.value) : "");

function showLocal(field) {
  if (field.dataset.instant === "local") return;
  field.dataset.instant = "local";
  if (field.value) field.value = localMinute(Date.parse(`${field.value}Z`));
  describe(field);
  for (const zone of field.closest("label").querySelectorAll(".zone")) zone.textContent = timeZone;
}

export function showTimeFields() {
  for (const field of document.querySelectorAll(FIELDS)) showLocal(field);
}

function sendInstants(data) {
  for (const field of document.querySelectorAll(FIELDS)) {
    if (field.value && data.get(field.name) === field.value) data.set(field.name, instant(field.value));
  }
}
document.addEventListener("formdata", (event) => sendInstants(event.formData));
// Fields that a request includes from another form are not read as a form.
document.body.addEventListener("htmx:config:request", (event) => event.detail.ctx.request.body && sendInstants(event.detail.ctx.request.body));
document.addEventListener("input", (event) => event.target.matches?.(FIELDS) && describe(event.target));
