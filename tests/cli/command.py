"""`semel` inside the test's own process: what it printed, what it said on stderr, its exit status."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest

from proxy.cli import main


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    out: str
    err: str

    def document(self, schema: dict[str, Any]) -> Any:
        """The one JSON document on stdout, which fits the schema; dates are checked as dates."""
        document = json.loads(self.out)
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator, format_checker=checker)
        return document


def semel(capsys: pytest.CaptureFixture[str], *arguments: object) -> Ran:
    capsys.readouterr()
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as ended:  # argparse
        status = int(ended.code or 0)
    said = capsys.readouterr()
    return Ran(status, said.out, said.err)
