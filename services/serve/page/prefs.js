// What this person likes: language, °C or °F, light or dark. Kept in the browser only once somebody has chosen.
const KEY = "hothouse";
const LANGUAGES = ["en", "nl", "es"];
const FAHRENHEIT = ["BS", "BZ", "KY", "PR", "PW", "US"]; // where temperatures are in °F, as Unicode's CLDR has it

function read() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "{}") ?? {};
  } catch {
    return {}; // no storage, or something else's words in it
  }
}

const chosen = read();

function usualLanguage() {
  const wanted = (navigator.languages ?? [navigator.language]).map((one) => one.slice(0, 2));
  return wanted.find((one) => LANGUAGES.includes(one)) ?? "en";
}

// "en-US" in a time zone of America; English browsers everywhere say "en-US".
function isUsedToFahrenheit() {
  const region = /-([A-Z]{2})\b/.exec(navigator.language)?.[1];
  return FAHRENHEIT.includes(region) && /^(America|Pacific)\//.test(Intl.DateTimeFormat().resolvedOptions().timeZone);
}

export const languages = LANGUAGES;
export const language = () => (LANGUAGES.includes(chosen.language) ? chosen.language : usualLanguage());
export const fahrenheit = () => chosen.fahrenheit ?? isUsedToFahrenheit();
export const theme = () => (["light", "dark"].includes(chosen.theme) ? chosen.theme : "auto");

export function choose(changes) {
  Object.assign(chosen, changes);
  try {
    localStorage.setItem(KEY, JSON.stringify(chosen));
  } catch {
    // without storage the choice holds until the page is left
  }
}
