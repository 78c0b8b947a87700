// Scripts of every page: forms and dialogs, chart readings, live parts.
import { installForms } from "./change.js";
import { installReadings } from "./chart.js";
import { startRefreshing } from "./live.js";

installForms(document);
installReadings(document);
startRefreshing();
