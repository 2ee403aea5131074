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

// A proposed time is filled in, and the preview is asked for again.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-fill]");
  if (!button) return;
  const form = document.querySelector("#dialog form");
  for (const [name, value] of Object.entries(JSON.parse(button.dataset.fill))) {
    if (form.elements[name]) form.elements[name].value = value;
  }
  form.elements.start.dispatchEvent(new Event("change", { bubbles: true }));
  form.elements.start.focus();
});
