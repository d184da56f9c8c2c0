// What the page says, in English and German: the browser's language unless one was chosen here.

const KEY = "simultan.language";
const LANGUAGES = ["en", "de"];

const TABLE = {
  title: ["simultan: live translation", "simultan: Übersetzung im Augenblick"],
  skip: ["Skip to the text", "Zum Text springen"],
  otherLanguage: ["Deutsch", "English"],
  display: ["Display", "Anzeige"],
  smaller: ["Smaller text", "Kleinere Schrift"],
  larger: ["Larger text", "Größere Schrift"],
  toDark: ["Dark", "Dunkel"],
  toLight: ["Light", "Hell"],
  fullScreen: ["Full screen", "Vollbild"],
  leaveFullScreen: ["Leave full screen", "Vollbild beenden"],
  sheet: ["Text and translation", "Text und Übersetzung"],
  source: ["Text", "Text"],
  target: ["Translation", "Übersetzung"],
  pair: ["{from} to {to}", "{from} – {to}"],
  typeHere: ["Type here", "Hier tippen"],
  typingLabel: ["Text to translate", "Text zum Übersetzen"],
  typingHint: [
    "A word is translated as soon as a space follows it. Enter ends the sentence. You can also paste a text.",
    "Ein Wort wird übersetzt, sobald ein Leerzeichen folgt. Die Eingabetaste beendet den Satz. Auch Einfügen geht.",
  ],
  dropHint: ["Or drop a .txt, .srt or .vtt file.", "Oder eine .txt-, .srt- oder .vtt-Datei hierher ziehen."],
  targetHint: [
    "The translation appears here, word by word, while you are still writing.",
    "Hier erscheint die Übersetzung, Wort für Wort, noch während Sie schreiben.",
  ],
  finalHint: [
    "Backspace takes back words of the last sentence; what stands above it is final.",
    "Die Rücktaste nimmt Wörter des letzten Satzes zurück; was darüber steht, ist endgültig.",
  ],
  pointHint: [
    "Point at a translated word to see what it waited for.",
    "Auf ein übersetztes Wort zeigen: worauf hat es gewartet?",
  ],
  oneWord: ["1 word", "1 Wort"],
  words: ["{n} words", "{n} Wörter"],
  wordsOf: ["{done} of {n} words", "{done} von {n} Wörtern"],
  more: ["… {n} more words", "… noch {n} Wörter"],
  speak: ["Speak", "Sprechen"],
  listening: ["Listening", "Hört zu"],
  speakTitle: [
    "The browser recognises the speech; some send the sound to their maker for it.",
    "Der Browser erkennt die Sprache; manche schicken dafür den Ton an ihren Hersteller.",
  ],
  openFile: ["Open file", "Datei öffnen"],
  endSentence: ["End sentence", "Satz beenden"],
  clear: ["Clear", "Leeren"],
  copy: ["Copy", "Kopieren"],
  copied: ["Copied", "Kopiert"],
  saveText: ["Save text", "Text sichern"],
  saveVtt: ["Save VTT", "VTT sichern"],
  copyOverlay: ["Copy overlay link", "Overlay-Link kopieren"],
  overlayTitle: ["For OBS and the like, on this machine or another", "Für OBS und Ähnliches, auch auf anderen Rechnern"],
  overlay: ["Overlay", "Overlay"],
  file: ["File", "Datei"],
  play: ["Play", "Abspielen"],
  pause: ["Pause", "Anhalten"],
  stop: ["Stop", "Beenden"],
  translateNow: ["Translate it now", "Jetzt übersetzen"],
  speed: ["Speed", "Tempo"],
  played: ["Played so far", "Bisher abgespielt"],
  delay: ["Delay:", "Verzögerung:"],
  sooner: ["sooner, more mistakes", "eher, mehr Fehler"],
  surer: ["later, fewer mistakes", "später, weniger Fehler"],
  delayWords: ["about {n} words behind", "etwa {n} Wörter dahinter"],
  delayThreshold: ["waits until {n} sure", "wartet bis {n} Sicherheit"],
  measured: ["measured: {words} words", "gemessen: {words} Wörter"],
  measuredSeconds: ["measured: {words} words, {seconds} s", "gemessen: {words} Wörter, {seconds} s"],
  figure: ["How it decided", "Wie es entschieden hat"],
  layers: ["Layers", "Schichten"],
  layer: ["Layer {n}", "Schicht {n}"],
  figureHint: [
    "The text runs across, the translation down. The bold line moves right when a word is read and down when one is written. The model has {layers} layers with {heads} heads each; a head is a small reader that goes through the text and stops where it has read enough. Each coloured strand shows where one stood.",
    "Der Text läuft nach rechts, die Übersetzung nach unten. Die dicke Linie geht nach rechts, wenn ein Wort gelesen, und nach unten, wenn eines geschrieben wird. Das Modell hat {layers} Schichten mit je {heads} Köpfen; ein Kopf ist ein kleiner Leser, der durch den Text geht und anhält, wo er genug gelesen hat. Jede farbige Linie zeigt, wo einer stand.",
  ],
  nothingWritten: ["Nothing has been written yet.", "Noch ist nichts geschrieben."],
  pathLabel: [
    "Read/write path: {heard} words heard, {written} written. The last, “{text}”, waited for word {delay}, “{word}”.",
    "Lesen und Schreiben: {heard} Wörter gehört, {written} geschrieben. Das letzte, „{text}“, wartete auf Wort {delay}, „{word}“.",
  ],
  waited: ["“{text}” waited for “{word}”, word {n} of the text.", "„{text}“ wartete auf „{word}“, Wort {n} des Textes."],
  waitedFor: ["“{text}” waited for “{word}”.", "„{text}“ wartete auf „{word}“."],
  noneWaited: ["Nothing written waited for “{word}”.", "Nichts Geschriebenes wartete auf „{word}“."],
  alsoAt: [" Heads also stood on {words}.", " Köpfe standen auch auf {words}."],
  drop: ["Drop a text or caption file", "Text- oder Untertiteldatei hier ablegen"],
  spoken: ["Translation, as it is written", "Übersetzung, wie sie entsteht"],
  // the state of the connection
  ready: ["Ready", "Bereit"],
  connecting: ["Connecting", "Verbindet"],
  live: ["Connected", "Verbunden"],
  reconnecting: ["Reconnecting", "Verbindet neu"],
  cut: ["Connection lost", "Verbindung verloren"],
  away: ["Server does not answer", "Server antwortet nicht"],
  busy: ["Server full", "Server voll"],
  leaving: ["Server stopping", "Server hält an"],
  stalled: ["Not confirmed", "Nicht bestätigt"],
  idle: ["Resting", "Ruht"],
  replaced: ["Open elsewhere", "Anderswo offen"],
  refused: ["Not connected", "Nicht verbunden"],
  // notices
  dismiss: ["Dismiss", "Schließen"],
  tryNow: ["Try now", "Jetzt versuchen"],
  tryAgain: ["Try again", "Noch einmal"],
  undo: ["Undo", "Rückgängig"],
  continueHere: ["Continue here", "Hier weiter"],
  newSession: ["New session", "Neu beginnen"],
  token: ["Access token", "Zugangsschlüssel"],
  useToken: ["Use it", "Verwenden"],
  cleared: ["Everything was cleared.", "Alles wurde geleert."],
  busyNotice: [
    "All places on this server are taken. The page tries again in {seconds} s; what you write is kept.",
    "Alle Plätze auf diesem Server sind belegt. Die Seite versucht es in {seconds} s wieder; was Sie schreiben, bleibt.",
  ],
  awayNotice: [
    "The server does not answer. What you write is kept and sent when it is back.",
    "Der Server antwortet nicht. Was Sie schreiben, bleibt und wird gesendet, sobald er wieder da ist.",
  ],
  leavingNotice: [
    "The server is being stopped. What you write is kept and sent when it is back.",
    "Der Server wird angehalten. Was Sie schreiben, bleibt und wird gesendet, sobald er wieder da ist.",
  ],
  replacedNotice: [
    "This session goes on in another tab or window.",
    "Diese Sitzung läuft in einem anderen Tab oder Fenster weiter.",
  ],
  lostNotice: [
    "The server had lost the open sentence. It was sent again and translated anew from its beginning; what stands above it is as it was.",
    "Der Server hatte den offenen Satz verloren. Er wurde noch einmal gesendet und von vorn übersetzt; was darüber steht, ist geblieben.",
  ],
  tokenWanted: [
    "This server asks for an access token. Whoever runs it can tell you.",
    "Dieser Server verlangt einen Zugangsschlüssel. Wer ihn betreibt, kann ihn nennen.",
  ],
  tokenWrong: ["The server did not accept this token.", "Der Server hat diesen Schlüssel nicht angenommen."],
  "forbidden-origin": [
    "The server does not take pages from this address. Open it at its own address.",
    "Der Server nimmt keine Seiten von dieser Adresse. Öffnen Sie ihn unter seiner eigenen.",
  ],
  refusedNotice: ["The server refused: {message}", "Der Server hat abgelehnt: {message}"],
  "too-fast": [
    "The server asked for a slower pace. The page goes on by itself.",
    "Der Server bat um ein langsameres Tempo. Die Seite macht von selbst weiter.",
  ],
  "slow-reader": [
    "The connection is too slow to keep up. The page goes on by itself.",
    "Die Verbindung ist zu langsam. Die Seite macht von selbst weiter.",
  ],
  errorNotice: [
    "Something went wrong ({message}). The page goes on by itself.",
    "Etwas ging schief ({message}). Die Seite macht von selbst weiter.",
  ],
  fileEmpty: [
    "“{name}” has no words. Choose a .txt, .srt or .vtt file.",
    "„{name}“ enthält keine Wörter. Wählen Sie eine .txt-, .srt- oder .vtt-Datei.",
  ],
  fileWrong: [
    "“{name}” is no text file. Choose a .txt, .srt or .vtt file.",
    "„{name}“ ist keine Textdatei. Wählen Sie eine .txt-, .srt- oder .vtt-Datei.",
  ],
  fileDamaged: [
    "“{name}”, line {line}: these are no times of a caption; it is left out.",
    "„{name}“, Zeile {line}: Das sind keine Zeiten eines Untertitels; er fehlt.",
  ],
  cannotCopy: [
    "The browser does not let the page copy. The translation is selected: press Ctrl+C.",
    "Der Browser lässt die Seite nicht kopieren. Die Übersetzung ist markiert: Strg+C drücken.",
  ],
  overlayAddress: ["The overlay's address: {address}", "Die Adresse des Overlays: {address}"],
  // speech
  "not-allowed": [
    "The microphone is blocked. Allow it for this page in the browser's settings.",
    "Das Mikrofon ist gesperrt. Erlauben Sie es für diese Seite in den Einstellungen des Browsers.",
  ],
  "service-not-allowed": [
    "This browser does not allow speech recognition here. Type or paste instead.",
    "Dieser Browser erlaubt hier keine Spracherkennung. Tippen oder einfügen geht.",
  ],
  "audio-capture": [
    "No microphone was found. Plug one in, or type instead.",
    "Es wurde kein Mikrofon gefunden. Schließen Sie eines an, oder tippen Sie.",
  ],
  network: [
    "The browser's speech recognition could not be reached. Type or paste instead.",
    "Die Spracherkennung des Browsers ist nicht erreichbar. Tippen oder einfügen geht.",
  ],
  "language-not-supported": [
    "The browser does not recognise speech in this language.",
    "Der Browser erkennt keine Sprache in dieser Sprache.",
  ],
  speechStopped: [
    "Speech recognition stopped. Try again, or type instead.",
    "Die Spracherkennung hat angehalten. Noch einmal versuchen, oder tippen.",
  ],
  // the overlay
  captions: ["Captions", "Untertitel"],
  overlayTitlePage: ["simultan: captions", "simultan: Untertitel"],
  overlayWaiting: ["Connected, waiting for captions", "Verbunden, wartet auf Untertitel"],
  overlayLost: ["No connection", "Keine Verbindung"],
  overlayRefused: ["The server refused: {message}", "Der Server hat abgelehnt: {message}"],
  overlayLocal: ["Waiting for a page in this browser", "Wartet auf eine Seite in diesem Browser"],
};

