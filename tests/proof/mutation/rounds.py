"""Which tests a mutant that takes effect at import meets, and in which order.

Every round is a process that imports and collects its files, which costs more than most tests do. So the
first is of the few smallest files that name what is changed; most mutants end there.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tests.proof.mutation.mutants import Mutant, Source
from tests.proof.mutation.reached import Reach, Test

SMALL = 3  # files of a first round


class Rounds:
    def __init__(self, root: Path, tests: list[Test], reach: Reach) -> None:
        self._tests = tests
        self._reach = reach
        self._texts = {file: (root / file).read_text() for file in {test.file for test in tests}}
        self._of = cache(self._find)

    def of(self, source: Source, mutant: Mutant) -> list[list[Test]]:
        return self._of(source.module, str(source.path), mutant.symbol)

    def _find(self, module: str, path: str, symbol: str) -> list[list[Test]]:
        """Small files that name the symbol; others that name the module, or reach it. Wider tests are not
        among them: they cost seconds to import, and of hundreds of mutants they killed two."""
        naming = {file for file, text in self._texts.items() if _names(text, module)}
        word = re.compile(rf"\b{re.escape(symbol)}\b")
        reaching = [test for test in self._tests if test.file in naming or path in test.lines]
        near = [test for test in self._reach.chosen(reaching) if test.is_near]
        saying = {test.file for test in near if test.file in naming and word.search(self._texts[test.file])}
        first = sorted(saying, key=lambda file: len(self._texts[file]))[:SMALL]
        return [
            [test for test in near if test.file in first],
            [test for test in near if test.file not in first],
        ]


def _names(text: str, module: str) -> bool:
    """`import a.b`, `from a.b import c`, or `from a import b`."""
    package, _, name = module.rpartition(".")
    return module in text or (
        f"from {package} import" in text and re.search(rf"\b{name}\b", text) is not None
    )
