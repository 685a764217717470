// The page of two models: the page, and their comparison.
import { start } from "./start";
import "./views/compare/register";

start();
