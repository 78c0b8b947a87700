// Scripts of every page: forms and dialogs, copy buttons, chart readings, live parts.
import { installForms } from "./change.js";
import { installReadings } from "./chart.js";
import { installCopying } from "./copy.js";
import { startRefreshing } from "./live.js";

installForms(document);
installCopying(document);
installReadings(document);
startRefreshing();
// On a narrow screen the tabs scroll.
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
