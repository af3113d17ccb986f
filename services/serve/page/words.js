// What the page says, by message files: words/en.json, those of single views such as words/en.rules.json, and their
// translations.
let said = {};
let tongue = "en";
let wanted = ""; // which was asked for last
let mended = []; // [pattern, instead] for what depends on a value, as a time's article
let plural = new Intl.PluralRules("en");
const parts = new Set(); // which files there are beside that of all views

async function file(name) {
  const answer = await fetch(`page/words/${name}.json`);
  if (!answer.ok) throw new Error(`words/${name}.json: ${answer.status}`);
  return answer.json();
}

export async function speak(language) {
  wanted = language;
  const files = await Promise.all(["", ...parts].map((part) => file(language + part)));
  if (language !== wanted) return undefined; // another was chosen meanwhile
  if (files.length !== parts.size + 1) return speak(language); // a view came meanwhile
  said = Object.assign({}, ...files);
  mended = (said.mends ?? []).map(([pattern, instead]) => [new RegExp(pattern, "g"), instead]);
  tongue = language;
  plural = new Intl.PluralRules(language);
  document.documentElement.lang = language;
}

// What one view alone says comes with it, as `learn(".rules")`; before the first language is spoken, together with that.
export async function learn(part) {
  if (parts.has(part)) return;
  const language = Object.keys(said).length ? tongue : null;
  if (language) {
    const more = await file(language + part);
    if (language !== tongue) return learn(part); // another was chosen meanwhile
    said = { ...said, ...more };
  }
  parts.add(part);
}

export const spoken = () => tongue;
export const has = (key) => key in said;

// t("zones", {n: 3}) takes "zones.other" where there are forms by number, and puts values into {braces}.
export function t(key, values = {}) {
  const form = values.n === undefined ? key : `${key}.${plural.select(Number(values.n))}`;
  const text = said[form] ?? said[key] ?? said[`${key}.other`] ?? key;
  const whole = text.replace(/\{(\w+)\}/g, (written, name) => (name in values ? values[name] : written));
  return mended.reduce((made, [pattern, instead]) => made.replace(pattern, instead), whole);
}

// What a metric is called; `label` is the server's own English word for it.
export const metricName = (metric, label) => (has(`metric.${metric}`) ? t(`metric.${metric}`) : label ?? metric.replaceAll("_", " "));

export const capital = (text) => (text ? text[0].toLocaleUpperCase(tongue) + text.slice(1) : text);
