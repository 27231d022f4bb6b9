"""Training: plain functions over the graph IR, and what runs a step again and again. See docs/gradients.md.

>>> module, start = weft.lift_constants(module)                       # the model's weights become inputs
>>> module = weft.train.cross_entropy(module)                         # an input labels, an output loss
>>> step = weft.train.sgd(module, list(start), momentum=0.9)          # forward, backward and update as one graph
>>> training = weft.train.Training(step, start, weft.load(weft.compile(step.module, target="cpu")))
>>> training.step({"image": images, "labels": labels}, rate=0.1)["loss"]
"""

from .checkpoint import CheckpointError
from .initialisers import Initial, glorot, he, initialised, normal, uniform
from .losses import cross_entropy
from .memory import replaced_in_place, within
from .optimisers import adam, adamw, lamb, sgd
from .precision import LossScaling, mixed
from .random import dropout, random_bits
from .step import RATE, Learning, Step, StepOptions, step_of
from .training import Training, TrainingError

__all__ = [
    "RATE", "CheckpointError", "Initial", "Learning", "LossScaling", "Step", "StepOptions", "Training",
    "TrainingError", "adam", "adamw", "cross_entropy", "dropout", "glorot", "he", "initialised", "lamb", "mixed",
    "normal", "random_bits", "replaced_in_place", "sgd", "step_of", "uniform", "within",
]  # fmt: skip
