// Light or dark before the first paint, as it was chosen, else as the device has it.
try {
  const { theme } = JSON.parse(localStorage.getItem("hothouse") ?? "{}") ?? {};
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // no storage: the device's own
}
