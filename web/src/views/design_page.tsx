// Change the dimensions of the model and see what follows.
export { DesignView as DesignPage, designSections } from "./design/design";
