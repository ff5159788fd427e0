"""For all tests: Hypothesis judges what is right, not how fast a busy machine is, and says how to repeat."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "semel", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("semel")
