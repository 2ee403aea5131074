// Charts of values over time: what the charts of the fleet and of one worker have in common. The page has a section with
// buttons for the range, a message, and figures with named series. Times are in the zone of the viewer, which is named.
// A time without a sample stays a gap.
import { timeZone } from "./relative-time.js";

const DAYS = "{YYYY}-{MM}-{DD}";
const TIMES = [[86400, DAYS], [60, "{HH}:{mm}", `\n${DAYS}`], [1, "{HH}:{mm}:{ss}"]].map(([step, format, day]) => [step, format, day ?? null, null, null, null, null, null, 1]);
const size = (target) => ({ width: Math.max(200, target.clientWidth), height: target.clientHeight });
const lastIndex = (values) => values.findLastIndex((value) => value !== null);

export class Charts {
  // `url` names the data of a range. `format` renders a value of a series, `details` adds to the options of a chart, and
  // `show` is called with new data: it returns the message above the charts, and whether there is anything to draw.
  constructor(place, { url, format, details, show, refresh, failed }) {
    Object.assign(this, { place, url, format, details, show, failed });
    this.state = place.querySelector(".plots-state");
    this.drawn = place.querySelector(".plots-drawn");
    this.charts = new Map(); // by name
    this.data = null; // the last response
    this.requests = 0;
    this.range = place.querySelector("[data-range][aria-pressed=true]").dataset.range;
    for (const zone of place.querySelectorAll(".zone")) zone.textContent = timeZone;
    place.addEventListener("click", (event) => this.#choose(event.target.closest("[data-range]")));
    document.addEventListener("lcm:theme", () => this.#redraw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#redraw());
    document.addEventListener("lcm:reconnected", () => this.load());
    const live = () => !document.hidden && document.getElementById("connection").dataset.state === "live";
    setInterval(() => live() && this.load(), refresh);
    new ResizeObserver(() => {
      for (const [name, chart] of this.charts) chart.setSize(size(this.#target(name)));
    }).observe(this.drawn);
    this.load();
  }

  async load() {
    const number = ++this.requests;
    try {
      const response = await fetch(this.url(this.range), { signal: AbortSignal.timeout(15000) });
      if (!response.ok) throw new Error(String(response.status));
      const data = await response.json();
      if (number !== this.requests) return; // another range was selected meanwhile
      this.data = data;
      this.#render();
    } catch {
      if (number !== this.requests || this.data) return; // the charts stay; the page says that the connection is lost
      this.state.hidden = false;
      this.state.textContent = this.failed;
    }
  }

  // The color of a series, or of a mark by the name of its class.
  color(name) {
    const swatch = this.place.querySelector(`.series[data-name=${name}] .swatch`) ?? this.place.querySelector(`.swatch.p-${name}`);
    return getComputedStyle(swatch).color;
  }

  #target = (name) => this.place.querySelector(`[data-chart=${name}]`);

  #choose(button) {
    if (!button) return;
    this.range = button.dataset.range;
    for (const each of this.place.querySelectorAll("[data-range]")) each.setAttribute("aria-pressed", String(each === button));
    this.load();
  }

  #render() {
    const { message, empty } = this.show(this.data);
    this.state.textContent = message;
    this.state.hidden = message === "";
    this.drawn.hidden = empty;
    if (empty) this.#destroy();
    else for (const target of this.place.querySelectorAll("[data-chart]")) this.#draw(target);
  }

  #draw(target) {
    const name = target.dataset.chart;
    const series = [...target.closest("figure").querySelectorAll(".series")].map((each) => each.dataset.name);
    const data = [this.data.times, ...series.map((each) => this.data.values[each])];
    if (this.charts.has(name)) this.charts.get(name).setData(data);
    else this.charts.set(name, new uPlot(this.#options(target, series), data, target));
    this.#showValues(this.charts.get(name), series);
  }

  #options(target, series) {
    const grid = { stroke: getComputedStyle(this.place).borderTopColor, width: 1 };
    const axis = { stroke: getComputedStyle(this.state).color, grid, ticks: grid };
    const { range, increments, step, dashes, hooks } = this.details(target.dataset.chart);
    return {
      ...size(target),
      cursor: { drag: { x: false, y: false }, sync: { key: this.place.id }, points: { size: 7 } },
      legend: { show: false },
      scales: { x: { range: () => [this.data.from, this.data.to] }, y: { range: (chart, low, high) => [0, range(high ?? 0)] } },
      axes: [{ ...axis, size: 52, values: TIMES }, { ...axis, size: 54, ...(increments && { incrs: increments }) }],
      series: [{}, ...series.map((name) => ({
        label: name,
        stroke: this.color(name),
        width: 1.75,
        dash: dashes[name],
        points: { show: (chart, number) => chart.data[number].filter((value) => value !== null).length < 3, size: 6 },
        paths: step ? uPlot.paths.stepped({ align: 1 }) : undefined,
      }))],
      hooks: { ...hooks, setCursor: [(chart) => this.#showValues(chart, series)] },
    };
  }

  // Next to each name: the value at the pointer, or else the last one.
  #showValues(chart, series) {
    for (const [number, name] of series.entries()) {
      const values = chart.data[number + 1];
      const value = values[chart.cursor.idx ?? lastIndex(values)];
      this.place.querySelector(`.series[data-name=${name}] b`).textContent = this.format(value, name);
    }
  }

  #destroy() {
    for (const chart of this.charts.values()) chart.destroy();
    this.charts.clear();
  }

  #redraw() {
    if (!this.data) return;
    this.#destroy();
    this.#render();
  }
}
