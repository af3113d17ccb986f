// What can be changed in a what-if question, what is planned without the change, and what was a day before.
import { offsetMs } from "./clock.js";

// Of which metric, in which way, how far.
export const CHANGES = {
  sp_heat_c: { way: "add", low: -6, high: 6, step: 0.5, usual: -1.5 },
  sp_vent_c: { way: "add", low: -6, high: 6, step: 0.5, usual: -1.5 },
  sp_screen_energy_pct: { way: "set", low: 0, high: 100, step: 5, usual: 0 },
  sp_screen_black_pct: { way: "set", low: 0, high: 100, step: 5, usual: 0 },
  vent_lee_pct: { way: "at_least", low: 0, high: 80, step: 5, usual: 20 },
  sp_pipe_min_c: { way: "at_least", low: 0, high: 70, step: 5, usual: 40 },
  sp_lamp_pct: { way: "set", low: 0, high: 100, step: 5, usual: 0 },
  sp_rh_pct: { way: "add", low: -20, high: 20, step: 1, usual: -5 },
  sp_co2_ppm: { way: "add", low: -800, high: 800, step: 50, usual: -200 },
  out_temp_c: { way: "add", low: -8, high: 8, step: 0.5, usual: -3 },
  out_radiation_w_m2: { way: "add", low: -400, high: 400, step: 25, usual: -150 },
  wind_m_s: { way: "add", low: -6, high: 6, step: 0.5, usual: 3 },
};

// Name of the question -> what is asked; "night" is from sunset to sunrise.
export const QUESTIONS = {
  cooler: ["sp_heat_c", -1.5], warmer: ["sp_heat_c", 1.5], screen_open: ["sp_screen_energy_pct", 0], screen_closed: ["sp_screen_energy_pct", 100], vents: ["vent_lee_pct", 20], cold: ["out_temp_c", -3],
};

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
