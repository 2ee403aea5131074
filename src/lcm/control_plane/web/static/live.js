// Keeps the page as the fleet is. Events only say that something changed; what it is now is asked of the server, and an
// answer that is older than what is shown already is never put in its place.
import "./page.js";
import { Stream } from "./stream.js";
import { refreshTimes } from "./words.js";

const ROWS_GAP = 150;
const { topics, workerId, labletId } = document.body.dataset;
const aboutOne = Boolean(workerId || labletId);
const PART_GAP = aboutOne ? 400 : 2000; // one record is read in a moment, a list is not
const SUMMARY_GAP = 1000;
const FIGURES_GAP = 15000;
const MOST_IDS = 100;

// Lists by what they list, which is also the topic of its events: how rows are called, and where they are read anew.
const LISTS = { worker: { row: "w-", rows: "/fleet/rows" }, lablet: { row: "lablet-", rows: "/lablets/rows" } };
let stream = null;

// A morph may bring a part that was rendered before the one on the page: then the page keeps what it has.
htmx.registerExtension("newer", {
  htmx_before_morph_node(node, detail) {
    const now = Number(detail.oldNode.dataset?.version);
    const then = Number(detail.newNode.dataset?.version);
    return !(then < now);
  },
});

// Somebody may have asked for something else while a part was under way: its answer is no longer to this question.
document.body.addEventListener("htmx:before:swap", (event) => {
  const { ctx } = event.detail;
  const address = ctx?.target?.dataset?.refresh;
  if (!address || ctx.sourceElement !== ctx.target) return;
  if (new URL(ctx.request.action, location).href !== new URL(address, location).href) event.preventDefault();
});

// Runs at once, then at most once in a while; whatever is asked for meanwhile is one more run after.
function paced(gap, work) {
  let last = -Infinity;
  let timer = null;
  let running = false;
  let again = false;
  return function ask() {
    if (running || timer !== null) {
      again = running || again;
      return;
    }
    timer = setTimeout(async () => {
      timer = null;
      running = true;
      last = performance.now();
      try {
        await work();
      } catch {
        // Lost on the way: the stream tells, and everything is read again when it is back.
      } finally {
        running = false;
        if (again) {
          again = false;
          ask();
        }
      }
    }, Math.max(0, last + gap - performance.now()));
  };
}

const get = (address, target) => htmx.ajax("GET", address, target);
const nowhere = { target: "#toasts", swap: "none" };

// The rows of one list, each kept at the newest version that is known to exist.
function following({ row: prefix, rows }) {
  const row = (id) => document.getElementById(prefix + id);
  const heard = new Map(); // versions of those on this page
  const dirty = new Set();
  const refresh = paced(ROWS_GAP, async () => {
    const ids = [...dirty].filter((id) => row(id)).slice(0, MOST_IDS);
    dirty.clear();
    if (ids.length) await get(`${rows}?ids=${ids.join(",")}`, nowhere);
    for (const id of ids) {
      // The answer may have been made before the event that asked for it was known everywhere.
      if (Number(row(id)?.dataset.version) < (heard.get(id) ?? 0)) dirty.add(id);
    }
    if (dirty.size) refresh();
  });
  return function changed({ id, version }) {
    const shown = row(id);
    if (shown) {
      heard.set(id, Math.max(version, heard.get(id) ?? 0));
      if (version > Number(shown.dataset.version)) {
        dirty.add(id);
        refresh();
      }
    }
    for (const known of heard.keys()) if (!row(known)) heard.delete(known);
  };
}
const followed = Object.fromEntries(Object.entries(LISTS).map(([kind, list]) => [kind, following(list)]));
const refreshParts = paced(PART_GAP, async () => {
  for (const part of document.querySelectorAll("[data-refresh]")) {
    await get(part.dataset.refresh, { target: part, swap: "outerMorph" });
  }
  refreshFigures();
});
const refreshSummary = paced(SUMMARY_GAP, () => get("/fleet/summary", nowhere));
const refreshFigures = paced(FIGURES_GAP, async () => {
  const ids = [...document.querySelectorAll("tr[data-worker]")].map((each) => each.dataset.worker).slice(0, MOST_IDS);
  if (ids.length) await get(`/fleet/figures?ids=${ids.join(",")}`, nowhere);
});

function refreshAll() {
  refreshSummary();
  refreshParts();
  refreshFigures();
  document.dispatchEvent(new CustomEvent("lcm:caught-up"));
}

function changed(kind, data) {
  followed[kind]?.(JSON.parse(data));
  refreshParts();
  refreshSummary();
}

function shown(state) {
  const place = document.getElementById("connection");
  place.dataset.state = state;
  place.querySelector(".words").textContent = { live: "Live", lost: "Connection lost", waiting: "Paused" }[state];
  const banner = document.getElementById("lost");
  if (state === "lost" && banner.hidden) {
    const since = document.getElementById("lost-since");
    const now = new Date();
    since.dateTime = now.toISOString();
    since.title = now.toLocaleString();
    since.textContent = "a moment ago";
  }
  banner.hidden = state !== "lost";
}

const query = new URLSearchParams({ topic: topics });
if (workerId) query.set("worker_id", workerId);
if (labletId) query.set("lablet_id", labletId);
stream = new Stream(`/api/events/stream?${query}`, { onEvent: changed, onState: shown, onBack: refreshAll });
stream.connect();
refreshFigures();
setInterval(refreshTimes, 5000);
setInterval(() => stream.state === "live" && refreshFigures(), FIGURES_GAP * 2);
// What is decided for a worker, and what holds for the fleet, no event of this one record tells.
if (aboutOne) setInterval(() => stream.state === "live" && (refreshParts(), refreshSummary()), FIGURES_GAP);
// After a change of ours everything that it may have touched is read again, without waiting for the stream.
document.body.addEventListener("lcm:done", refreshAll);
document.body.addEventListener("htmx:after:swap", (event) => {
  refreshTimes();
  if (event.detail.ctx?.sourceElement?.id === "filters") refreshSummary();
  if (event.detail.ctx?.target?.id === "fleet-table") refreshFigures();
});
