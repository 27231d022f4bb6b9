"""From scheduled loops to instructions: nests are folded into instructions, buffers get their places."""
