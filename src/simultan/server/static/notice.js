// What went wrong, in words, and what to do about it.

const element = (id) => document.getElementById(id);
let shown = null;

/** Show a notice; `actions`: {label: function}; `kind` names it for hideNotice. */
export function showNotice(kind, text, actions = {}) {
  shown = kind;
  element("notice-text").textContent = text;
  element("token-form").hidden = kind !== "unauthorized";
  const buttons = Object.entries({ ...actions, Dismiss: () => {} }).map(([label, act]) => {
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

/** Hide it, if it is one of these (all: whatever it is). */
export function hideNotice(...kinds) {
  if (kinds.length && !kinds.includes(shown)) return;
  shown = null;
  element("notice").hidden = true;
}

/** A short word about something that worked, for eyes and for screen readers. */
export function tell(text, button) {
  element("told").textContent = text;
  if (!button) return;
  button.dataset.label ??= button.textContent;
  button.textContent = text;
  clearTimeout(+button.dataset.timer);
  button.dataset.timer = setTimeout(() => (button.textContent = button.dataset.label), 1_500);
}

const STATES = {
  connecting: "Connecting",
  live: "Connected",
  reconnecting: "Reconnecting",
  waiting: "No connection",
  leaving: "Server stopping",
  idle: "Resting",
  replaced: "Open elsewhere",
  refused: "Not connected",
};

/** The state of the connection, and a notice where there is something to do. */
export function showState(kind, { code, message, attempt = 0 }, { retry, anew }) {
  if (kind === "error") return showError(code, message);
  const box = element("state");
  box.dataset.kind = kind;
  element("state-text").textContent = STATES[kind];
  if (kind === "live") hideNotice("waiting", "replaced", "refused", "unauthorized", "busy", "error");
  else if (kind === "waiting" && attempt > 2) {
    const text = "The server does not answer. What you write is kept and sent when it is back.";
    showNotice("waiting", text, { "Try now": retry });
  } else if (kind === "replaced") {
    const text = "This session goes on in another tab or window.";
    showNotice("replaced", text, { "Continue here": retry, "New session": anew });
  } else if (kind === "refused") {
    const texts = {
      unauthorized: "This server asks for an access token. Whoever runs it can tell you.",
      "forbidden-origin": "The server does not take pages from this address. Open it at its own address.",
    };
    const notice = code === "unauthorized" ? "unauthorized" : "refused";
    showNotice(notice, texts[code] ?? `The server refused: ${message}`, { "Try again": retry });
  }
}

function showError(code, message) {
  const texts = {
    busy: "All places on this server are taken. The page tries again by itself.",
    "unknown-session":
      "The server no longer had this session, so a new one has begun: the words that were not translated yet are sent again.",
    "too-fast": "The server asked for a slower pace. The page goes on by itself.",
    "slow-reader": "The connection is too slow to keep up. The page goes on by itself.",
  };
  showNotice(code === "busy" ? "busy" : "note", texts[code] ?? `Something went wrong (${message}). The page goes on by itself.`);
}
