// The gallery: a table, cards, a timeline and a plot of many models, and two of them side by side.
import { render } from "preact";
import { change } from "./lib/state";
import { applyTheme } from "./lib/theme";
import { markBusy } from "./lib/turns";
import "./styles/tokens.css";
import "./styles/base.css";
import { GalleryApp } from "./views/gallery/gallery_app";

applyTheme();
// a phone has no room for the table's columns: cards, unless the address says otherwise
if (matchMedia("(max-width: 600px)").matches && !/\bview=/.test(location.hash))
	change({ view: "cards" });
const main = document.getElementById("page")!;
main.replaceChildren();
render(<GalleryApp />, main);
// the element was busy until the data were read
markBusy("data", false);
