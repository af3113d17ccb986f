// What this person likes: language, °C or °F, light or dark. Kept in the browser only once somebody has chosen.
const KEY = "hothouse";
const LANGUAGES = ["en", "nl", "es"];

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

export const languages = LANGUAGES;
export const language = () => (LANGUAGES.includes(chosen.language) ? chosen.language : usualLanguage());
export const fahrenheit = () => chosen.fahrenheit === true;
export const theme = () => (["light", "dark"].includes(chosen.theme) ? chosen.theme : "auto");

export function choose(changes) {
  Object.assign(chosen, changes);
  try {
    localStorage.setItem(KEY, JSON.stringify(chosen));
  } catch {
    // without storage the choice holds until the page is left
  }
}
