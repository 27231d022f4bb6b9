"""One web page from model to wire: the graph, each layer's loops and instructions, and every cycle that they take."""
