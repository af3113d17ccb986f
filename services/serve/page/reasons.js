// Sentences of the server in the page's language and units: by their codes and values, which its answers give beside them.
import { dayAndTime } from "./clock.js";
import { count, duration, number, unitOf } from "./units.js";
import { capital, has, metricName, spoken, t } from "./words.js";

const MOST = 5000; // a page may be open for months
const known = new Map(); // by sentence, the one that was told last at the end

export function learnCodes(codes) {
  for (const [sentence, said] of Object.entries(codes ?? {})) {
    known.delete(sentence);
    known.set(sentence, said);
  }
  for (const sentence of known.keys()) if (known.size > MOST) known.delete(sentence);
}

const plain = (value) => value.toLocaleString(spoken(), { maximumFractionDigits: 2 }).replace("-", "−");
const several = (names, word = (one) => one) => new Intl.ListFormat(spoken()).format(names.split(" and ").map(word));
const rival = (name) => (has(`against.${name}`) ? t(`against.${name}`) : name);
const size = (value, { metric, unit }, isDifference) => (unitOf(metric) || !unit ? number(value, metric, isDifference) : `${plain(value)}\u00a0${unit}`);

// A value of a sentence as the page says it: what it is stands in its name.
function shown(name, value, values) {
  if (name === "metric" || name === "other") return metricName(value);
  if (name === "why") return reason(value);
  if (name === "rivals") return several(value, (one) => rival(one.replace("the ", "")));
  if (name === "since" && value.includes(" ")) return dayAndTime(Date.parse(`${value.replace(" ", "T")}Z`), "UTC"); // by the site's clock already
  if (name === "versions") return several(value);
  if (name === "value" || name === "planned") return size(value, values);
  if (name.startsWith("by")) return size(value, values, true);
  if (name.endsWith("_s")) return value < 60 ? `${count(value)} s` : duration(value / 60);
  return typeof value === "number" ? plain(value) : value;
}

// One that has no code, or one that this page does not know, as of a newer server, is said in the server's own words.
export function reason(sentence, said = known.get(sentence)) {
  const { code, values = {} } = said ?? {};
  const key = [`because.${code}.${values.side}`, `because.${code}`].find(has);
  if (!key && sentence.includes("; ")) return sentence.split("; ").map((one) => reason(one)).join("; ");
  if (!key) return sentence.replace(/\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b/g, (one) => (has(`metric.${one}`) ? metricName(one) : one));
  const words = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, shown(name, value, values)]));
  const text = t(key, { of: values.zone ? t("because.of", values) : "", ...words });
  return words.metric && text.startsWith(words.metric) ? capital(text) : text;
}
