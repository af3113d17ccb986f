// Past and forecast of one target as a plotly chart, in the page's own colours.
import { wallTime } from "./clock.js";

const PAST_MS = 48 * 3600e3;
const BAND = ["p10", "p50", "p90"];

// The forecast's points: those of its path or, where a target has none, of the learned horizons.
export function pointsOf(forecast, target) {
  const path = forecast.path?.targets[target];
  if (!path?.p50.length) return forecast.forecasts[target] ?? [];
  return forecast.path.horizon_min.map((minutes, index) => ({
    horizon_min: minutes, time_ms: forecast.origin_ms + minutes * 60e3, ...Object.fromEntries(BAND.map((q) => [q, path[q][index]])),
  }));
}

export const hasPath = (forecast, target) => Boolean(forecast.path?.targets[target]?.p50.length);

export function draw(element, past, forecast, target, unit, timeZone) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const now = forecast.now[target] ?? null;
  const ahead = [{ time_ms: forecast.origin_ms, p10: now, p50: now, p90: now }, ...pointsOf(forecast, target)];
  const time = (ms) => wallTime(ms, timeZone);
  const from = forecast.origin_ms - PAST_MS;
  const kept = past.end_ms.map((ms, index) => [ms, past.values[target]?.[index] ?? null]).filter(([ms]) => ms >= from);
  const at = ahead.map((point) => time(point.time_ms));
  const mode = hasPath(forecast, target) ? "lines" : "lines+markers";
  const line = (more) => ({ mode: "lines", hovertemplate: `%{y:.2f} ${unit}<extra>%{fullData.name}</extra>`, ...more });
  const traces = [
    line({ name: "past", x: kept.map(([ms]) => time(ms)), y: kept.map(([, value]) => value), line: { color: colour("--past"), width: 1.5 } }),
    line({ name: "p10", x: at, y: ahead.map((p) => p.p10), line: { width: 0 }, showlegend: false }),
    line({ name: "p90", x: at, y: ahead.map((p) => p.p90), line: { width: 0 }, fill: "tonexty", fillcolor: colour("--band"), showlegend: false }),
    line({ name: "forecast (p50)", x: at, y: ahead.map((p) => p.p50), mode, marker: { size: 5 }, line: { color: colour("--accent"), width: 2 } }),
  ];
  const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zeroline: false };
  const layout = {
    margin: { l: 56, r: 12, t: 8, b: 40 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 12 }, hovermode: "x unified",
    hoverlabel: { bgcolor: colour("--panel"), bordercolor: colour("--line") },
    xaxis: { ...axis, type: "date", range: [time(from), time(forecast.origin_ms + PAST_MS / 2)] },
    yaxis: { ...axis, title: { text: unit } }, legend: { orientation: "h", y: 1.08 },
    shapes: [{ type: "line", x0: time(forecast.origin_ms), x1: time(forecast.origin_ms), yref: "paper", y0: 0, y1: 1,
               line: { color: colour("--soft"), width: 1, dash: "dot" } }],
  };
  Plotly.react(element, traces, layout, { displaylogo: false, responsive: true, displayModeBar: false });
}
