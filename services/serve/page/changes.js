// The changes that can be asked about: of which metric, in which way, how far; and ready-made questions.
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
