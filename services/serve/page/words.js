// What the page says, by message files: words/en.json and its translations.
let said = {};
let tongue = "en";
let plural = new Intl.PluralRules("en");

async function file(language) {
  const answer = await fetch(`page/words/${language}.json`);
  if (!answer.ok) throw new Error(`words/${language}.json: ${answer.status}`);
  return answer.json();
}

export async function speak(language) {
  said = await file(language);
  tongue = language;
  plural = new Intl.PluralRules(language);
  document.documentElement.lang = language;
}

export const spoken = () => tongue;
export const has = (key) => key in said;

// t("zones", {n: 3}) takes "zones.other" where there are forms by number, and puts values into {braces}.
export function t(key, values = {}) {
  const form = values.n === undefined ? key : `${key}.${plural.select(Number(values.n))}`;
  const text = said[form] ?? said[key] ?? said[`${key}.other`] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? values[name] : whole));
}

// What a metric is called; `label` is the server's own English word for it.
export const metricName = (metric, label) => (has(`metric.${metric}`) ? t(`metric.${metric}`) : label ?? metric.replaceAll("_", " "));

export const capital = (text) => (text ? text[0].toLocaleUpperCase(tongue) + text.slice(1) : text);

// A sentence of the server: metrics get their names, and what the message file knows is put into its language.
export function reason(sentence) {
  const named = (metric, ...more) => (has(`metric.${metric}`) ? (more.at(-2) ? metricName(metric) : capital(metricName(metric))) : metric);
  let text = sentence.replace(/\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b/g, named);
  for (const [pattern, instead] of said.reasons ?? []) text = text.replace(new RegExp(pattern, "g"), instead);
  return text;
}
