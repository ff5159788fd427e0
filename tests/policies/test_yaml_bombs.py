"""Files that are small and stand for much, or are one long mistake: refused soon, with a place."""

from __future__ import annotations

import io
import json
import re
import time
import tracemalloc
from pathlib import Path

import pytest

from proxy.policy_file import PolicyMistakes, load_policies
from proxy.policy_file.mistakes import MOST_MISTAKES, SettingsMistakes
from proxy.policy_file.nodes import LARGEST_FILE
from proxy.settings import load_settings
from tests.cli.command import semel as command
from tests.inside import call, semel, until

LAUGHS = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
)
# A file, and what is said of it. Where nothing follows, the place is the first that is told.
BOMBS = {
    "a billion laughs": (LAUGHS, "anchors are not supported"),
    "laughs in keys": ("a: &a {b: &b [x]}\n? [*a, *b]\n: 1\n", "anchors are not supported"),
    "a circle": ("&a [*a]\n", "aliases are not supported"),
    "a circle of mappings": ("&a {b: *a}\n", "aliases are not supported"),
    "merge keys": ("a: &a {b: 1}\nc:\n  <<: *a\n", "aliases are not supported"),
    "merged lists": ("a: &a {b: 1}\nc:\n  <<: [*a, *a, *a]\n", "aliases are not supported"),
    "an object": ("a: !!python/object/apply:os.system [exit]\n", "tags are not supported"),
    "a module": ("!!python/module:os\n", "tags are not supported"),
    "binary": ("a: !!binary QUJD\n", "tags are not supported"),
    "a set": ("!!set {a, b}\n", "tags are not supported"),
    "deep lists": ("[" * 100_000, "nested more than"),
    "deep mappings": ("{a: " * 100_000, "nested more than"),
    "deep blocks": ("".join(" " * n + "a:\n" for n in range(1000)), "nested more than"),
    "deep dashes": ("- " * 200_000, "nested more than"),
    "deep questions": ("? " * 200_000, "nested more than"),
    "many documents": ("---\n" * 200_000, "a second document starts here"),
    "documents without end": ("a: 1\n...\n" * 50_000, ""),
    "a long word": ("a: " + "x" * (LARGEST_FILE - 10), ""),
    "a long key": ("? " + "x" * (LARGEST_FILE - 10) + "\n: 1", "unknown key"),
    "a long number": ("a: " + "9" * (LARGEST_FILE - 10), ""),
    "a long comment": ("#" * LARGEST_FILE + "#", "over 1MiB"),
    "a long file": ("a: 1\n" * (LARGEST_FILE // 4), "over 1MiB"),
    "many mistakes": ("".join(f"k{n}: 1\n" for n in range(20_000)), "from here on there are more mistakes"),
    "many duplicates": ("a: 1\n" * 20_000, "from here on there are more mistakes"),
    "many anchors": ("a: [" + ", ".join(f"&b{n} x" for n in range(20_000)) + "]\n", "from here on"),
    "many tags": ("a: [" + "!!x y, " * 20_000 + "]\n", "from here on there are more mistakes"),
    "a null": ("a: \0\n", "may not stand in YAML"),
    "another alphabet": ("a: \ud800\n", "not UTF-8"),
}  # fmt: skip


def _written(file: Path, name: str) -> str:
    text, said = BOMBS[name]
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    return said


def _is_bounded(told: str, said: str, file: Path) -> None:
    """A few lines, each with a place in this file, one of them the reason."""
    lines = told.strip().splitlines()
    assert 1 <= len(lines) <= MOST_MISTAKES + 1
    assert all(re.match(rf"{re.escape(str(file))}:\d+:\d+: ", line) for line in lines), lines[:3]
    assert any(said in line for line in lines), lines[:3]
    assert max(map(len, lines)) < 1000


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_in_a_policy_file(name: str, tmp_path: Path) -> None:
    """In little time and memory: two hundred times less than the smallest of them stands for."""
    file = tmp_path / "bomb.yaml"
    said = _written(file, name)
    tracemalloc.start()
    began = time.monotonic()
    try:
        with pytest.raises(PolicyMistakes) as raised:
            load_policies([file])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.monotonic() - began < 20, "a loaded machine has time to spare"
    assert peak < 100 * LARGEST_FILE
    _is_bounded(str(raised.value), said, file)


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_in_semel_yaml(name: str, tmp_path: Path) -> None:
    file = tmp_path / "semel.yaml"
    said = _written(file, name)
    with pytest.raises(SettingsMistakes) as raised:
        load_settings({}, {}, file)
    _is_bounded(str(raised.value), said, file)


@pytest.mark.parametrize("name", ["a billion laughs", "a circle", "an object", "many mistakes", "deep lists"])
def test_semel_check_says_where(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2, and file:line:col."""
    file = tmp_path / "bomb.yaml"
    said = _written(file, name)
    ran = command(capsys, "check", file)
    assert ran.status == 2
    _is_bounded("\n".join(line for line in (ran.out + ran.err).splitlines() if str(file) in line), said, file)


async def test_a_reload_keeps_the_old_policies_and_says_so(tmp_path: Path) -> None:
    """One bomb after the other beside a good file; the log's line stays one that can be read."""
    log = io.StringIO()
    policy = "upstream: up\nbase_url: http://127.0.0.1:1\nrules: [{name: no, mode: deny}]\n"
    async with semel(tmp_path, policy, store="memory", log=log) as app:

        def kept() -> list[dict[str, object]]:
            lines = [json.loads(line) for line in log.getvalue().splitlines()]
            return [line for line in lines if line["event"] == "policies-kept"]

        before, bomb = app.watch.current, tmp_path / "policies" / "bomb.yaml"
        for number, name in enumerate(sorted(BOMBS), 1):
            _written(bomb, name)
            assert not await app.watch.check_now(), name
            await until(lambda number=number: len(kept()) == number)  # type: ignore[misc]
            assert "bomb.yaml" in str(kept()[-1])
            assert app.watch.current is before
        assert max(len(line) for line in log.getvalue().splitlines()) < 64 * 1024
        assert (await call(app.address.port, "GET", "/up/x")).status == 403, "the old rule"
        bomb.unlink()
        (tmp_path / "policies" / "test.yaml").write_text(policy.replace("deny", "pass"))
        assert await app.watch.check_now()


def test_two_hundred_mistakes_are_all_told(tmp_path: Path) -> None:
    """And with one more, that there are more."""
    file = tmp_path / "one.yaml"
    start = "upstream: one\nbase_url: http://one.example\n"
    for number, last in ((MOST_MISTAKES, "unknown key"), (MOST_MISTAKES + 1, "from here on")):
        file.write_text(start + "".join(f"k{n:03}: 1\n" for n in range(number)))
        with pytest.raises(PolicyMistakes) as raised:
            load_policies([file])
        assert len(raised.value.mistakes) == number
        assert raised.value.mistakes[-1].message.startswith(last)
