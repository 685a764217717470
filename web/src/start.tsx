// A page: its script, once what it shows of more than one model is registered.
import { render } from "preact";
import { App } from "./app";
import { takeKeptKeys } from "./lib/files/open_config";
import { state } from "./lib/state";
import { applyTheme } from "./lib/theme";
import { markBusy } from "./lib/turns";
import { Embedded } from "./views/embedded";
import "./lib/test_hooks";
import "./styles/tokens.css";
import "./styles/base.css";

export function start() {
	applyTheme();
	const main = document.getElementById("page")!;
	main.replaceChildren();
	takeKeptKeys();
	render(state.embed ? <Embedded name={state.embed} /> : <App />, main);
	// the element was busy until the data were read
	markBusy("data", false);
}