function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // no storage: the choice lasts as long as the page
  }
}

let language = stored() ?? (navigator.language.startsWith("de") ? "de" : "en");

export const currentLanguage = () => language;

/** A text of the table, with `{name}` filled in; null if there is none. */
export function text(key, values = {}) {
  const found = TABLE[key]?.[LANGUAGES.indexOf(language)];
  return found?.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all) ?? null;
}

/** A number as the language writes it. */
export function number(value, digits = 0) {
  const key = `${language} ${digits}`;
  formats[key] ??= new Intl.NumberFormat(language, { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return formats[key].format(value);
}
const formats = {}; // making one takes long

/** Fill every element that names a text: data-text, or data-text-ATTRIBUTE. */
export function showTexts() {
  document.documentElement.lang = language;
  for (const element of document.querySelectorAll("[data-text]")) {
    element.textContent = text(element.dataset.text);
  }
  for (const attribute of ["aria-label", "title", "placeholder"]) {
    for (const element of document.querySelectorAll(`[data-text-${attribute}]`)) {
      element.setAttribute(attribute, text(element.getAttribute(`data-text-${attribute}`)));
    }
  }
}

export function switchLanguage() {
  language = language === "de" ? "en" : "de";
  try {
    localStorage.setItem(KEY, language);
  } catch {
    // as above
  }
  showTexts();
}
