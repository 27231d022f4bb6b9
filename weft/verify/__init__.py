"""Proofs that compiled programs compute their model, for all inputs (``docs/certificates.md``)."""

from .certificate import Alarm, Certificate
from .errors import VerifyError
from .verifier import require_programs, verify

__all__ = ["Alarm", "Certificate", "VerifyError", "require_programs", "verify"]
