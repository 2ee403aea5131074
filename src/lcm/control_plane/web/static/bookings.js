// Bookings: the week in the zone of the viewer, and proposed times that fill the form.
import { timeZone } from "./relative-time.js";

// The server does not know the zone of the viewer: the calendar is read again in it. One that is chosen by the URL stays.
const calendar = document.getElementById("calendar");
if (calendar?.dataset.zoneIs === "default" && timeZone && timeZone !== calendar.dataset.zone) {
  const query = new URLSearchParams(location.search);
  query.set("zone", timeZone);
  const url = `/bookings?${query}`;
  history.replaceState(history.state, "", url);
  calendar.dataset.refresh = url; // an answer for another address would be dropped as outdated
  htmx.ajax("GET", url, { target: calendar, swap: "outerMorph" });
}

// A proposal is filled in, and the preview is asked for again.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-fill]");
  if (!button) return;
  const { elements } = button.closest("form");
  const filled = Object.entries(JSON.parse(button.dataset.fill)).map(([name, value]) => {
    elements[name].value = value;
    const field = [...(elements[name].length && !elements[name].options ? elements[name] : [elements[name]])].find((each) => each.type !== "radio" || each.checked);
    if (value) field.closest("details")?.setAttribute("open", "");
    return field;
  });
  filled[0].dispatchEvent(new Event("change", { bubbles: true }));
  filled[0].focus();
});

// What a form shows about its class is true only for what was filled in when it was asked for.
const isCheck = (source) => source?.id === "check";
function showCheck(check, state, problem = null) {
  const section = check.closest("section");
  section.setAttribute("aria-busy", String(Boolean(state)));
  section.querySelector(".check-state").textContent = state;
  if (problem) check.replaceChildren(Object.assign(document.createElement("p"), { className: "problem-note", textContent: problem }));
}
const checkAgain = () => document.getElementById("check")?.dispatchEvent(new Event("check"));
document.addEventListener("lcm:reconnected", checkAgain);
document.body.addEventListener("htmx:after:swap", ({ detail: { ctx } }) => ctx?.target?.id === "dialog" && document.querySelector("#check:empty") && checkAgain());
// The page below the dialog follows the booking: once it shows a newer version than the dialog, that is checked too.
document.body.addEventListener("htmx:after:swap", () => {
  const check = document.getElementById("check");
  const shown = document.querySelector("[data-booking-version]")?.dataset.bookingVersion;
  const version = document.getElementById("check-form")?.elements.version?.value;
  if (!check || !version || !(Number(shown) > Number(version)) || check.dataset.checked === shown) return;
  check.dataset.checked = shown;
  checkAgain();
});
// When it is sent: one that waited behind another is under way only after the other has ended.
document.body.addEventListener("htmx:before:request", ({ detail: { ctx } }) => isCheck(ctx.sourceElement) && showCheck(ctx.sourceElement, "Checking…"));
document.body.addEventListener("htmx:finally:request", ({ detail: { ctx } }) => {
  if (isCheck(ctx.sourceElement)) showCheck(ctx.sourceElement, "", ctx.response?.status >= 400 ? "The server could not check whether it fits." : null);
});
document.body.addEventListener("htmx:error", ({ detail: { ctx } }) => {
  if (isCheck(ctx?.sourceElement)) showCheck(ctx.sourceElement, "", "There is no connection to the server: whether it fits is not known. It is checked again when the connection is back.");
});
