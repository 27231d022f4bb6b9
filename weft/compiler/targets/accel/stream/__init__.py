"""The sequential stream of instructions, and what is done to it as a whole: order, parts, tokens."""
