"""A core that stands alone: with memory on the chip and a serial line to a host, for a part without a processor."""
