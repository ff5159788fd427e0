"""`make bench` runs through and tells what it found. Nothing here is judged by time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from benchmarks import asking, bodies, judging, load, nginx, once, peers_rates, streaming, table
from benchmarks.__main__ import PARTS
from benchmarks.judging import Check, Found, Mark, Rates, Unmeasured, missed
from benchmarks.peers import installing
from benchmarks.peers_rates import RATED, CannotMeasure, Rated
from benchmarks.running import end
from tests.not_installing import WORDS, no_packages

ROOT = Path(__file__).parent.parent
WITHIN = 120

always = pytest.mark.one_in(1)  # also in `make test`: they take no time

# What each part shows: rates, checks, and what is not judged. In a small run; nginx and peers come on top.
SHOWS = {
    "replaying": (6, 2, 0),
    "once": (3, 1, 1),
    "latency": (0, 1, 2),
    "streaming": (0, 4, 0),
    "large": (0, 1, 1),
    "rows": (0, 8, 1),
    "metrics": (2, 1, 0),
    "stores": (5, 2, 1),
}


def small(*words: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks", *words]


SMALL = {**os.environ, "BENCH_SMALL": "1"}


@pytest.mark.parametrize("part", PARTS)
def test_a_small_run_measures_every_part_and_writes_its_table(part: str, tmp_path: Path) -> None:
    """Every server is asked, every ratio is told, the page says what the JSON says, and nothing is judged."""
    file = tmp_path / "table.md"
    done = subprocess.run(
        small("--only", part, "--json", "--table", str(file)),
        cwd=ROOT, capture_output=True, text=True, timeout=WITHIN, check=False, env=SMALL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["missed"] == []
    assert all(rate > 0 for rate in told["rates"].values())
    rates, checks, shown = SHOWS[part]
    if part == "replaying" and nginx.find() is not None:
        rates, checks = rates + 1, checks + 1
    if part == "once":
        peers = sum(installing.installed(peer.name) for peer in RATED)
        rates, checks = rates + peers, checks + peers
        assert len(told["unmeasured"]) == len(RATED) - peers
    assert (len(told["rates"]), len(told["checks"]), len(told["shown"])) == (rates, checks, shown)
    page = file.read_text()
    for name, value, relation, bound, mark in told["checks"]:
        assert f"| {name} | {value:.2f} | {relation} {bound:g} | {mark} |" in page
        assert mark == "too small to judge"
    for name in told["rates"]:
        assert f"\n| {name} | " in page


def test_what_was_started_is_ended_when_the_run_is_told_to_stop(tmp_path: Path) -> None:
    """In the middle of a load: no server is left behind, nor the directory."""
    env = {**SMALL, "TMPDIR": str(tmp_path)}
    words = small("--only", "metrics", "--rounds", "100")
    with subprocess.Popen(words, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr is not None
            assert running.stderr.readline().startswith("turn 1 of")
            children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
            assert len(children) >= 3  # an upstream, two proxies
            running.send_signal(signal.SIGTERM)
            running.communicate(timeout=WITHIN)
        finally:
            running.kill()
    assert running.returncode == 1
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
    assert list(tmp_path.iterdir()) == []


def of(value: float, relation: judging.Relation, bound: float) -> Check:
    return Check("it", value, relation, bound)


@always
@pytest.mark.parametrize(
    ("check", "mark"),
    [
        (of(3.0, "at least", 3.0), Mark.MET),
        (of(2.99, "at least", 3.0), Mark.NEARLY),
        (of(2.71, "at least", 3.0), Mark.NEARLY),
        (of(2.69, "at least", 3.0), Mark.MISSED),
        (of(1.5, "at most", 1.5), Mark.MET),
        (of(-1.0, "at most", 1.0), Mark.MET),
        (of(1.51, "at most", 1.5), Mark.NEARLY),
        (of(1.64, "at most", 1.5), Mark.NEARLY),
        (of(1.66, "at most", 1.5), Mark.MISSED),
    ],
)
def test_a_figure_is_met_within_a_tenth_or_missed(check: Check, mark: Mark) -> None:
    """Short by a tenth is said and fails nothing; by more it fails, unless the run was a small one."""
    assert check.mark is mark
    assert missed([check], small=False) == (["it"] if mark is Mark.MISSED else [])
    assert missed([check], small=True) == []


@always
@pytest.mark.parametrize(("value", "status"), [(2.0, 1), (2.8, 0), (3.1, 0)])
def test_only_a_miss_ends_with_one(
    value: float, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What could not be measured does not, either."""
    from benchmarks import __main__ as bench

    def measured(_: object, found: Found) -> None:
        found.judge("once against it", value, "at least", 3.0)
        found.unmeasured.append(Unmeasured("once against another", "at least", 3.0, "there is none"))

    monkeypatch.setattr(bench, "PARTS", {"made up": (measured,)})
    monkeypatch.setattr(sys, "argv", ["make bench", "--json"])
    handler = signal.getsignal(signal.SIGTERM)
    try:
        assert bench.main() == status
    finally:
        signal.signal(signal.SIGTERM, handler)
    told = json.loads(capsys.readouterr().out)
    assert told["missed"] == ["once against it"] * status
    assert told["unmeasured"] == [["once against another", "at least", 3.0, "there is none"]]


