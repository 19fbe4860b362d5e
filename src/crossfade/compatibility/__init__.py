"""The proof of an upgrade: every case measured, compared with old/old, and judged (Section 4.1)."""

from crossfade.compatibility.chain import Chain, continue_chain, evaluate_chain
from crossfade.compatibility.held import Held
from crossfade.compatibility.table import Compatibility, evaluate

__all__ = ["Chain", "Compatibility", "Held", "continue_chain", "evaluate", "evaluate_chain"]
