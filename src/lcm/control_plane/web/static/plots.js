// Plots of the metrics of one worker. Stopped periods are bands; gaps in the data stay gaps.
const place = document.getElementById("plots");
const GAP = 15000;
const NAMES = { used: ["cpu", "memory", "disk"], labs: ["labs", "nodes"] };
const DASHES = { memory: [7, 4], disk: [2, 3], nodes: [7, 4] };
const state = place.querySelector(".plots-state");
const drawn = place.querySelector(".plots-drawn");
const plots = new Map(); // the plots on the page, by name
let hours = 1;
let shown = null; // the data of the last response
let requests = 0;

const swatch = (name) => getComputedStyle(place.querySelector(`.p-${name}`)).color;
const format = (value, name) => (value == null ? "–" : NAMES.labs.includes(name) ? String(value) : `${value.toFixed(0)} %`);

function drawStops(plot) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.fillStyle = swatch("stop");
  for (const [begin, end] of shown.stops) {
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
  ctx.strokeStyle = swatch("drift");
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const [at] of shown.marks) {
    const left = plot.valToPos(at, "x", true);
    if (left < bbox.left || left > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

// Next to each name: the value at the pointer, or else the last one.
function showValues(plot, names) {
  for (const [number, name] of names.entries()) {
    const values = plot.data[number + 1];
    const index = plot.cursor.idx ?? values.findLastIndex((value) => value !== null);
    place.querySelector(`.series[data-name=${name}] b`).textContent = format(values[index], name);
  }
}

function options(target, names) {
  const grid = { stroke: getComputedStyle(place).borderTopColor, width: 1 };
  const axis = { stroke: getComputedStyle(state).color, grid, ticks: grid };
  const whole = names === NAMES.labs;
  return {
    ...size(target),
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    cursor: { drag: { x: false, y: false }, sync: { key: "worker" }, points: { size: 7 } },
    legend: { show: false },
    scales: {
      x: { range: () => [shown.from, shown.to] },
      y: { range: (plot, low, high) => [0, whole ? Math.max(4, Math.ceil((high ?? 0) * 1.15)) : 100] },
    },
    axes: [
      { ...axis, size: 34, values: [[86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1], [60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]] },
      { ...axis, size: 44, incrs: whole ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] : [25, 50] },
    ],
    series: [{}, ...names.map((name) => ({
      label: name,
      stroke: swatch(name),
      width: 1.75,
      dash: DASHES[name],
      points: { show: (plot, number) => plot.data[number].filter((value) => value !== null).length < 3, size: 6 },
      paths: whole ? uPlot.paths.stepped({ align: 1 }) : undefined,
    }))],
    hooks: { drawClear: [drawStops], draw: [drawMarkers], setCursor: [(plot) => showValues(plot, names)] },
  };
}

const size = (target) => ({ width: Math.max(200, target.clientWidth), height: target.clientHeight });

function draw() {
  for (const [id, names] of Object.entries(NAMES)) {
    const target = document.getElementById(`plot-${id}`);
    const data = [shown.times, ...names.map((name) => shown.values[name])];
    const plot = plots.get(id);
    if (plot) plot.setData(data);
    else plots.set(id, new uPlot(options(target, names), data, target));
    showValues(plots.get(id), names);
  }
}

function destroyPlots() {
  for (const plot of plots.values()) plot.destroy();
  plots.clear();
}

const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";

function fillTable() {
  for (const row of place.querySelectorAll("tr[data-name]")) {
    const { name } = row.dataset;
    const values = shown.values[name].filter((value) => value !== null);
    const cells = values.length ? [values.at(-1), Math.min(...values), Math.max(...values)] : [null, null, null];
    for (const [number, value] of cells.entries()) row.cells[number + 1].textContent = format(value, name);
  }
  const events = [
    ...shown.stops.map(([begin, end, policy]) => [begin, `Stopped${policy ? " by a policy" : ""} until ${end >= shown.to ? "now" : clock(end)}`]),
    ...shown.marks.map(([at, , words]) => [at, words[0].toUpperCase() + words.slice(1)]),
  ].sort(([one], [other]) => one - other);
  document.getElementById("plots-events").replaceChildren(...events.map(([at, words]) => {
    const item = document.createElement("li");
    item.textContent = `${clock(at)}: ${words}`;
    return item;
  }));
}

function show() {
  const empty = shown.times.length === 0 && shown.stops.length === 0 && shown.marks.length === 0;
  state.textContent = shown.note;
  state.hidden = shown.note === "";
  drawn.hidden = empty;
  if (empty) destroyPlots();
  else draw();
  fillTable();
}

async function load() {
  const number = ++requests;
  try {
    const response = await fetch(`${place.dataset.url}?hours=${hours}`, { signal: AbortSignal.timeout(15000) });
    if (!response.ok) throw new Error(String(response.status));
    const data = await response.json();
    if (number !== requests) return; // another range was selected meanwhile
    shown = data;
    show();
  } catch {
    if (number !== requests || shown) return; // the plots stay; the page says that the connection is lost
    state.hidden = false;
    state.textContent = "The metrics could not be read. Trying again in a moment.";
  }
}

place.addEventListener("click", (event) => {
  const button = event.target.closest("[data-hours]");
  if (!button) return;
  hours = Number(button.dataset.hours);
  for (const each of place.querySelectorAll("[data-hours]")) each.setAttribute("aria-pressed", String(each === button));
  load();
});

function redraw() {
  if (!shown) return;
  destroyPlots();
  show();
}
document.addEventListener("lcm:theme", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
document.addEventListener("lcm:reconnected", load);
let status = document.getElementById("worker").dataset.status;
document.body.addEventListener("htmx:after:swap", () => {
  const now = document.getElementById("worker")?.dataset.status;
  if (now && now !== status) {
    status = now;
    load();
  }
});
setInterval(() => !document.hidden && document.getElementById("connection").dataset.state === "live" && load(), GAP);
new ResizeObserver(() => {
  for (const [id, plot] of plots) plot.setSize(size(document.getElementById(`plot-${id}`)));
}).observe(drawn);
load();
