// The learners' page: it follows changes of its labs, and counts down the time that is left.
import "./dialogs.js";
import { showState } from "./connection.js";
import { duration, refreshTimes } from "./relative-time.js";
import { Stream } from "./stream.js";

const SOON = 300; // seconds before the end at which the time left is marked
const REPEAT = 30000; // what changes elsewhere, such as the worker, is not announced

function timeLeft(seconds) {
  if (seconds <= 0) return "over";
  if (seconds >= 3600) return duration(seconds);
  return `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")} minutes`;
}

function countDown() {
  for (const each of document.querySelectorAll("[data-ends]")) {
    const seconds = (Date.parse(each.dataset.ends) - Date.now()) / 1000;
    const text = timeLeft(seconds);
    if (each.textContent !== text) each.textContent = text;
    each.classList.toggle("soon", seconds < SOON);
  }
}

let failures = 0;
for (const kind of ["htmx:error", "htmx:response:error"]) document.body.addEventListener(kind, () => (failures += 1));

// One request at a time; a change in between leads to one more.
let reading = null;
let again = false;
function refresh() {
  again = true;
  reading ??= (async () => {
    const before = failures;
    try {
      while (again) {
        again = false;
        await htmx.ajax("GET", "/my/now", { target: "#labs", swap: "outerMorph" });
      }
    } catch {
      failures += 1; // the stream notices that the connection is lost
    } finally {
      reading = null;
    }
    countDown();
    refreshTimes();
    return failures === before;
  })();
  return reading;
}

const stream = new Stream("/my/events", { onEvent: refresh, onState: showState, catchUp: refresh, check: "/my/session" });
stream.connect();
// The page that follows says whether the lab has ended, the link was revoked, or a sign-in is needed.
for (const target of [document, document.body]) target.addEventListener("lcm:signed-out", () => location.reload());
document.body.addEventListener("lcm:done", refresh);
document.body.addEventListener("htmx:after:swap", () => { countDown(); refreshTimes(); });
countDown();
refreshTimes();
setInterval(countDown, 1000);
setInterval(refreshTimes, 5000);
setInterval(() => stream.state === "live" && refresh(), REPEAT);
