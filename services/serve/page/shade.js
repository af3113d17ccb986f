// Light or dark before the first paint, as it was chosen, else as the device has it.
let theme;
try {
  ({ theme } = JSON.parse(localStorage.getItem("hothouse") ?? "{}") ?? {});
} catch {
  // no storage: the device's own
}
if (theme !== "light" && theme !== "dark") theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
document.documentElement.dataset.theme = theme;

// The view that the address names comes with the rest, not after it.
const first = location.pathname.endsWith("/docs") ? [] : { now: ["now", "alert_groups"], zone: ["zone", "zone_charts"] }[/^#\/(\w+)/.exec(location.hash)?.[1] ?? "now"] ?? [];
for (const name of first) document.head.append(Object.assign(document.createElement("link"), { rel: "modulepreload", href: `page/views/${name}.js` }));