@always
def test_ratios_are_taken_within_a_round() -> None:
    """A slow round is slow for both; and every round needs both."""
    found = Found(rates={"a": Rates(32, 10, [10.0, 1.0, 9.0]), "b": Rates(32, 10, [5.0, 0.5, 6.0])})
    assert found.ratio("a", "b") == 2.0
    assert found.rates["a"].median == 9.0
    with pytest.raises(ValueError, match="argument 2 is longer"):
        judging.ratio([1.0], [1.0, 2.0])


@always
def test_the_page_says_how_each_was_asked_and_what_is_missing() -> None:
    """Connections and requests differ by row; a reason does not break its table."""
    found = Found(versions=["peer 1.2.3"])
    found.rates["semel replays"] = Rates(32, 25_000, [50_000.0])
    found.judge("replays against it", 0.95, "at least", 1.0)
    found.unmeasured.append(Unmeasured("once against it", "at least", 3, "no\nnetwork | here"))
    found.shown["one commit, ms"] = 0.3
    page = table.as_markdown(found, rounds=9)
    assert "median of 9 interleaved rounds" in page
    assert "| semel replays | 32 | 25,000 | 50,000 |" in page
    assert "| replays against it | 0.95 | at least 1 | within a tenth |" in page
    assert "| once against it | not measured: no network \\| here | at least 3 | |" in page
    assert "| one commit, ms | 0.30 | | not judged |" in page
    assert "peer 1.2.3; " in page


@always
def test_everybody_makes_the_same_call_of_ninety_bytes() -> None:
    """JSON, whoever asks; `same` is always one, `many` come round again, `unique` never do."""
    for seed, number in (("r0", 1), ("same", 0), ("warm", 10**8)):
        content = bodies.body(seed, number)
        assert len(content) == bodies.SIZE
        # What peers keep as arguments and write again is the same, byte for byte.
        assert json.dumps(json.loads(content)).encode() == content

    def different(kind: str, number: int) -> int:
        return len(set(islice(load.requests("/pay", kind, "r"), number)))

    assert different("same", 5000) == 1
    assert different("many", 5000) == bodies.MANY
    assert different("unique", 5000) == 5000
    with pytest.raises(ValueError, match="no kind of load"):
        load.requests("/pay", "other", "r")


@always
def test_the_first_byte_is_one_of_the_body() -> None:
    """Neither the head alone, nor the line before a chunk."""
    plain, chunked = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"HTTP/1.1 200 OK\r\n%b\r\n\r\n"
    chunked %= b"Transfer-Encoding: chunked"
    for begun in (plain + b"x", chunked + b"64\r\nd"):
        assert asking.has_begun(begun)
        assert not any(asking.has_begun(begun[:length]) for length in range(len(begun)))


@always
def test_no_growth_means_half_as_much_again_and_a_fifth_of_a_millisecond() -> None:
    """As the page says."""
    assert streaming.growth_allowed(0.001) == pytest.approx(0.0017)
    assert "1.5 times that of the smallest and 0.2 ms" in " ".join(table.WORDS.split())


@always
def test_a_small_run_installs_no_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, and goes on."""
    monkeypatch.setattr(installing, "PLACE", tmp_path)
    monkeypatch.setattr(peers_rates, "SMALL", True)
    monkeypatch.setattr(once, "SMALL", True)
    with pytest.raises(CannotMeasure, match="not installed, and a small run installs nothing") as caught:
        peers_rates.environment(RATED[0])
    found = Found()
    once._left_out(found, RATED[0], caught.value)
    assert [one.why for one in found.unmeasured] == [str(caught.value)]
    assert list(tmp_path.iterdir()) == []


@always
def test_a_peer_that_cannot_be_installed_has_a_row_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the installer's own words."""
    no_packages(tmp_path, monkeypatch)
    monkeypatch.setattr(peers_rates, "SMALL", False)
    with pytest.raises(CannotMeasure, match=WORDS) as caught:
        peers_rates.environment(RATED[1])
    assert not caught.value.installed


DIES = "import sys; print('{}', flush=True); sys.stdin.readline(); sys.exit('there is no store')"
ANSWERS = (
    "import sys; print('a word'); sys.stdin.readline(); print('{\"seconds\": 2.0}', flush=True); input()"
)


@always
@pytest.mark.parametrize("program", [DIES, ANSWERS], ids=["dies", "answers"])
def test_a_peer_that_dies_is_not_measured(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last words are the reason; where it is installed, a small run fails by it. One that works is read
    past whatever its library prints."""
    log = tmp_path / "log"
    pipe = subprocess.PIPE
    with log.open("wb") as errors:
        process = subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=errors)
    try:
        rated = Rated(process, log, "1")
        if program == ANSWERS:
            assert rated.rate("r0", 100) == 50.0
            return
        rated.line()
        with pytest.raises(CannotMeasure, match="it did not work: there is no store") as caught:
            rated.rate("r0", 100)
    finally:
        end(process)
    _in_both(caught.value, monkeypatch)


def _in_both(error: CannotMeasure, monkeypatch: pytest.MonkeyPatch) -> None:
    left_out: Callable[..., Any] = once._left_out
    found = Found()
    monkeypatch.setattr(once, "SMALL", False)
    left_out(found, RATED[0], error)
    assert len(found.unmeasured) == 1
    monkeypatch.setattr(once, "SMALL", True)
    with pytest.raises(CannotMeasure):
        left_out(found, RATED[0], error)
