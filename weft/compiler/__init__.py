"""The compiler. Operators of the graph IR, the accelerator's among them, are registered when one is first looked for
(`graph.registry`)."""
