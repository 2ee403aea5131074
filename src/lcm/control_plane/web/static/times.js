// Times on pages without live parts: shown once in the zone of the viewer.
import { refreshTimes } from "./relative-time.js";

refreshTimes();
