// The page of a model that runs in it: the page, and the views of its numbers.
import "./views/live/register";
import "./page";
