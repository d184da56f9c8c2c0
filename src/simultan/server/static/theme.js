// Light or dark, before anything is painted: the system's choice unless one was made here.

(() => {
  const key = "simultan.theme";
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem(key);
  } catch {
    // no storage: the choice lasts as long as the page
  }
  const apply = () => {
    root.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
    const toggle = document.getElementById("theme");
    if (!toggle) return;
    toggle.setAttribute("aria-pressed", String(root.dataset.theme === "dark"));
  };
  apply();
  dark.addEventListener("change", apply);
  addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme")?.addEventListener("click", () => {
      chosen = root.dataset.theme === "dark" ? "light" : "dark";
      try {
        localStorage.setItem(key, chosen);
      } catch {
        // as above
      }
      apply();
    });
  });
})();
