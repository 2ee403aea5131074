// The metrics of one worker. Stopped periods are bands, and what happened outside LCM is a line.
import { Charts } from "./charts.js";
import { exactTime } from "./relative-time.js";

const place = document.getElementById("plots");
const DASHES = { memory: [7, 4], disk: [2, 3], nodes: [7, 4] };
const WHOLE = ["labs", "nodes"];

const format = (value, name) => (value == null ? "–" : WHOLE.includes(name) ? String(value) : `${value.toFixed(0)} %`);

function drawStops(plot) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.fillStyle = charts.color("stop");
  for (const [begin, end] of charts.data.stops) {
    const left = plot.valToPos(begin, "x", true);
    const width = Math.max(devicePixelRatio, plot.valToPos(end, "x", true) - left);
    ctx.globalAlpha = 0.22;
    ctx.fillRect(left, bbox.top, width, bbox.height);
    ctx.globalAlpha = 1;
    if (width > 70 * devicePixelRatio) {
      ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.textAlign = "center";
      ctx.fillText("stopped", Math.max(left, bbox.left) + width / 2, bbox.top + 14 * devicePixelRatio);
    }
  }
  ctx.restore();
}

function drawMarkers(plot) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = charts.color("drift");
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const [at] of charts.data.marks) {
    const left = plot.valToPos(at, "x", true);
    if (left < bbox.left || left > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function fillTable({ values, stops, marks, to }) {
  for (const row of place.querySelectorAll("tr[data-name]")) {
    const { name } = row.dataset;
    const known = values[name].filter((value) => value !== null);
    const cells = known.length ? [known.at(-1), Math.min(...known), Math.max(...known)] : [null, null, null];
    for (const [number, value] of cells.entries()) row.cells[number + 1].textContent = format(value, name);
  }
  const clock = (seconds) => exactTime(seconds * 1000).split("\n");
  const events = [
    ...stops.map(([begin, end, policy]) => [begin, `Stopped${policy ? " by a policy" : ""} until ${end >= to ? "now" : clock(end)[0]}`]),
    ...marks.map(([at, , words]) => [at, words[0].toUpperCase() + words.slice(1)]),
  ].sort(([one], [other]) => one - other);
  document.getElementById("plots-events").replaceChildren(...events.map(([at, words]) => {
    const item = document.createElement("li");
    const [local, utc] = clock(at);
    [item.textContent, item.title] = [`${local}: ${words}`, utc];
    return item;
  }));
}

function show(data) {
  fillTable(data);
  return { message: data.note, empty: data.times.length === 0 && data.stops.length === 0 && data.marks.length === 0 };
}

const DETAILS = {
  used: { range: () => 100, increments: [25, 50] },
  labs: { range: (high) => Math.max(4, Math.ceil(high * 1.15)), increments: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], step: true },
};
const charts = new Charts(place, {
  url: (hours) => `${place.dataset.url}?hours=${hours}`,
  format,
  details: (name) => ({ ...DETAILS[name], dashes: DASHES, hooks: { drawClear: [drawStops], draw: [drawMarkers] } }),
  show,
  refresh: 15000,
  failed: "The metrics could not be read. Trying again in a moment.",
});

let status = document.getElementById("worker").dataset.status;
document.body.addEventListener("htmx:after:swap", () => {
  const now = document.getElementById("worker")?.dataset.status;
  if (now && now !== status) {
    status = now;
    charts.load();
  }
});
