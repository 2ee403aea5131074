// The fleet over time, as charts and as a table.
import { Charts } from "./charts.js";
import { localMinute } from "./relative-time.js";

const place = document.getElementById("charts");
const DASHES = { ready: [7, 4], cpu_used: [7, 4], memory_used: [7, 4], problems: [2, 3] };
const COLUMNS = ["cost", "workers", "ready", "problems", "cpu", "cpu_used", "memory", "memory_used"];

function format(value, name) {
  if (value == null) return "–";
  return name === "cost" ? `$${value.toFixed(2)}` : value.toLocaleString("en", { maximumFractionDigits: 1 });
}

function fillTable({ times, values }) {
  const rows = times.map((at, index) => [at * 1000, index]).filter(([, index]) => values.cost[index] !== null).reverse();
  place.querySelector("tbody").replaceChildren(...rows.map(([at, index]) => {
    const row = document.createElement("tr");
    const head = row.appendChild(document.createElement("th"));
    head.scope = "row";
    head.textContent = localMinute(at).replace("T", " ");
    head.title = new Date(at).toISOString().replace(/\.\d+Z$/, "Z");
    for (const name of COLUMNS) {
      const cell = row.insertCell();
      cell.className = "number";
      cell.textContent = format(values[name][index], name);
    }
    return row;
  }));
}

function show(data) {
  fillTable(data);
  const samples = data.values.cost.filter((value) => value !== null).length;
  const every = data.every < 3600 ? `${data.every / 60} minutes` : "hour";
  const messages = [`No history yet. A sample of the fleet is kept every ${every}.`, `One sample so far. Another one is kept every ${every}.`];
  return { message: messages[samples] ?? "", empty: samples === 0 };
}

new Charts(place, {
  url: (range) => `${place.dataset.url}?range=${range}`,
  format,
  details: () => ({ range: (high) => Math.max(1, high * 1.15), dashes: DASHES }),
  show,
  refresh: 60000,
  failed: "The history could not be read. Trying again in a moment.",
});
