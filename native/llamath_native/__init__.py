"""The C++ engine of llamath: its library, or the sources and what compiles them."""
