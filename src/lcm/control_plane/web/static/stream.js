// One connection to the event stream. It reports when it is lost, reconnects, and then has everything read again.
const SILENCE = 40000; // the server sends a heartbeat every 15 s
const FIRST_PAUSE = 500;
const MAX_PAUSE = 10000;
const HIDDEN = 60000;
const CATCH_UP_PAUSE = 2000;

export class Stream {
  constructor(url, { onEvent, onState, catchUp, check = "/api/whoami" }) {
    this.url = url;
    this.onEvent = onEvent;
    this.onState = onState;
    this.catchUp = catchUp;
    this.check = check; // says whether the session goes on
    this.source = null;
    this.state = "waiting";
    this.pause = FIRST_PAUSE;
    this.retry = null;
    this.watchdog = null;
    this.hidden = null;
    document.addEventListener("visibilitychange", () => this.#visibilityChanged(!document.hidden));
    addEventListener("pageshow", (event) => event.persisted && this.#reconnect());
    addEventListener("pagehide", () => this.#close());
    document.addEventListener("lcm:signed-in", () => this.#reconnect());
  }

  connect() {
    this.#close();
    const source = new EventSource(this.url);
    this.source = source;
    source.onopen = () => this.#opened(source);
    source.onerror = () => source === this.source && this.#failed();
    for (const kind of ["worker", "history", "lablet", "lablet-history", "audit"]) {
      source.addEventListener(kind, (event) => {
        this.#restartWatchdog();
        this.onEvent(kind, event.data);
      });
    }
    source.addEventListener("heartbeat", () => this.#restartWatchdog());
    // Events were missed, or the server shuts down: the page may be outdated.
    for (const kind of ["reset", "overflow", "unavailable"]) source.addEventListener(kind, () => this.#catchUp(source));
    source.addEventListener("shutdown", () => this.#failed());
    source.addEventListener("signed_out", () => this.#signedOut());
    this.#restartWatchdog();
  }

  #opened(source) {
    if (source !== this.source) return;
    this.pause = FIRST_PAUSE;
    this.#catchUp(source);
  }

  // The page may have missed changes, also between its rendering and its first connection. It is live when everything
  // was read again; a read that fails is repeated.
  async #catchUp(source) {
    this.#setState("catching-up");
    while (source === this.source && !(await this.catchUp())) {
      await new Promise((resume) => setTimeout(resume, CATCH_UP_PAUSE));
    }
    if (source === this.source) this.#setState("live");
  }

  #failed() {
    this.#close();
    this.#setState("lost");
    this.retry = setTimeout(() => this.#reconnect(), this.pause * (0.75 + Math.random() / 2));
    this.pause = Math.min(MAX_PAUSE, this.pause * 2);
  }

  // The page stays, with everything that was typed: session.js asks for a new sign-in.
  #signedOut() {
    this.#close();
    this.#setState("signed-out");
    document.dispatchEvent(new CustomEvent("lcm:signed-out"));
  }

  async #reconnect() {
    clearTimeout(this.retry);
    try {
      const response = await fetch(this.check, { cache: "no-store", signal: AbortSignal.timeout(8000) });
      if (response.status === 401) return this.#signedOut();
      if (!response.ok) throw new Error(String(response.status));
    } catch {
      this.#failed();
      return;
    }
    this.connect();
  }

  #visibilityChanged(visible) {
    clearTimeout(this.hidden);
    if (visible && this.source === null && this.state !== "lost") {
      this.#reconnect();
    } else if (!visible) {
      // Browsers allow few connections to one host: hidden pages give theirs up.
      this.hidden = setTimeout(() => {
        this.#close();
        this.#setState("waiting");
      }, HIDDEN);
    }
  }

  #restartWatchdog() {
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => this.#failed(), SILENCE);
  }

  #close() {
    clearTimeout(this.retry);
    clearTimeout(this.watchdog);
    this.source?.close();
    this.source = null;
  }

  #setState(state) {
    if (state === this.state) return;
    this.state = state;
    this.onState(state);
  }
}
