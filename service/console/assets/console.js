// What every page has: forms and dialogs that change something, charts, and live parts.
import { changes } from "./change.js";
import { readings } from "./chart.js";
import { live } from "./live.js";

changes(document);
readings(document);
live();
