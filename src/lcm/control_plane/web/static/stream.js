// One connection to the event stream: it says when it is lost, comes back by itself, and then has everything read again.
const SILENCE = 40000; // the server gives a sign of life every 15 s
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 10000;
const HIDDEN = 60000;

export class Stream {
  constructor(address, { onEvent, onState, onBack }) {
    this.address = address;
    this.onEvent = onEvent;
    this.onState = onState;
    this.onBack = onBack;
    this.source = null;
    this.state = "waiting";
    this.wasLost = false;
    this.pause = FIRST_PAUSE;
    this.retry = null;
    this.watchdog = null;
    this.hidden = null;
    document.addEventListener("visibilitychange", () => this.#seen(!document.hidden));
    addEventListener("pageshow", (event) => event.persisted && this.#again());
    addEventListener("pagehide", () => this.#close());
  }

  connect() {
    this.#close();
    const source = new EventSource(this.address);
    this.source = source;
    source.onopen = () => this.#opened(source);
    source.onerror = () => source === this.source && this.#failed();
    for (const kind of ["worker", "history", "lablet", "lablet-history", "audit"]) {
      source.addEventListener(kind, (event) => {
        this.#alive();
        this.onEvent(kind, event.data);
      });
    }
    source.addEventListener("heartbeat", () => this.#alive());
    // Something was missed, or the server goes: what is on the page may be old.
    for (const kind of ["reset", "overflow", "unavailable"]) source.addEventListener(kind, () => this.onBack());
    source.addEventListener("shutdown", () => this.#failed());
    this.#alive();
  }

  #opened(source) {
    if (source !== this.source) return;
    this.pause = FIRST_PAUSE;
    const back = this.wasLost;
    this.wasLost = false;
    this.#say("live");
    if (back) this.onBack();
  }

  #failed() {
    this.#close();
    this.wasLost = true;
    this.#say("lost");
    this.retry = setTimeout(() => this.#again(), this.pause * (0.75 + Math.random() / 2));
    this.pause = Math.min(LONGEST_PAUSE, this.pause * 2);
  }

  async #again() {
    clearTimeout(this.retry);
    try {
      const answer = await fetch("/api/whoami", { cache: "no-store", signal: AbortSignal.timeout(8000) });
      if (answer.status === 401) {
        location.assign(`/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
        return;
      }
      if (!answer.ok) throw new Error(String(answer.status));
    } catch {
      this.#failed();
      return;
    }
    this.connect();
  }

  #seen(visible) {
    clearTimeout(this.hidden);
    if (visible && this.source === null && this.state !== "lost") {
      this.wasLost = true;
      this.#again();
    } else if (!visible) {
      // Browsers allow few connections to one host: pages that nobody sees give theirs up.
      this.hidden = setTimeout(() => {
        this.#close();
        this.#say("waiting");
      }, HIDDEN);
    }
  }

  #alive() {
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => this.#failed(), SILENCE);
  }

  #close() {
    clearTimeout(this.retry);
    clearTimeout(this.watchdog);
    this.source?.close();
    this.source = null;
  }

  #say(state) {
    if (state === this.state) return;
    this.state = state;
    this.onState(state);
  }
}
