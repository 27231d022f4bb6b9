"""Passes over the graph IR: `pipeline` has the standard order, `manager` runs and checks them."""

from .cleanup import cse, dce, fold_constants
from .fold_batch_norm import fold_batch_norm
from .fuse import Fused, fuse, fuse_with_report
from .legalise import legalise
from .manager import Pass, PassError, PassManager, PassRecord, graph_pass, infer_types, rule_pass
from .pack_layout import pack_function, pack_layout
from .pattern_rules import PatternRule, outline, pattern_pass
from .pipeline import import_and_lower, integer_passes, standard_pipeline, target_passes
from .plugins import insert_passes, installed_passes, load_pass
from .simplify import simplify
from .stages import STAGES, Stage, check_stage
from .unfold_input import unfold_input

__all__ = [
    "STAGES", "Fused", "Pass", "PassError", "PassManager", "PassRecord", "PatternRule", "Stage", "check_stage", "cse",
    "dce", "fold_batch_norm", "fold_constants", "fuse", "fuse_with_report", "graph_pass", "import_and_lower",
    "infer_types", "insert_passes", "installed_passes", "integer_passes", "legalise", "load_pass", "outline",
    "pack_function", "pack_layout", "pattern_pass", "rule_pass", "simplify", "standard_pipeline", "target_passes",
    "unfold_input",
]  # fmt: skip
