// @ts-ignore: not typed
import "./legacy/chooser.js";
import "./styles/tokens.css";
import "./styles/base.css";
import "./legacy/legacy.css";
