// Times as the greenhouse's own clock shows them, whatever the browser's time zone is.
const FIELDS = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" };
const formats = new Map(); // making one takes longer than using it a hundred times

function format(name, timeZone, fields) {
  const key = `${name} ${timeZone}`;
  if (!formats.has(key)) formats.set(key, new Intl.DateTimeFormat("en-GB", { timeZone, hourCycle: "h23", ...fields }));
  return formats.get(key);
}

// "2024-03-16 05:30:00", as charts take it.
export function wallTime(ms, timeZone) {
  const said = Object.fromEntries(format("wall", timeZone, FIELDS).formatToParts(ms).map((part) => [part.type, part.value]));
  return `${said.year}-${said.month}-${said.day} ${said.hour}:${said.minute}:${said.second}`;
}

export const dateOf = (ms, timeZone) => wallTime(ms, timeZone).slice(0, 10);
export const timeOf = (ms, timeZone) => wallTime(ms, timeZone).slice(11, 16);

// "Sat, 16 Mar, 05:30"
export function dayAndTime(ms, timeZone) {
  const fields = { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" };
  return format("day", timeZone, fields).format(ms);
}
