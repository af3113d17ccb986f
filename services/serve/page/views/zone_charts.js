// The charts of a zone, one above the other on one time axis: the climate, what moves it, the weather.
import { TimeChart } from "../chart.js";
import { dayAndTime } from "../clock.js";
import { h } from "../dom.js";
import { pointsOf } from "../forecast.js";
import { lineOf, planned, seriesOf } from "../past.js";
import { nights } from "../sun.js";
import { axisOf, number, shown, unitOf } from "../units.js";
import { t } from "../words.js";
import { name } from "./parts.js";

// Beside a target: setpoints, and what belongs to it.
const BESIDE = {
  air_temp_c: [["sp_heat_c", "heat", true], ["sp_vent_c", "vent", true], ["dew_point_c", "dew", false], ["leaf_temp_c", "leaf", false]],
  rh_pct: [["sp_rh_pct", "vent", true]], co2_ppm: [["sp_co2_ppm", "heat", true]],
};
const EQUIPMENT = {
  vent_lee_pct: "vent", vent_wind_pct: "rain", lamp_pct: "lamp", screen_energy_pct: "screen", screen_black_pct: "black", co2_dosing_pct: "co2", fog_pct: "dew", fan_pct: "leaf",
  heat_pipe_low_c: "pipe", heat_pipe_grow_c: "other",
};
export const TARGETS = ["air_temp_c", "rh_pct", "co2_ppm", "vpd_kpa"];
const WEATHER = ["out_temp_c", "out_radiation_w_m2"];

export const WANTED = [...TARGETS, "dew_point_c", "leaf_temp_c", "par_umol_m2_s", "sp_heat_c", "sp_vent_c", "sp_rh_pct", "sp_co2_ppm", ...Object.keys(EQUIPMENT), ...WEATHER];

export class ZoneCharts {
  constructor(holder, key, onRange) {
    this.key = key;
    this.onRange = onRange;
    this.boxes = Object.fromEntries(["climate", "equipment", "weather"].map((id) => [id, { title: h("h3", {}), box: h("div", { id: `chart-${id}` }) }]));
    holder.replaceChildren(...Object.values(this.boxes).map(({ title, box }) => h("div", {}, title, box)));
    holder.className = "charts";
    this.charts = {};
  }

  close() {
    this.asked?.abort();
    for (const chart of Object.values(this.charts)) chart.close();
  }

  async show({ forecast, recent, plans, target, site, zone, range }) {
    const series = await this.past(range, recent, forecast);
    if (!series) return;
    const view = { from: range.from, to: range.to, nights: nights(range.from, range.to, site), now: forecast.origin_ms };
    const has = (metric) => series.values[metric]?.mean.some((value) => value !== null);
    const of = (metric) => (line) => ({ ...line, values: line.values.map((value) => shown(value, metric)) });
    const past = (metric, look) => ({ id: metric, name: name(metric), ...look, ...of(metric)(lineOf(series, metric)) });
    const ahead = (metric, look) => {
      const line = of(metric)(planned(plans, metric, forecast.origin_ms));
      if (line.kind === "setpoint" && line.time.length) [line.time, line.values] = [[...line.time, line.until], [...line.values, line.values.at(-1)]]; // the last one holds
      return line.time.length ? [{ id: `${metric}-plan`, name: t("chart.planned", { metric: name(metric) }), ...look, dash: true, ...line }] : [];
    };
    this.climate(forecast, series, target, { view, has, past, ahead, site, zone });
    const moving = Object.entries(EQUIPMENT).filter(([metric]) => has(metric));
    this.part("equipment", moving.length > 0, t("chart.equipment", { unit: unitOf("heat_pipe_low_c") }), { places: 0, unit: "%", floor: 0, minSpan: 100, second: "pipe", height: 150, site, hidden: ["co2_dosing_pct"] },
      () => moving.map(([metric, colour]) => past(metric, { colour, step: true, width: 1.5, ...(metric.endsWith("_c") && { scale: "pipe", unit: unitOf(metric) }) })), view);
    this.part("weather", WEATHER.some(has), t("chart.weather", { unit: unitOf("out_temp_c") }), { places: 1, unit: unitOf("out_temp_c"), second: "light", height: 150, site }, () => [
      ...(has("out_radiation_w_m2") ? [past("out_radiation_w_m2", { colour: "sun", scale: "light", unit: "W/m²", places: 0, fill: true })] : []),
      ...ahead("out_radiation_w_m2", { colour: "sun", scale: "light", unit: "W/m²", places: 0 }),
      ...(has("out_temp_c") ? [past("out_temp_c", { colour: "vent" })] : []), ...ahead("out_temp_c", { colour: "vent" }),
    ], view);
  }

