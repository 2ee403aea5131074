// Keeps the page up to date. Events only say that something changed; the current state is read from the server, and a
// response that is older than what the page shows never replaces it.
import "./page.js";
import "./session.js";
import { showState } from "./connection.js";
import { Stream } from "./stream.js";
import { refreshTimes } from "./relative-time.js";
import { showTimeFields } from "./time-fields.js";

const ROWS_GAP = 150;
const { topics, workerId, labletId } = document.body.dataset;
const aboutOne = Boolean(workerId || labletId);
const PART_GAP = aboutOne ? 400 : 2000; // one record is read quickly, a list is not
const SUMMARY_GAP = 1000;
const METRICS_GAP = 15000;
const MAX_IDS = 100;

// Lists by the topic of their events: the prefix of the row IDs, and the URL that renders rows.
const LISTS = { worker: { row: "w-", rows: "/fleet/rows" }, lablet: { row: "lablet-", rows: "/lablets/rows" } };
let stream = null;

// A morph may bring a part that was rendered before the one on the page: the page then keeps its own.
htmx.registerExtension("newer", {
  htmx_before_morph_node(node, detail) {
    const shownVersion = Number(detail.oldNode.dataset?.version);
    const newVersion = Number(detail.newNode.dataset?.version);
    return !(newVersion < shownVersion);
  },
});

// The user may have changed the filters while a part was on its way: such a response is dropped.
document.body.addEventListener("htmx:before:swap", (event) => {
  const { ctx } = event.detail;
  const url = ctx?.target?.dataset?.refresh;
  if (!url || ctx.sourceElement !== ctx.target) return;
  if (new URL(ctx.request.action, location).href !== new URL(url, location).href) event.preventDefault();
});

// Runs immediately, then at most once per gap. Requests in between lead to one more run. Returns a promise of the end of
// the first run that begins after the call.
function throttled(gap, work) {
  let last = -Infinity;
  let timer = null;
  let running = false;
  let waiting = []; // called at the end of the next run
  function start() {
    timer = setTimeout(async () => {
      const finished = waiting;
      waiting = [];
      timer = null;
      running = true;
      last = performance.now();
      try {
        await work();
      } catch {
        // The connection is lost: the stream notices it, and everything is read again when it is back.
      } finally {
        running = false;
        for (const each of finished) each();
        if (waiting.length) start();
      }
    }, Math.max(0, last + gap - performance.now()));
  }
  return function request() {
    const end = new Promise((resolve) => waiting.push(resolve));
    if (!running && timer === null) start();
    return end;
  };
}

const get = (url, target) => htmx.ajax("GET", url, target);
const noTarget = { target: "#toasts", swap: "none" };

// The rows of one list, each kept at the newest version that an event announced.
function rowUpdater({ row: prefix, rows }) {
  const row = (id) => document.getElementById(prefix + id);
  const announced = new Map(); // newest versions of the rows on this page
  const dirty = new Set();
  const refresh = throttled(ROWS_GAP, async () => {
    const ids = [...dirty].filter((id) => row(id)).slice(0, MAX_IDS);
    dirty.clear();
    if (ids.length) await get(`${rows}?ids=${ids.join(",")}`, noTarget);
    for (const id of ids) {
      // The response may have been rendered before the change of the event was visible everywhere.
      if (Number(row(id)?.dataset.version) < (announced.get(id) ?? 0)) dirty.add(id);
    }
    if (dirty.size) refresh();
  });
  return function update({ id, version }) {
    const shown = row(id);
    if (shown) {
      announced.set(id, Math.max(version, announced.get(id) ?? 0));
      if (version > Number(shown.dataset.version)) {
        dirty.add(id);
        refresh();
      }
    }
    for (const each of announced.keys()) if (!row(each)) announced.delete(each);
  };
}
const updaters = Object.fromEntries(Object.entries(LISTS).map(([kind, list]) => [kind, rowUpdater(list)]));
const refreshParts = throttled(PART_GAP, async () => {
  for (const part of document.querySelectorAll("[data-refresh]")) {
    await get(part.dataset.refresh, { target: part, swap: "outerMorph" });
  }
  refreshMetrics();
});
const refreshSummary = throttled(SUMMARY_GAP, () => get("/fleet/summary", noTarget));
const refreshMetrics = throttled(METRICS_GAP, async () => {
  const ids = [...document.querySelectorAll("tr[data-worker]")].map((each) => each.dataset.worker).slice(0, MAX_IDS);
  if (ids.length) await get(`/fleet/figures?ids=${ids.join(",")}`, noTarget);
});

// Errors of htmx are events; the requests themselves never fail.
let failures = 0;
for (const kind of ["htmx:error", "htmx:response:error"]) document.body.addEventListener(kind, () => (failures += 1));

// Reads everything again; whether all of it could be read.
async function catchUp() {
  const before = failures;
  refreshMetrics();
  document.dispatchEvent(new CustomEvent("lcm:reconnected"));
  await Promise.all([refreshSummary(), refreshParts()]);
  return failures === before;
}

function onEvent(kind, data) {
  updaters[kind]?.(JSON.parse(data));
  refreshParts();
  refreshSummary();
}

const query = new URLSearchParams({ topic: topics });
if (workerId) query.set("worker_id", workerId);
if (labletId) query.set("lablet_id", labletId);
stream = new Stream(`/api/events/stream?${query}`, { onEvent, onState: showState, catchUp });
stream.connect();
refreshMetrics();
refreshTimes();
showTimeFields();
setInterval(refreshTimes, 5000);
// No event announces metrics and leaked instances.
setInterval(() => stream.state === "live" && (refreshMetrics(), refreshSummary()), METRICS_GAP * 2);
// Decisions for a worker and the state of the fleet are not announced by the events of one record.
if (aboutOne) setInterval(() => stream.state === "live" && (refreshParts(), refreshSummary()), METRICS_GAP);
// After a change by this page, everything that it may affect is read again without waiting for the stream.
document.body.addEventListener("lcm:done", catchUp);
document.body.addEventListener("htmx:after:swap", (event) => {
  refreshTimes();
  showTimeFields();
  if (event.detail.ctx?.sourceElement?.id === "filters") refreshSummary();
  if (event.detail.ctx?.target?.id === "fleet-table") refreshMetrics();
});
