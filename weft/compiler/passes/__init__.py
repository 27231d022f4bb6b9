"""Passes over the graph IR: `pipeline` has the standard order, `manager` runs and checks them."""

from .cleanup import cse, dce, fold_constants
from .fold_batch_norm import fold_batch_norm
from .legalise import legalise
from .legality import STAGES, Stage, check_stage
from .manager import Counted, Pass, PassError, PassManager, PassRecord, graph_pass, infer_types, rule_pass
from .pattern_rules import PatternRule, outline, pattern_pass
from .pipeline import PassOptions, integer_passes, run_passes
from .plugins import insert_passes, installed_passes, load_pass
from .simplify import simplify

__all__ = [
    "STAGES", "Counted", "Pass", "PassError", "PassManager", "PassOptions", "PassRecord", "PatternRule", "Stage",
    "check_stage", "cse", "dce", "fold_batch_norm", "fold_constants", "graph_pass", "infer_types", "insert_passes",
    "installed_passes", "integer_passes", "legalise", "load_pass", "outline", "pattern_pass", "rule_pass", "run_passes",
    "simplify",
]  # fmt: skip
