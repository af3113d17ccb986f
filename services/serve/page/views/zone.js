// This zone: tonight and tomorrow, the past and the path ahead with everything that moves them on one time axis.
import { get } from "../api.js";
import { dayAndTime, midnightOf, timeOf } from "../clock.js";
import { debounced, h, put, renew, single } from "../dom.js";
import { pickHorizon, pointsOf } from "../forecast.js";
import { nightSentence, outlookItems, outlookOf } from "../outlook.js";
import { dewPoint, lightAhead, lightSum, meanOf, parSum, planned, seriesOf, withRow } from "../past.js";
import { lastNightWords } from "../quality_words.js";
import { reason } from "../reasons.js";
import { addressOf, keyOf, path, query, siteOf, store, zoneOf } from "../store.js";
import { sunOfDay } from "../sun.js";
import { count, duration, number, percent } from "../units.js";
import { t } from "../words.js";
import { alertItem, badges, figures, foldedAlerts, loading, name, noZone, reading, reasons, shownAlerts, table, tabs, youngNote, zonePicker } from "./parts.js";
import { TARGETS, WANTED, ZoneCharts } from "./zone_charts.js";

const DAY_MS = 86_400_000;
const RANGES = { day: 0.5, two: 2, week: 7, month: 30, season: 120, year: 365 };
const GROUPS = {
  climate: ["air_temp_c", "rh_pct", "vpd_kpa", "hd_g_m3", "co2_ppm", "par_umol_m2_s", "leaf_temp_c", "dew_point_c"],
  setpoints: ["sp_heat_c", "sp_vent_c", "sp_rh_pct", "sp_hd_g_m3", "sp_co2_ppm", "sp_pipe_min_c", "sp_screen_energy_pct", "sp_screen_black_pct", "sp_lamp_pct"],
  equipment: ["vent_lee_pct", "vent_wind_pct", "lamp_pct", "screen_energy_pct", "screen_black_pct", "co2_dosing_pct", "fog_pct", "fan_pct", "heat_pipe_low_c", "heat_pipe_grow_c"],
  soil: ["soil_vwc_pct", "soil_temp_c", "soil_ec_us_cm", "irrigation_l_m2"],
  outside: ["out_temp_c", "out_rh_pct", "out_radiation_w_m2", "out_longwave_net_w_m2", "wind_m_s", "wind_dir_deg", "rain", "out_rad_sum_j_cm2"],
};

const endsWithGap = ({ end_ms: times, interval_s }) => times.length > 1 && times.at(-1) - times.at(-2) > 1500 * interval_s;
const withoutPoints = (targets) => Object.fromEntries(targets.map((one) => [one, []]));

