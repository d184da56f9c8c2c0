// How the page looks: its language, full screen, the room a phone's keyboard leaves, the figure.

import { switchLanguage, text } from "./strings.js";

const $ = (id) => document.getElementById(id);
const TALL = "(min-height: 54rem) and (min-width: 44rem)"; // room for the figure, too

/** `onLanguage()` when texts are in another language. */
export function takeLooks(onLanguage) {
  const showTheme = () => {
    $("theme").textContent = text(document.documentElement.dataset.theme === "dark" ? "toLight" : "toDark");
  };
  addEventListener("simultan:look", showTheme);
  $("language").addEventListener("click", () => {
    switchLanguage();
    showTheme();
    onLanguage();
  });
  showTheme();
  $("figure").open = matchMedia(TALL).matches;
  takeFullScreen();
  takeKeyboard();
}

/** Captions for a room: nothing but large text, over the whole screen where the browser can. */
function takeFullScreen() {
  const show = (full) => {
    document.body.classList.toggle("full", full);
    $("leave-full-screen").hidden = !full;
    $("typing").focus({ preventScroll: true });
  };
  $("full-screen").addEventListener("click", () => {
    show(true);
    document.documentElement.requestFullscreen?.().catch(() => {}); // the page alone will do
  });
  $("leave-full-screen").addEventListener("click", () => {
    show(false);
    if (document.fullscreenElement) document.exitFullscreen();
  });
  addEventListener("fullscreenchange", () => !document.fullscreenElement && show(false));
  addEventListener("keydown", (event) => event.key === "Escape" && show(false));
}

/** Some browsers lay a phone's keyboard over the page: then the page is as high as what is left. */
function takeKeyboard() {
  const { visualViewport: seen } = globalThis;
  const fit = () => {
    if (seen.scale > 1) return; // zoomed in: that is no keyboard
    document.documentElement.style.setProperty("--height", `${seen.height}px`);
  };
  seen?.addEventListener("resize", fit);
  if (seen) fit();
}
