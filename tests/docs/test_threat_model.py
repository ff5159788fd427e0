"""The threat model names a test for what it claims: each of them exists, and what has none says so."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT

TEXT = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[^`]+)`", TEXT)))
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ") and line.count(" | ") == 2]


@pytest.mark.parametrize("named", NAMED)
def test_the_test_that_shows_it_exists(named: str) -> None:
    """A renamed test must not leave a claim behind."""
    path, _, name = named.partition("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"^(?:async )?def {re.escape(name or 'test_')}", text, re.MULTILINE), named


def test_every_claim_is_shown_or_said_not_to_be() -> None:
    """A row has a test, or "not defended", or says that it is allowed."""
    claims = [row for row in ROWS if not row.startswith(("| it tries", "| they try", "| ---", "| who"))]
    assert len(claims) > 40
    unshown = [
        row
        for row in claims
        if "`tests/" not in row and "**not defended**" not in row and "allowed" not in row
    ]
    assert not unshown
