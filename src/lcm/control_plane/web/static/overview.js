// Charts of the fleet over time. A time without a sample stays a gap.
const place = document.getElementById("charts");
const state = place.querySelector(".plots-state");
const drawn = place.querySelector(".charts");
const REFRESH = 60000;
const MONEY = new Set(["cost"]);
const DASHES = { ready: [7, 4], cpu_used: [7, 4], memory_used: [7, 4], problems: [2, 3] };
const TIMES = [[86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1], [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, null, null, null, null, 1]];
const charts = new Map(); // by name
let range = "24h";
let shown = null; // the data of the last response
let requests = 0;

const names = (target) => [...target.closest("figure").querySelectorAll(".series")].map((each) => each.dataset.name);
const colour = (name) => getComputedStyle(place.querySelector(`.series[data-name=${name}] .swatch`)).color;
const format = (value, name) => (value == null ? "–" : MONEY.has(name) ? `$${value.toFixed(2)}` : value.toLocaleString("en", { maximumFractionDigits: 1 }));
const size = (target) => ({ width: Math.max(200, target.clientWidth), height: target.clientHeight });

function showValues(chart, series) {
  for (const [number, name] of series.entries()) {
    const values = chart.data[number + 1];
    const index = chart.cursor.idx ?? values.findLastIndex((value) => value !== null);
    place.querySelector(`.series[data-name=${name}] b`).textContent = format(values[index], name);
  }
}

function options(target, series) {
  const grid = { stroke: getComputedStyle(place).borderTopColor, width: 1 };
  const axis = { stroke: getComputedStyle(state).color, grid, ticks: grid };
  return {
    ...size(target),
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    cursor: { drag: { x: false, y: false }, sync: { key: "overview" }, points: { size: 7 } },
    legend: { show: false },
    scales: { x: { range: () => [shown.from, shown.to] }, y: { range: (chart, low, high) => [0, Math.max(1, (high ?? 0) * 1.15)] } },
    axes: [{ ...axis, size: 52, values: TIMES }, { ...axis, size: 54 }],
    series: [{}, ...series.map((name) => ({
      label: name,
      stroke: colour(name),
      width: 1.75,
      dash: DASHES[name],
      points: { show: (chart, number) => chart.data[number].filter((value) => value !== null).length < 3, size: 6 },
    }))],
    hooks: { setCursor: [(chart) => showValues(chart, series)] },
  };
}

function draw() {
  for (const target of place.querySelectorAll("[data-chart]")) {
    const series = names(target);
    const data = [shown.times, ...series.map((name) => shown.values[name])];
    const chart = charts.get(target.dataset.chart);
    if (chart) chart.setData(data);
    else charts.set(target.dataset.chart, new uPlot(options(target, series), data, target));
    showValues(charts.get(target.dataset.chart), series);
  }
}

function fillTable() {
  const columns = ["cost", "workers", "ready", "problems", "cpu", "cpu_used", "memory", "memory_used"];
  const rows = shown.times.map((at, index) => [at, index]).filter(([, index]) => shown.values.cost[index] !== null).reverse();
  place.querySelector("tbody").replaceChildren(...rows.map(([at, index]) => {
    const row = document.createElement("tr");
    const head = row.appendChild(document.createElement("th"));
    head.scope = "row";
    head.textContent = new Date(at * 1000).toISOString().slice(0, 16).replace("T", " ");
    for (const name of columns) {
      const cell = row.insertCell();
      cell.className = "number";
      cell.textContent = format(shown.values[name][index], name);
    }
    return row;
  }));
}

function show() {
  const samples = shown.values.cost.filter((value) => value !== null).length;
  const every = shown.every < 3600 ? `${shown.every / 60} minutes` : "hour";
  state.textContent = samples === 0 ? `No history yet. A sample of the fleet is kept every ${every}.` : samples === 1 ? `One sample so far. Another one is kept every ${every}.` : "";
  state.hidden = samples > 1;
  drawn.hidden = samples === 0;
  if (samples === 0) destroyCharts();
  else draw();
  fillTable();
}

function destroyCharts() {
  for (const chart of charts.values()) chart.destroy();
  charts.clear();
}

async function load() {
  const number = ++requests;
  try {
    const response = await fetch(`${place.dataset.url}?range=${range}`, { signal: AbortSignal.timeout(15000) });
    if (!response.ok) throw new Error(String(response.status));
    const data = await response.json();
    if (number !== requests) return; // another range was selected meanwhile
    shown = data;
    show();
  } catch {
    if (number !== requests || shown) return; // the charts stay; the page says that the connection is lost
    state.hidden = false;
    state.textContent = "The history could not be read. Trying again in a moment.";
  }
}

place.addEventListener("click", (event) => {
  const button = event.target.closest("[data-range]");
  if (!button) return;
  range = button.dataset.range;
  for (const each of place.querySelectorAll("[data-range]")) each.setAttribute("aria-pressed", String(each === button));
  load();
});

function redraw() {
  if (!shown) return;
  destroyCharts();
  show();
}
document.addEventListener("lcm:theme", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
document.addEventListener("lcm:reconnected", load);
setInterval(() => !document.hidden && document.getElementById("connection").dataset.state === "live" && load(), REFRESH);
new ResizeObserver(() => {
  for (const [name, chart] of charts) chart.setSize(size(place.querySelector(`[data-chart=${name}]`)));
}).observe(drawn);
load();
