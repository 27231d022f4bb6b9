"""weft: co-design of tensor accelerators and their compiler, in Python."""
