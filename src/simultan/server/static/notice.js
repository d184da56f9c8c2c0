// What went wrong, in words, and what to do about it.

import { text } from "./strings.js";

const element = (id) => document.getElementById(id);
const OVER = ["away", "busy", "leaving", "replaced", "refused", "unauthorized"]; // once connected
let shown = null;

/** Show a notice; `actions`: {label: function}; `kind` names it for hideNotice. */
export function showNotice(kind, said, actions = {}) {
  shown = kind;
  element("notice-text").textContent = said;
  element("token-form").hidden = kind !== "unauthorized";
  const all = { ...actions, [text("dismiss")]: () => {} };
  const buttons = Object.entries(all).map(([label, act]) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => {
      hideNotice(kind);
      act();
    });
    return button;
  });
  element("notice-actions").replaceChildren(...buttons);
  element("notice").hidden = false;
}

/** Hide it, if it is one of these (none named: whatever it is). */
export function hideNotice(...kinds) {
  if (kinds.length && !kinds.includes(shown)) return;
  shown = null;
  element("notice").hidden = true;
}

/** A short word about something that worked, for eyes and for screen readers. */
export function tell(said, button) {
  element("told").textContent = said;
  if (!button) return;
  button.textContent = said;
  clearTimeout(+button.dataset.timer);
  button.dataset.timer = setTimeout(() => (button.textContent = text(button.dataset.text)), 1_500);
}

/** The state of the connection, and a notice where there is something to do. */
export function showState(kind, { code, message, seconds, token }, { retry, anew }) {
  if (kind === "error") return showError(code, message);
  document.body.dataset.state = kind;
  element("state").dataset.kind = kind;
  element("state-text").textContent = text(kind);
  if (["live", "ready"].includes(kind)) hideNotice(...OVER);
  else if (kind === "busy") {
    showNotice("busy", text("busyNotice", { seconds }), { [text("tryNow")]: retry });
  } else if (["away", "leaving"].includes(kind)) {
    showNotice(kind, text(`${kind}Notice`), { [text("tryNow")]: retry });
  } else if (kind === "replaced") {
    const actions = { [text("continueHere")]: retry, [text("newSession")]: anew };
    showNotice("replaced", text("replacedNotice"), actions);
  } else if (kind === "refused" && code === "unauthorized") {
    showNotice("unauthorized", text(token ? "tokenWrong" : "tokenWanted"));
  } else if (kind === "refused") {
    const said = text(code) ?? text("refusedNotice", { message });
    showNotice("refused", said, { [text("tryAgain")]: retry });
  }
  return undefined;
}

/** The page goes on by itself; a session that is gone is told of when it is said again. */
function showError(code, message) {
  if (code === "unknown-session" || code === "cannot-resume") return;
  showNotice("note", text(code) ?? text("errorNotice", { message }));
}
