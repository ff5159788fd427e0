"""All hostile requests, by name."""

from __future__ import annotations

from tests.proof.hostile.framing import FRAMING
from tests.proof.hostile.targets import TARGETS
from tests.proof.hostile.words import WORDS

REQUESTS = {**FRAMING, **TARGETS, **WORDS}
