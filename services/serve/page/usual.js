// What is planned of a metric, and what was a day before, for the view of changes.
import { offsetMs } from "./clock.js";

// When the clock that a site's control follows showed the same a day before; in an hour that it left out then, a day of 24 hours
// before (`clock_moved_min` in models/effects/situation.py).
export function dayBefore(ms, { timezone, clock }) {
  const then = ms - 86_400_000;
  if (clock === "standard") return then;
  const moved = offsetMs(ms, timezone) - offsetMs(then, timezone);
  return offsetMs(then + moved, timezone) === offsetMs(then, timezone) ? then + moved : then;
}

// What a plan, as `planned` gives it, says of a moment; null where it says nothing.
export function foreseenAt({ kind, time, values, until }, ms) {
  const next = time.findIndex((one) => one > ms);
  const last = next < 0 ? time.length - 1 : next - 1;
  if (last < 0 || ms > until) return null;
  if (kind === "setpoint" || next < 0) return values[last];
  return values[last] + ((values[next] - values[last]) * (ms - time[last])) / (time[next] - time[last]);
}

// Values of rows, where one is not known that of the row before.
export function heldOver(values) {
  let held = null;
  return values.map((value) => (held = value ?? held));
}
