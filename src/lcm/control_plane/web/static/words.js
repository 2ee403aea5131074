// Spans of time in the words that the server uses.
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const counted = (count, unit) => (count === 1 ? `${count} ${unit}` : `${count} ${unit}s`);

export function span(seconds) {
  const whole = Math.floor(seconds);
  for (const [number, [unit, size]] of UNITS.entries()) {
    if (whole < size) continue;
    const count = Math.floor(whole / size);
    let words = counted(count, unit);
    if (number < 2 && count < 10) {
      const [smaller, smallerSize] = UNITS[number + 1];
      const more = Math.floor((whole % size) / smallerSize);
      if (more) words += ` ${counted(more, smaller)}`;
    }
    return words;
  }
  return "a moment";
}

export function relative(moment, now = Date.now()) {
  const seconds = (now - moment) / 1000;
  return seconds >= 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
}

// Every time on the page, kept going.
export function refreshTimes() {
  for (const each of document.querySelectorAll("time[datetime]")) {
    const moment = Date.parse(each.dateTime);
    if (Number.isNaN(moment)) continue;
    const words = relative(moment);
    if (each.textContent !== words) each.textContent = words;
  }
}
