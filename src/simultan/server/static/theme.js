// Light or dark and the size of the text, before anything is painted: the system's choice unless
// one was made here.

(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = { theme: null, size: null };
  const SIZES = [0.8, 0.9, 1, 1.15, 1.35, 1.6, 2];

  const recall = (name) => {
    try {
      return localStorage.getItem(`simultan.${name}`);
    } catch {
      return null; // no storage: the choice lasts as long as the page
    }
  };
  const choose = (name, value) => {
    chosen[name] = value;
    try {
      localStorage.setItem(`simultan.${name}`, value);
    } catch {
      // as above
    }
    apply();
  };
  const apply = () => {
    root.dataset.theme = chosen.theme ?? (dark.matches ? "dark" : "light");
    root.style.setProperty("--size", SIZES.includes(+chosen.size) ? chosen.size : 1);
    dispatchEvent(new Event("simultan:look"));
  };
  const step = (by) => {
    const at = SIZES.includes(+chosen.size) ? SIZES.indexOf(+chosen.size) : 2;
    choose("size", SIZES[Math.max(0, Math.min(SIZES.length - 1, at + by))]);
  };

  chosen.theme = recall("theme");
  chosen.size = recall("size");
  apply();
  dark.addEventListener("change", apply);
  addEventListener("DOMContentLoaded", () => {
    const on = (id, act) => document.getElementById(id)?.addEventListener("click", act);
    on("theme", () => choose("theme", root.dataset.theme === "dark" ? "light" : "dark"));
    on("smaller", () => step(-1));
    on("larger", () => step(1));
  });
})();
