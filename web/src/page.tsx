// The page of one model.
import { render } from "preact";
import { App } from "./app";
import { applyTheme } from "./lib/theme";
import { markBusy } from "./lib/turns";
import "./lib/test_hooks";
import "./styles/tokens.css";
import "./styles/base.css";

applyTheme();
const main = document.getElementById("page")!;
main.replaceChildren();
render(<App />, main);
// the element was busy until the data were read
markBusy("data", false);
