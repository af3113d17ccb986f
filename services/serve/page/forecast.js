// What is read off a forecast as /predict answers it.

export const nearest = (known, wanted) => known.reduce((best, one) => (Math.abs(one - wanted) < Math.abs(best - wanted) ? one : best), known[0] ?? wanted);

export const pickHorizon = (forecast, wanted) => nearest(Object.values(forecast.forecasts)[0]?.map((point) => point.horizon_min) ?? [], wanted);

// The forecast's points: those of its path or, where a target has none, of the learned horizons.
export function pointsOf(forecast, target) {
  const path = forecast.path?.targets[target];
  if (!path?.p50.length) return forecast.forecasts[target] ?? [];
  return forecast.path.horizon_min.map((minutes, index) => ({
    horizon_min: minutes, time_ms: forecast.origin_ms + minutes * 60e3, p10: path.p10[index], p50: path.p50[index], p90: path.p90[index],
  }));
}
