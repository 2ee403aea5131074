// Durations in the same format as the server renders them.
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const plural = (count, unit) => (count === 1 ? `${count} ${unit}` : `${count} ${unit}s`);

export function duration(seconds) {
  const whole = Math.floor(seconds);
  for (const [number, [unit, size]] of UNITS.entries()) {
    if (whole < size) continue;
    const count = Math.floor(whole / size);
    let text = plural(count, unit);
    if (number < 2 && count < 10) {
      const [smaller, smallerSize] = UNITS[number + 1];
      const more = Math.floor((whole % size) / smallerSize);
      if (more) text += ` ${plural(more, smaller)}`;
    }
    return text;
  }
  return "a moment";
}

export function relative(moment, now = Date.now()) {
  const seconds = (now - moment) / 1000;
  return seconds >= 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
}

export const { timeZone } = Intl.DateTimeFormat().resolvedOptions();

// A time in the zone of the viewer as fields and tables have it: 2030-01-31T09:00.
export function localMinute(moment) {
  const date = new Date(moment);
  const two = (number) => String(number).padStart(2, "0");
  const day = [String(date.getFullYear()).padStart(4, "0"), two(date.getMonth() + 1), two(date.getDate())].join("-");
  return `${day}T${two(date.getHours())}:${two(date.getMinutes())}`;
}

// The exact time in the zone of the viewer, with its name, and in UTC.
const exact = new Intl.DateTimeFormat("sv-SE", {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
});
export function exactTime(moment) {
  const date = new Date(moment);
  const zone = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(date).find((part) => part.type === "timeZoneName").value;
  const parts = Object.fromEntries(exact.formatToParts(date).map((part) => [part.type, part.value]));
  const local = `${parts.year}-${parts.month}-${parts.day} ${parts.hour}:${parts.minute}:${parts.second} ${zone}`;
  return `${local}\n${date.toISOString().replace(/\.\d+Z$/, "Z")}`;
}

// A time of day in a sentence, in the zone of the viewer: 14:05 CET, with the date if that is not today.
export function clockTime(moment, now = Date.now()) {
  const date = new Date(moment);
  const zone = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(date).find((part) => part.type === "timeZoneName").value;
  const text = `${localMinute(moment).slice(11)} ${zone}`;
  if (date.toDateString() === new Date(now).toDateString()) return text;
  return `${text} on ${date.getDate()} ${date.toLocaleString("en", { month: "long" })} ${date.getFullYear()}`;
}

// Updates every relative time on the page.
export function refreshTimes() {
  for (const each of document.querySelectorAll("time[datetime]")) {
    const moment = Date.parse(each.dateTime);
    if (Number.isNaN(moment)) continue;
    const text = each.classList.contains("clock") ? clockTime(moment) : relative(moment);
    if (each.textContent !== text) each.textContent = text;
    const title = exactTime(moment);
    if (each.title !== title) each.title = title;
  }
}
