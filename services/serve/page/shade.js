// Light or dark before the first paint, as it was chosen, else as the device has it.
let theme;
try {
  ({ theme } = JSON.parse(localStorage.getItem("hothouse") ?? "{}") ?? {});
} catch {
  // no storage: the device's own
}
const isDark = matchMedia("(prefers-color-scheme: dark)");
const isChosen = theme === "light" || theme === "dark";
const paint = () => {
  document.documentElement.dataset.theme = isChosen ? theme : isDark.matches ? "dark" : "light";
};
paint();

// The view that the address names comes with the rest, not after it.
const isDocs = location.pathname.endsWith("/docs");
if (isDocs) isDark.addEventListener("change", paint); // the page itself draws its charts anew
const first = isDocs ? [] : { now: ["now", "alert_groups"], zone: ["zone", "zone_charts"] }[/^#\/(\w+)/.exec(location.hash)?.[1] ?? "now"] ?? [];
for (const name of first) document.head.append(Object.assign(document.createElement("link"), { rel: "modulepreload", href: `page/views/${name}.js` }));