  climate(forecast, series, target, { view, has, past, ahead, site, zone }) {
    const lines = [];
    const points = pointsOf(forecast, target);
    const value = (one) => shown(one, target);
    for (const [metric, colour, step] of BESIDE[target] ?? []) {
      if (has(metric)) lines.push(past(metric, { colour, step, width: 1.4 }));
      if (step) lines.push(...ahead(metric, { colour, step, width: 1.4 }));
    }
    const line = past(target, { colour: "past", id: "past", name: t("chart.measured"), width: 2 });
    if (series.interval_s > 900) {
      const [low, high] = ["min", "max"].map((part) => lineOf(series, target, part).values.map(value));
      Object.assign(line, { low, high, faint: 22 });
    }
    lines.push(line);
    if (points.length) {
      const now = forecast.now[target] ?? null;
      const all = now === null ? points : [{ time_ms: forecast.origin_ms - 1000 * (forecast.now_age_s[target] ?? 0), p10: now, p50: now, p90: now }, ...points];
      lines.push({
        id: "ahead", name: t("chart.forecast"), colour: "main", width: 2.4, points: !forecast.path?.targets[target]?.p50.length,
        time: all.map((one) => one.time_ms), values: all.map((one) => value(one.p50)), low: all.map((one) => value(one.p10)), high: all.map((one) => value(one.p90)),
      });
    }
    const title = `${name(target)}, ${unitOf(target)}`;
    this.part("climate", true, title, { ...axisOf(target), height: 300, site, id: `climate ${unitOf(target)}` }, () => lines, view);
    const last = points.at(-1);
    this.charts.climate.describe(t("chart.label", {
      metric: name(target), zone: zone.label, from: dayAndTime(view.from, site.timezone), to: dayAndTime(view.to, site.timezone),
      ahead: last ? t("chart.label.ahead", { value: number(last.p50, target), time: dayAndTime(last.time_ms, site.timezone) }) : "",
    }));
  }

  part(id, isThere, title, { height, site, id: shape = id, ...options }, lines, view) {
    const { title: heading, box } = this.boxes[id];
    heading.parentElement.hidden = !isThere;
    if (!isThere) return;
    heading.textContent = title;
    if (this.charts[id]?.kind !== shape) {
      this.charts[id]?.close();
      const tall = Math.max(height * (innerWidth < 700 ? 0.85 : 1), 120);
      this.charts[id] = new TimeChart(box, { label: title, timeZone: site.timezone, height: tall, onRange: this.onRange, sync: `zone ${this.key}`, ...options });
      this.charts[id].kind = shape;
    }
    this.charts[id].show(lines(), view);
  }

  // Rows for a range: those that are here, else the history at a screen's resolution.
  async past(range, recent, forecast) {
    this.asked?.abort(); // the range that is chosen last is drawn
    const to = Math.min(range.to, forecast.origin_ms);
    if ((range.from >= recent.from && to <= recent.to) || !recent.end_ms.length) return recent;
    const held = this.held;
    if (held && held.from <= range.from && held.to >= to && held.length < 4 * (range.to - range.from)) return held.series;
    const asked = (this.asked = new AbortController());
    try {
      const series = await seriesOf(this.key, Object.keys(recent.values), range.from, to, { signal: asked.signal });
      this.held = { from: range.from, to, length: range.to - range.from, series };
      return series;
    } catch (error) {
      return error.name === "AbortError" ? null : recent;
    }
  }
}
