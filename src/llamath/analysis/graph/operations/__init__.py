"""The operations of the `Machine`, one row each: all that the views of a graph know of them."""
