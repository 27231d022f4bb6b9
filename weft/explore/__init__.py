"""Design-space exploration: cores, compiler and memory together, by cycles that equal those of the RTL."""
