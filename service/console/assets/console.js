// What every page has: forms and dialogs that change something, and live parts.
import { changes } from "./change.js";
import { live } from "./live.js";

changes(document);
live();
