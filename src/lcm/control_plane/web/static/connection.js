// Says at the top of a page whether it is up to date, and from when its data is while the connection is lost.
import { setConnected } from "./forms.js";

const NAMES = { live: "Live", "catching-up": "Catching up", lost: "Connection lost", waiting: "Paused", "signed-out": "Signed out" };

export function showState(state) {
  const indicator = document.getElementById("connection");
  indicator.dataset.state = state;
  indicator.querySelector(".state").textContent = NAMES[state];
  setConnected(state !== "lost");
  const banner = document.getElementById("lost");
  if (state === "lost" && banner.hidden) {
    const since = document.getElementById("lost-since");
    since.dateTime = new Date().toISOString();
    since.textContent = "a moment ago";
  }
  banner.hidden = state !== "lost";
}
