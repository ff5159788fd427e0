"""What semel reads and checks, but does not do yet: named here, refused there, never ignored.

Bringing one to life is deleting its line. Given with their default these keys do no harm and pass.
"""

from __future__ import annotations

# (level, key) of policy files, see schema.py and clauses.py.
POLICIES: frozenset[tuple[str, str]] = frozenset()

# (level, key) of semel.yaml, see settings_schema.py.
SETTINGS = frozenset(
    {
        ("settings", "tls"),
    }
)


def keys_of(table: frozenset[tuple[str, str]], level: str) -> frozenset[str]:
    return frozenset(key for name, key in table if name == level)
