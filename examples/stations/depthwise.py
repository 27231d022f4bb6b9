"""A depthwise network from random weights to the core, with the accuracy at every station."""

from examples.stations.networks import depthwise
from examples.stations.stations import Settings, main

SETTINGS = Settings(spread=3.0)

if __name__ == "__main__":
    main(depthwise, __doc__, SETTINGS)
