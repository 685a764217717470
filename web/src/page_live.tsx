// The page of a model that runs in it: the page, and the views of its numbers.
import { start } from "./start";
import "./views/live/register";

start();
