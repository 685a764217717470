// The page of one model.
import { start } from "./start";

start();
