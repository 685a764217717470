// The gallery: cards, a wall, a table, a timeline and a plot of many models, and two of them side by
// side.
import { render } from "preact";
import { applyTheme } from "./lib/theme";
import { markBusy } from "./lib/turns";
import "./styles/tokens.css";
import "./styles/base.css";
import { GalleryApp } from "./views/gallery/gallery_app";

applyTheme();
const main = document.getElementById("page")!;
main.replaceChildren();
render(<GalleryApp />, main);
// the element was busy until the data were read
markBusy("data", false);
