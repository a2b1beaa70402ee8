// Light, dark, or as the system has it.

export type Theme = "system" | "light" | "dark";

const KEPT = "hai.theme";

export function theme(): Theme {
  const kept = localStorage.getItem(KEPT);
  return kept === "light" || kept === "dark" ? kept : "system";
}

export function setTheme(which: Theme): void {
  localStorage.setItem(KEPT, which);
  show(which);
}

function show(which: Theme): void {
  if (which === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = which;
}

show(theme());
