// Light or dark before the first paint, as it was chosen, else as the device has it.
try {
  const { theme } = JSON.parse(localStorage.getItem("hothouse") ?? "{}") ?? {};
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // no storage: the device's own
}

// The view that the address names comes with the rest, not after it.
const first = location.pathname.endsWith("/docs") ? [] : { now: ["now"], zone: ["zone", "zone_charts"] }[/^#\/(\w+)/.exec(location.hash)?.[1] ?? "now"] ?? [];
for (const name of first) document.head.append(Object.assign(document.createElement("link"), { rel: "modulepreload", href: `page/views/${name}.js` }));
