// What the page knows of the system now, kept up to date by /events; views listen to what changes.
import { get, Offline, Problem } from "./api.js";
import { single } from "./dom.js";
import { follow } from "./live.js";
import { learnCodes } from "./reasons.js";
import { learnUnits } from "./units.js";

const AGAIN_MS = 60_000; // /zones says what becomes stale with time
const DAYS_AGAIN_MS = 3_600_000; // how old zones are changes slowly, and shards are asked for it
const LEARNING_DAYS = 14;
const MOST_OVER = 300; // alerts that are over; a page may be open for months

export const store = {
  zones: [], // as of /zones, with `key`
  sites: {}, // by name
  labels: {},
  days: {}, // since when each zone is known, by key
  alerts: null, // by id; null: not known yet
  health: null,
  loaded: false,
  live: null, // null: not known yet
  lostAt: 0,
  problem: null, // why nothing can be shown
  otherSince: 0, // since when the server has other files of this page than those that it began with
};

const listeners = new Set();
export function listen(call) {
  listeners.add(call);
  return () => listeners.delete(call);
}

// Kinds: zones, zone (its key), alerts, models, state. A listener that fails keeps nothing from others, nor from the stream.
function emit(kind, what) {
  for (const call of [...listeners]) {
    try {
      call(kind, what);
    } catch (error) {
      console.error(error);
    }
  }
}

export const keyOf = ({ site, zone }) => `${site}/${zone}`;
export const zoneOf = (key) => store.zones.find((zone) => zone.key === key);
export const siteOf = (zone) => store.sites[zone.site] ?? { site: zone.site, label: zone.site, timezone: zone.timezone, latitude: null };
// The addresses of the views: #/zone/SITE/ZONE and so on.
export const addressOf = (name, key) => (key ? `#/${name}/${key.split("/").map(encodeURIComponent).join("/")}` : `#/${name}`);
export const query = (key) => `zone=${encodeURIComponent(key)}`;
export const path = (key) => {
  const at = key.indexOf("/");
  return { base: `zones/${encodeURIComponent(key.slice(at + 1))}`, site: `site=${encodeURIComponent(key.slice(0, at))}` };
};

// Which day of its first fourteen a zone is in; 0 afterwards.
export function learningDay(key) {
  const days = store.days[key];
  return days === undefined || days >= LEARNING_DAYS ? 0 : Math.floor(days) + 1;
}

export const alertsOf = (key) => (store.alerts ? Object.values(store.alerts).filter((one) => keyOf(one) === key && one.state !== "resolved") : []);

let daysAsked = 0; // when, of the browser's clock

const loadZones = single(async () => {
  const known = new Map(store.zones.map((zone) => [zone.key, zone.origin_ms]));
  const answer = await get("zones");
  learnUnits(answer.units);
  store.labels = answer.labels;
  store.sites = Object.fromEntries(answer.sites.map((site) => [site.site, site]));
  store.zones = answer.zones.map((zone) => {
    const key = keyOf(zone);
    const now = zoneOf(key);
    return now?.origin_ms > Math.max(zone.origin_ms, known.get(key)) ? now : { ...zone, key }; // told while the answer was on its way
  });
  store.loaded = true;
  emit("zones");
  if (daysAsked && (Date.now() - daysAsked >= DAYS_AGAIN_MS || store.zones.some(({ key }) => !known.has(key)))) loadDays().catch(() => {});
});

async function loadAlerts() {
  const before = store.alerts ?? {};
  try {
    const { alerts } = await get("alerts");
    const meanwhile = Object.values(store.alerts ?? {}).filter((alert) => alert !== before[alert.id]); // told while the answer was on its way
    store.alerts = withoutOldest(Object.fromEntries([...alerts, ...meanwhile].map((alert) => [alert.id, alert])));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
  }
  emit("alerts");
}

function withoutOldest(alerts) {
  const over = Object.values(alerts).filter((one) => one.state === "resolved");
  if (over.length > MOST_OVER) for (const { id } of over.sort((a, b) => b.changed_ms - a.changed_ms).slice(MOST_OVER)) delete alerts[id];
  return alerts;
}

async function loadDays() {
  daysAsked = Date.now();
  try {
    const { zones } = await get("quality");
    store.days = Object.fromEntries(zones.map((zone) => [keyOf(zone), zone.days]));
    emit("zones");
  } catch (error) {
    if (!(error instanceof Problem)) throw error; // a shard that does not answer: how old zones are can wait
  }
}

let loading = null;
export function loadAll() {
  loading ??= everything().finally(() => {
    loading = null;
  });
  return loading;
}

async function everything() {
  const known = new Map(store.zones.map((zone) => [zone.key, zone.origin_ms]));
  try {
    await loadZones();
    store.problem = null;
    for (const { key, origin_ms } of store.zones) if ((known.get(key) ?? origin_ms) !== origin_ms) emit("zone", key); // nobody told of it
    await Promise.all([loadAlerts(), loadDays()]);
    emit("state");
  } catch (error) {
    if (!(error instanceof Offline)) store.problem = error.message;
    emit("state");
  }
}

function takeForecasts(told) {
  let isNew = false;
  const asked = []; // new ones, and those without fresh readings, which have a row at each step all the same: /zones says how they are
  for (const one of told.zones) {
    const known = zoneOf(keyOf(one));
    if (!known || known.stale) {
      asked.push(keyOf(one));
      continue;
    }
    Object.assign(known, { origin_ms: one.origin_ms, model_version: one.model_version, now: { ...known.now, ...one.now }, now_age_s: { ...known.now_age_s, ...one.now_age_s } });
    if (Boolean(one.degraded) !== Boolean(known.degraded.length)) isNew = true;
  }
  const tell = (keys) => keys.forEach((key) => emit("zone", key));
  if (isNew || asked.length) loadZones().catch(() => {}).then(() => tell(asked));
  else emit("zones");
  tell(told.zones.map(keyOf).filter((key) => !asked.includes(key)));
}

let page = ""; // the version of its files, as the server called it first

function take(kind, said) {
  learnCodes((said.health ?? said).codes);
  if (kind === "hello") {
    if (said.health) store.health = said.health;
    page ||= said.page ?? "";
    store.otherSince = page === (said.page ?? page) ? 0 : store.otherSince || Date.now();
    if (said.anew || !store.loaded) loadAll();
    else emit("state");
  } else if (kind === "forecasts") takeForecasts(said);
  else if (kind === "alert") {
    store.alerts = withoutOldest({ ...store.alerts, [said.id]: said });
    emit("alerts");
  } else if (kind === "models") emit("models", said.events);
  else if (kind === "health") {
    store.health = said;
    loadZones().catch(() => {});
    emit("state");
  }
}

function connection(isLive) {
  if (store.live === isLive) return;
  if (store.live && !isLive) store.lostAt = Date.now();
  if (!store.live && !isLive) store.lostAt ||= Date.now();
  const isBack = isLive && store.live === false;
  store.live = isLive;
  if (isBack) loadAll();
  emit("state");
}

export function begin() {
  loadAll();
  setInterval(() => store.live && loadZones().catch(() => {}), AGAIN_MS);
  return follow(take, connection);
}
