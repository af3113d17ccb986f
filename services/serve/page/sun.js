// Sunrise and sunset after the Astronomical Almanac's low-precision formulas (NOAA's solar calculator): within a minute
// or two between the polar circles.
import { midnightOf, momentOf, wallParts } from "./clock.js";

const RAD = Math.PI / 180;
const DAY_MS = 86_400_000;
const HORIZON = -0.833; // degrees: refraction, and the sun's radius

function position(ms) {
  const days = ms / DAY_MS - 10957.5; // since noon of 1 January 2000
  const anomaly = (357.529 + 0.98560028 * days) * RAD;
  const mean = 280.459 + 0.98564736 * days;
  const longitude = (mean + 1.915 * Math.sin(anomaly) + 0.02 * Math.sin(2 * anomaly)) * RAD;
  const tilt = (23.439 - 0.00000036 * days) * RAD;
  const right = Math.atan2(Math.cos(tilt) * Math.sin(longitude), Math.cos(longitude)) / RAD;
  const equation = ((((mean - right) % 360) + 540) % 360) - 180; // degrees that the sun is before the clock
  return { declination: Math.asin(Math.sin(tilt) * Math.sin(longitude)), equation };
}

// {rise, set} in Unix ms of the day that begins at this midnight; null where the sun stays up or down.
export function sunOfDay(midnight, latitude, longitude) {
  const around = (guess, sign) => {
    let moment = guess;
    for (let round = 0; round < 3; round += 1) {
      const { declination, equation } = position(moment);
      const cosine = (Math.sin(HORIZON * RAD) - Math.sin(latitude * RAD) * Math.sin(declination)) / (Math.cos(latitude * RAD) * Math.cos(declination));
      if (Math.abs(cosine) > 1) return null;
      const hours = Math.acos(cosine) / RAD / 15;
      const noon = (12 - (longitude + equation) / 15) * 3_600_000; // UTC
      const day = Math.round((midnight + DAY_MS / 2 - noon) / DAY_MS) * DAY_MS; // of the noon nearest to local noon
      moment = day + noon + sign * hours * 3_600_000;
    }
    return moment;
  };
  const [rise, set] = [around(midnight + DAY_MS / 4, -1), around(midnight + (3 * DAY_MS) / 4, 1)];
  return rise === null || set === null ? null : { rise, set };
}

// The nights [[sunset, sunrise], ...] that touch a span; by the clock from 19 to 7 where the place is not known.
export function nights(from, to, site) {
  const found = [];
  const at = (midnight, hour) => {
    const { year, month, day } = wallParts(midnight, site.timezone);
    return momentOf(year, month, day, hour, 0, site.timezone);
  };
  for (let midnight = midnightOf(from, site.timezone, -1); midnight < to; midnight = midnightOf(midnight + 36 * 3_600_000, site.timezone)) {
    const next = midnightOf(midnight + 36 * 3_600_000, site.timezone);
    if (site.latitude === null || site.latitude === undefined) {
      found.push([at(midnight, 19), at(next, 7)]);
      continue;
    }
    const [today, tomorrow] = [midnight, next].map((one) => sunOfDay(one, site.latitude, site.longitude));
    if (today && tomorrow) found.push([today.set, tomorrow.rise]);
  }
  return found.filter(([set, rise]) => rise > from && set < to);
}
