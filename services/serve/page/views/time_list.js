// A list of the times of a day.
import { h, put } from "../dom.js";

const QUARTERS = Array.from({ length: 97 }, (_, n) => `${String(n >> 2).padStart(2, "0")}:${String(15 * (n % 4)).padStart(2, "0")}`);

// A time of day to be chosen, in quarter hours; a browser's own field would have AM and PM where all else has 24 hours. `more` is
// a choice besides, as none at all, and so is a value between quarters.
export function timeList(value, take, { from = "00:00", to = "23:45", more = [] } = {}) {
  const list = h("select", { onchange: () => take(list.value) });
  list.offered = [...more, ...QUARTERS.filter((one) => one >= from && one <= to)];
  showTime(list, value);
  return list;
}

export function showTime(list, value) {
  const times = list.offered.includes(value) ? list.offered : [...list.offered, value].sort();
  if (list.options.length !== times.length || ![...list.options].every((one, n) => one.value === times[n])) put(list, times.map((one) => h("option", { value: one }, one || "–")));
  list.value = value;
}
