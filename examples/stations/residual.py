"""A residual network from random weights to the core, with the accuracy at every station."""

from examples.stations.networks import residual
from examples.stations.stations import Settings, main

SETTINGS = Settings(epochs=8)

if __name__ == "__main__":
    main(residual, __doc__, SETTINGS)
