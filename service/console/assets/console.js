// Scripts of every page: forms, copy buttons, charts, live parts, shortcuts, preferences.
import { installForms } from "./change.js";
import { installReadings } from "./chart.js";
import { installCopying } from "./copy.js";
import { startRefreshing } from "./live.js";
import { installPalette } from "./palette.js";
import { installPreferences } from "./preferences.js";
import { installZoom } from "./zoom.js";

installForms(document);
installCopying(document);
installReadings(document);
installZoom(document);
startRefreshing();
installPalette();
installPreferences();
// On a narrow screen the tabs scroll.
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
