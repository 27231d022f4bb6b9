"""Proofs that compiled programs compute their model, for all inputs (``docs/certificates.md``)."""

from .certificate import Alarm, Certificate
from .errors import VerifyError
from .verifier import verify

__all__ = ["Alarm", "Certificate", "VerifyError", "verify"]
