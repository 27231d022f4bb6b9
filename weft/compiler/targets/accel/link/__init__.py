"""From a packed module to a program: phases, forms of layers, the DMA window, the part of the host."""
