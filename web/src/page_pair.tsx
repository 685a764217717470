// The page of two models: the page, and their comparison.
import "./views/compare/register";
import "./page";