export default function zoneView(box, key) {
  let [forecast, recent, plans, stale, closed, shownAll] = [null, null, [], "", false, false];
  let [target, span, custom] = ["air_temp_c", "two", null];
  const [title, pick, about, weak] = [h("h2", { id: "zone-name" }), h("div", {}), h("p", { class: "soft small" }), h("div", {})];
  const head = h("section", {}, h("div", { class: "row" }, title, pick), about, weak);
  const outlook = h("section", { "aria-label": t("outlook.title") });
  const night = h("section", {});
  const alerts = h("section", {});
  const nowBox = h("section", {});
  const tableBox = h("section", {});
  const [choice, holder, hint] = [h("div", { class: "row" }), h("div", {}), h("p", { class: "small soft" })];
  const charts = h("section", { class: "charts" }, choice, holder, hint); // plots stay: one may have the focus, or is drawn over
  const drawn = new ZoneCharts(holder, key, (from, to) => {
    custom = clipped(from, to);
    showCharts();
    return custom;
  });

  function clipped(from, to) {
    const last = (forecast?.origin_ms ?? to) + DAY_MS;
    const length = Math.min(Math.max(to - from, 2 * 3_600_000), 366 * DAY_MS);
    const end = Math.min(to, last);
    return { from: end - length, to: end };
  }

  const readAt = () => (stale ? zoneOf(key).read_ms : forecast.origin_ms); // of a zone that is silent for days that is where its past is
  const range = () => custom ?? { from: readAt() - RANGES[span] * DAY_MS, to: readAt() + Math.min(1, RANGES[span]) * DAY_MS };

  const load = single(async () => {
    const zone = zoneOf(key);
    if (!zone || closed) return;
    try {
      forecast = await get(`predict?${query(key)}`);
      stale = "";
    } catch (error) {
      if (error.status !== 503) throw error;
      stale = error.message;
      forecast = { ...zone, forecasts: withoutPoints(TARGETS.filter((one) => one === "air_temp_c" || one in zone.now)), path: null };
    }
    if (closed) return;
    const { base, site } = path(key);
    // Also what is not read any more: its past is where one sees when that began.
    const { now, freshness_s: ages, forecasts } = forecast;
    const isKnown = (metric) => metric === "dew_point_c" || metric in forecasts || Number.isFinite(now[metric]) || (stale ? metric in now : Number.isFinite(ages[metric]));
    const wanted = WANTED.filter(isKnown);
    const planning = get(`${base}/plan?${site}`).then((answer) => answer.plans).catch(() => []);
    showHead();
    const [loaded, read] = [forecast.origin_ms, stale && readAt()];
    const isFresh = recent && recent.read === read && loaded - recent.loaded < 3_600_000 && !recent.hasGap && (stale || (withRow(recent, forecast).end_ms.at(-1) === loaded && !endsWithGap(recent)));
    if (!isFresh) {
      const [from, to] = stale ? [read - 2 * DAY_MS, read + DAY_MS] : [loaded - 3 * DAY_MS, Infinity];
      try {
        recent = Object.assign(await seriesOf(key, wanted, from, Math.min(to, loaded)), { loaded, read, from, to });
        if (!stale) withRow(recent, forecast);
      } catch (error) {
        recent = { interval_s: 300, end_ms: [], values: {}, loaded: 0, problem: error.message };
      }
    }
    // Rows between what the history had and the newest one are there with the next row.
    recent.hasGap = endsWithGap(recent);
    plans = await planning;
    if (closed) return;
    if (stale) {
      const sent = TARGETS.filter((one) => recent.values[one]?.mean.some(Number.isFinite));
      if (sent.length) forecast.forecasts = withoutPoints(sent); // else it has been silent for all of these days
    }
    if (!shownAll) put(box, head, outlook, h("div", { class: "pair" }, alerts, night), charts, nowBox, tableBox);
    shownAll = true;
    showHead(); // how old the zone is may have come meanwhile
    showCharts();
    showNow();
    showTable();
    showAlerts();
    showOutlook();
    showNight();
  });

  function showHead() {
    const zone = zoneOf(key);
    renew(title, zone.label, " ", badges(zone));
    renew(pick, zonePicker("zone", key)); // a list that is open would close
    const { label } = siteOf(zone);
    renew(about, stale ? `${label} · ${t("zone.last", { time: dayAndTime(zone.read_ms, zone.timezone) })}`
      : t("zone.about", { site: label, time: dayAndTime(forecast.origin_ms, zone.timezone), zone: zone.timezone }));
    renew(weak, stale ? h("p", { class: "note bad" }, t("zone.stale.words", { why: reason(stale).replace(key, zone.label) })) : reasons(forecast.degraded));
    if (!shownAll) put(box, head);
  }

  async function showOutlook() {
    const zone = zoneOf(key);
    const site = siteOf(zone);
    if (stale) {
      put(outlook, h("h3", {}, t("outlook.title")), h("p", {}, t("outlook.stale")));
      return;
    }
    const origin = forecast.origin_ms;
    try {
      const said = await outlookOf(key, origin);
      if (closed || origin !== forecast.origin_ms) return;
      const items = outlookItems(said, zone.timezone);
      put(outlook, h("h3", {}, t("outlook.title")), h("p", { class: "lead", id: "tonight" }, nightSentence(said, zone.timezone)),
        figures([...items.map((item) => (item.id === "mean" ? { ...item, words: meanWords(item.words) } : item)), ...light(site), ...sunItems(site), ...dew()]));
    } catch (error) {
      if (origin === forecast.origin_ms) put(outlook, h("h3", {}, t("outlook.title")), h("p", { class: "note warn" }, t("outlook.unknown", { why: reason(error.message) })), figures([...light(site), ...sunItems(site), ...dew()]));
    }
  }

  function meanWords(words) {
    const past = meanOf(recent, "air_temp_c", forecast.origin_ms - DAY_MS, forecast.origin_ms);
    return past === null ? words : `${words} ${t("outlook.mean.past", { value: number(past, "air_temp_c") })}`;
  }

  function light(site) {
    const sum = lightSum(recent, forecast.origin_ms, site.timezone);
    if (sum === null) return [];
    const ahead = lightAhead(planned(plans, "out_radiation_w_m2", forecast.origin_ms), forecast.origin_ms, site);
    const par = parSum(recent, forecast.origin_ms, site.timezone);
    return [{
      title: t("light.title"), figure: `${count(sum)}\u00a0J/cm²`,
      words: [ahead === null ? "" : t("light.ahead", { sum: count(sum + ahead) }), par === null ? "" : t("light.par", { sum: count(par, 1) })].join(" ") || t("light.words"),
    }];
  }

  function sunItems(site) {
    if (site.latitude === null) return [];
    const sun = sunOfDay(midnightOf(forecast.origin_ms, site.timezone), site.latitude, site.longitude);
    if (!sun) return [];
    return [{ title: t("sun.title"), figure: `${timeOf(sun.rise, site.timezone)} – ${timeOf(sun.set, site.timezone)}`, words: t("sun.words", { length: duration((sun.set - sun.rise) / 60e3) }) }];
  }

  function dew() {
    const point = dewPoint(forecast.now.air_temp_c, forecast.now.rh_pct);
    if (point === null) return [];
    const leaf = forecast.now.leaf_temp_c ?? null;
    const surface = leaf ?? forecast.now.air_temp_c;
    return [{
      title: t(leaf === null ? "dew.air" : "dew.leaf"), figure: number(surface - point, "air_temp_c", true),
      words: t(leaf === null ? "dew.words.air" : "dew.words.leaf", { surface: number(surface, "air_temp_c"), dew: number(point, "air_temp_c") }),
    }];
  }

  function showCharts() {
    const targets = Object.keys(forecast.forecasts);
    if (!targets.includes(target)) target = targets[0];
    put(choice,
      tabs("target", "chart.target", targets.map((one) => [one, name(one)]), target, (one) => {
        target = one;
        showCharts();
        showTable();
      }),
      tabs("span", "chart.span", Object.keys(RANGES).map((one) => [one, t(`span.${one}`)]), custom ? "" : span, (one) => {
        [span, custom] = [one, null];
        showCharts();
      }));
    put(hint, t("chart.hint", { zone: zoneOf(key).timezone }), recent.problem ? h("span", { class: "badge warn" }, reason(recent.problem)) : null);
    draw();
  }

  const draw = debounced(async () => {
    if (closed || !forecast) return;
    const zone = zoneOf(key);
    await drawn.show({ forecast, recent, plans, target, site: siteOf(zone), zone, range: range() });
  }, 10);

  async function showNight() {
    if (stale) {
      put(night);
      night.hidden = true;
      return;
    }
    night.hidden = false;
    if (!night.childNodes.length) put(night, h("h3", {}, t("night.title")), loading());
    const origin = forecast.origin_ms;
    const said = await lastNightWords(key, siteOf(zoneOf(key)), origin, pickHorizon(forecast, 720)).then(
      ({ words }) => h("p", { id: "last-night" }, words, " ", h("a", { href: addressOf("quality", key), "data-key": "more" }, t("night.more"))), (error) => h("p", { class: "soft" }, reason(error.message)));
    if (origin === forecast.origin_ms) put(night, h("h3", {}, t("night.title")), said);
  }

  function showAlerts() {
    const found = store.alerts === null ? [] : shownAlerts().filter((one) => keyOf(one) === key);
    const [toKnow, shown] = [found.filter((one) => one.severity === "info"), found.filter((one) => one.severity !== "info")];
    const listed = (those) => those.map((one) => alertItem(one, { withZone: false }));
    put(alerts, h("div", { class: "row" }, h("h3", {}, t("alerts")), h("a", { href: addressOf("rules", key), "data-key": "rules" }, t("view.rules"))),
      store.alerts === null ? h("p", { class: "soft" }, t("loading")) : shown.length ? h("ul", {}, listed(shown)) : h("p", {}, t("alerts.quiet.zone")), youngNote([key]),
      foldedAlerts(alerts, "info", t("alerts.know", { n: toKnow.length }), listed(toKnow)));
  }

  function showNow() {
    const { now_age_s: ages } = forecast;
    const now = { ...forecast.now, dew_point_c: dewPoint(forecast.now.air_temp_c, forecast.now.rh_pct) };
    const all = { now, now_age_s: { ...ages, dew_point_c: Math.max(ages.air_temp_c ?? 0, ages.rh_pct ?? 0) } };
    const group = (id, metrics) => {
      const known = metrics.filter((metric) => Number.isFinite(now[metric]));
      return known.length ? h("div", {}, h("h3", {}, t(`group.${id}`)), h("dl", {}, known.map((metric) => [h("dt", {}, name(metric)), h("dd", { "data-metric": metric }, reading(all, metric))]))) : null;
    };
    put(nowBox, h("h3", {}, t("zone.row", { time: timeOf(forecast.origin_ms, zoneOf(key).timezone) })), h("div", { class: "groups" }, Object.entries(GROUPS).map(([id, metrics]) => group(id, metrics))));
  }

  function showTable() {
    const ahead = pointsOf(forecast, target).filter(({ horizon_min: minutes }) => minutes <= 60 ? minutes % 15 === 0 : minutes % 60 === 0);
    if (!ahead.length) {
      put(tableBox);
      tableBox.hidden = true;
      return;
    }
    tableBox.hidden = false;
    const open = tableBox.querySelector("details")?.open;
    const title = t("table.title", { metric: name(target) });
    put(tableBox, h("details", { open }, h("summary", { "data-key": "table" }, title), table(null, title, "table rows", [["table.at"], ["table.in"], ["table.low"], ["table.middle"], ["table.high"]],
      ahead.map((point) => h("tr", {}, h("th", { scope: "row" }, dayAndTime(point.time_ms, zoneOf(key).timezone)), h("td", {}, duration(point.horizon_min)), ["p10", "p50", "p90"].map((one) => h("td", {}, number(point[one], target))))), h("caption", {}, t("table.caption")))));
  }

  function start() {
    const instead = noZone(zoneOf(key));
    if (instead) put(box, instead);
    else load(false).catch((error) => !closed && put(box, h("p", { class: "note warn" }, reason(error.message))));
  }

  start();
  return {
    update: (kind, what) => {
      if (kind === "zone" && what === key) load().catch(() => {});
      else if (kind === "zones" && !forecast) start();
      else if (kind === "zones" && shownAll && Boolean(stale) !== Boolean(zoneOf(key)?.stale)) load().catch(() => {});
      else if (kind === "zones" && shownAll && zoneOf(key)) {
        showHead();
        showAlerts();
      } else if (kind === "state" && !forecast) start();
      else if (kind === "alerts" && shownAll) showAlerts();
    },
    close: () => {
      closed = true;
      drawn.close();
    },
  };
}
