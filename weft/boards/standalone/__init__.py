"""Boards without a processor beside the logic: core, block RAM and a serial line to a host, built with open tools."""
