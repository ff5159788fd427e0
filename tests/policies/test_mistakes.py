"""Every mistake of every file at once, each at its exact place.

The files in mistakes/ say themselves what is wrong with them: `#! line:col beginning of the message`.
"""

from __future__ import annotations

import os
import random
import re
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.core.patterns import PathPattern
from proxy.core.policy import PolicySet
from proxy.errors import ConfigurationError
from proxy.policy_file import Mistake, PolicyMistakes, load_policies, nodes
from proxy.policy_file.fields import Section
from proxy.policy_file.mistakes import Place
from proxy.policy_file.nodes import DEEPEST_NESTING, LARGEST_FILE
from proxy.policy_file.rules import _Branch
from proxy.policy_file.schema import RULE

DIRECTORY = Path(__file__).parent / "mistakes"
MARK = re.compile(r"^#! (\d+):(\d+) (.+)$", re.MULTILINE)
PRESETS = Path(__file__).parents[2] / "docs"  # example.yaml is what the files extend
GOOD = (PRESETS / "example.yaml").read_text()


def mistakes_in(directory: Path) -> tuple[Mistake, ...]:
    with pytest.raises(PolicyMistakes) as caught:
        load_policies([directory], presets=PRESETS)
    return caught.value.mistakes


def mistakes_of(tmp_path: Path, data: str | bytes) -> tuple[Mistake, ...]:
    file = tmp_path / "one.yaml"
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    return mistakes_in(tmp_path)


def rule(tmp_path: Path, *lines: str) -> list[str]:
    """What is said about a rule with these lines, without the place."""
    text = "upstream: one\nbase_url: http://one.example\nrules:\n  - name: one\n"
    found = mistakes_of(tmp_path, text + "".join(f"    {line}\n" for line in lines))
    return [mistake.message for mistake in found]


@pytest.mark.parametrize("parser", [nodes._PARSER, yaml.SafeLoader], ids=["fastest", "pure"])
def test_all_mistakes_of_all_files_are_told_at_once_and_in_place(
    parser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing missing, nothing more, with and without libyaml."""
    monkeypatch.setattr(nodes, "_PARSER", parser)
    found = {(Path(m.file).name, m.line, m.col, m.message) for m in mistakes_in(DIRECTORY)}
    wanted = [
        (file.name, int(line), int(col), message)
        for file in sorted(DIRECTORY.glob("*.yaml"))
        for line, col, message in MARK.findall(file.read_text())
    ]
    assert len(wanted) >= 90
    missing = [
        one for one in wanted if not any(one[:3] == has[:3] and has[3].startswith(one[3]) for has in found)
    ]
    extra = [
        has for has in found if not any(one[:3] == has[:3] and has[3].startswith(one[3]) for one in wanted)
    ]
    assert not missing
    assert not extra
    assert len(found) == len(wanted)


def test_mistakes_are_a_configuration_error_sorted_and_printed_with_their_place() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_policies([DIRECTORY])
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"{DIRECTORY}/address.yaml:2:11: 'Mail_Server' is not an upstream's name")
    places = [(m.file, m.line, m.col) for m in mistakes_in(DIRECTORY)]
    assert places == sorted(places)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PolicyMistakes, match=r"none\.yaml:1:1: there is no such file.*correct the path"):
        load_policies([tmp_path / "none.yaml"])


def test_an_empty_directory_is_a_mistake(tmp_path: Path) -> None:
    """A directory given by mistake would otherwise mean: no policies at all."""
    (tmp_path / ".hidden.yaml").write_text(GOOD)
    (tmp_path / "notes.txt").write_text(GOOD)
    assert "no *.yaml" in mistakes_in(tmp_path)[0].message


def test_a_path_that_no_file_can_have_is_a_mistake() -> None:
    with pytest.raises(PolicyMistakes, match="cannot be read"):
        load_policies(["a\0b"])


def test_a_pipe_is_refused_instead_of_read_for_ever(tmp_path: Path) -> None:

    os.mkfifo(tmp_path / "pipe.yaml")
    assert "not a regular file" in mistakes_in(tmp_path)[0].message


def test_a_file_that_is_not_utf8_is_told_with_the_place_of_the_first_bad_byte(tmp_path: Path) -> None:
    (found,) = mistakes_of(tmp_path, "upstream: one\nbase_url: h\xe4".encode("latin-1"))
    assert (found.line, found.col) == (2, 12)
    assert "not UTF-8" in found.message


def test_a_byte_order_mark_is_not_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_bytes(b"\xef\xbb\xbfupstream: one\nbase_url: http://one.example\n")
    assert list(load_policies([tmp_path]).upstreams) == ["one"]


def test_control_characters_are_told_with_their_place(tmp_path: Path) -> None:
    (found,) = mistakes_of(tmp_path, "upstream: one\nbase_url: \x07")
    assert (found.line, found.col) == (2, 11)


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    comment = "#" * (LARGEST_FILE - len("upstream: one\nbase_url: http://one.example\n"))
    fits = f"upstream: one\nbase_url: http://one.example\n{comment}"
    (tmp_path / "one.yaml").write_text(fits)
    load_policies([tmp_path])
    assert "over 1MiB" in mistakes_of(tmp_path, fits + "#")[0].message


@pytest.mark.parametrize("depth", [DEEPEST_NESTING, 200, 100_000])
def test_deep_nesting_is_refused_where_it_starts_to_be_too_deep(tmp_path: Path, depth: int) -> None:
    (found,) = mistakes_of(tmp_path, "upstream: " + "[" * depth + "]" * depth)
    assert "nested more than" in found.message
    assert found.col == len("upstream: ") + DEEPEST_NESTING


def test_messages_keep_to_one_line_and_out_of_the_terminals_way(tmp_path: Path) -> None:
    """A value may hold line breaks and escape sequences; what is said about it may not."""
    text = "upstream: one\nbase_url: http://x\n"
    text += 'rules: [{name: a, match: {path: "/{\\e[31m\\n}"}}]\ncredentials: "\\n"\n'
    found = mistakes_of(tmp_path, text)
    assert len(found) == 2
    assert all(m.message.isprintable() for m in found)


def test_a_bomb_of_aliases_is_refused_at_once(tmp_path: Path) -> None:
    layers = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    layers += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    found = mistakes_of(tmp_path, "\n".join(layers))
    assert any("aliases are not supported" in m.message for m in found)


def test_what_is_wrong_below_an_anchor_is_still_told(tmp_path: Path) -> None:
    found = mistakes_of(tmp_path, "upstream: one\nbase_url: http://x\nrules: &r\n  - nam: x\n")
    assert [m.message.split(":")[0] for m in found] == ["anchors are not supported", "unknown key 'nam'"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("api.example.com", "does not start with http"),
        ("https://", "has no host"),
        ("https://api.example.com:0x50", "is not a port"),
        ("https://api.example.com:70000", "is not a port"),
        ("https://api.example.com/v1?x=1", "remove everything from ? or #"),
        ("https://api.example.com/v1#", "remove everything from ? or #"),
        ("https://api.example.com/a/../b", "segments"),
        ("https://api.example.com/a/%2e%2E/b", "segments"),
        ("https://api example.com", "no blanks"),
        ("https://bücher.example", "ASCII"),
        ("https://[::1", "[::1"),
        ("https://[::zz]/", "[::zz]"),
        ("https://-a.example", "not a host name"),
        ("https://a..example", "not a host name"),
    ],
)
def test_addresses_that_cannot_be_called(tmp_path: Path, address: str, message: str) -> None:
    (found,) = mistakes_of(tmp_path, f"upstream: one\nbase_url: {address!r}\n")
    if address.startswith("https://["):
        assert (found.line, found.col) == (2, 11)
    else:
        assert message in found.message


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["in_doubt: probe"], "'in_doubt: probe' needs 'probe'"),
        (["stale: refuse"], "'stale' needs 'max_age'"),
        (["match: {method: POST}", "max_age: 1h"], "'max_age' is for safe calls"),
        (["match: {method: GET}", "upstream_key: {header: K}"], "'upstream_key' is for calls with effects"),
        (["mode: cache", "approval: always"], "'approval' means nothing with 'mode: cache'"),
        (["budget: {}"], "at least one of 'calls' and 'usd'"),
        (["cost: {usd: 1e3}"], "not an amount of money"),
        (["cost: {usd: -1}"], "not an amount of money"),
        (["budget: {calls: 0/1h}"], "allows nothing"),
        (["budget: {usd: 0.00}", "cost: {usd: 1}"], "allows nothing"),
        (["budget: {usd: 5.00/0s}", "cost: {usd: 1}"], "allows nothing"),
        (["budget: {usd: 5.00/1}", "cost: {usd: 1}"], "has no unit"),
        (["budget: {usd: 5.00}"], "needs 'cost'"),
        (["upstream_key: {body: 'items[].key'}"], "not one field of the body"),
        (
            ["upstream_key: {header: K, mismatch: [409]}", "outcome: {final: [409]}"],
            "409 is a key mismatch",
        ),
        (
            ["upstream_key: {header: K}", "probe: {request: {path: '/x?r={body.r}'}, found: a}"],
            "both settle doubt",
        ),
        (["probe: {request: {path: '/x?k={upstream_key}'}, found: a}"], "the rule has no 'upstream_key'"),
        (["probe: {request: {path: '/x?r={body.r'}, found: a}"], "use a placeholder"),
        (["probe: {request: {path: '/x/{a}}'}, found: a}"], "a brace without its partner"),
        (["redact: {args: [path.id]}"], "'path.id' needs {id}"),
        (["match: {method: []}"], "this list is empty"),
        (["match: {method: ANY}"], "leave 'method' out"),
        (["match: {method: CONNECT}"], "never reaches an upstream"),
        (["ttl: 1w"], "not a duration"),
        (["ttl: 4000d"], "too long"),
        (["tool: ''"], "a label has 1 to 128 characters"),
        (["key: {client_key: required}"], "did you mean 'require'?"),
        (["key: {headers: [Idempotency-Key]}"], "'client_key'"),
    ],
)
def test_values_and_combinations_that_cannot_be(tmp_path: Path, lines: list[str], message: str) -> None:
    assert any(message in said for said in rule(tmp_path, *lines)), rule(tmp_path, *lines)


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        ("{}", "{method: GET, path: /a}", True),
        ("{method: GET}", "{method: GET, path: /a}", True),
        ("{method: GET}", "{path: /a}", False),
        ("{path: /a}", "{}", False),
        ("{path: /a}", "{path: /a}", True),
        ("{path: /a}", "{path: /a/}", False),
        ("{path: /a%20b}", "{path: '/a b'}", True),
        ("{path: /a/b}", "{path: /a%2Fb}", False),
        ("{method: [GET, PUT], path: /a}", "{method: PUT, path: /a}", True),
        ("{method: PUT, path: /a}", "{method: [GET, PUT], path: /a}", False),
        ("{path: '/a/{x}'}", "{path: '/a/{y}'}", True),
        ("{path: '/a/{x}'}", "{path: /a/*}", True),
        ("{path: '/{x}/b'}", "{path: /a/b}", True),
        ("{path: /a/b}", "{path: '/{x}/b'}", False),
        ("{path: /a/**}", "{path: /a/b/c}", True),
        ("{path: /a/**}", "{path: /a/**}", True),
        ("{path: /a/**}", "{path: /a/*/**}", True),
        ("{path: /a/*/**}", "{path: /a/**}", False),
        ("{path: /a/**}", "{path: /a}", False),
        ("{path: /a/**}", "{path: /**}", False),
        ("{path: /*/**}", "{path: /a/b/c}", True),
        ("{path: /*/*}", "{path: /a/**}", False),
    ],
)
def test_a_rule_is_covered_only_by_one_that_matches_everything_it_does(
    tmp_path: Path, wide: str, narrow: str, covered: bool
) -> None:
    """Overlap is fine, whatever its kind; only a rule that can never win is a mistake."""
    rules = f"rules:\n  - {{name: wide, match: {wide}}}\n  - {{name: narrow, match: {narrow}}}\n"
    text = "upstream: one\nbase_url: http://one.example\n" + rules
    if covered:
        (found,) = mistakes_of(tmp_path, text)
        assert found.message.startswith("this rule is never used: 'wide' on line 4")
    else:
        (tmp_path / "one.yaml").write_text(text)
        assert len(load_policies([tmp_path]).upstreams["one"].rules) == 2


segments = st.lists(st.sampled_from(["a", "b", "*", "{x}"]), min_size=1, max_size=3)
patterns = st.tuples(segments, st.booleans()).map(
    lambda made: "/" + "/".join(dict.fromkeys([*made[0], *(["**"] if made[1] else [])]))
)


@settings(max_examples=200, deadline=None)
@given(wide=patterns, narrow=patterns)
def test_covering_agrees_with_matching(wide: str, narrow: str) -> None:
    """A pattern covers another if and only if no path of a small world meets the narrow one alone."""
    one, other = PathPattern.parse(wide), PathPattern.parse(narrow)
    tree = _Branch()
    tree.add(Section(RULE, Place("x", 1, 1)), one.segments)
    covers = any(True for _ in tree.covering(other.segments))
    world = [path for length in range(1, 6) for path in product(("a", "b", "c"), repeat=length)]
    assert covers == all(one.match(path) is not None for path in world if other.match(path) is not None)


def load_whatever(tmp_path: Path, data: bytes) -> PolicySet | None:
    """A set, or None after PolicyMistakes with places; any other exception fails the test."""
    file = tmp_path / "any.yaml"
    file.write_bytes(data)
    mistakes: tuple[Mistake, ...] = ()
    try:
        return load_policies([file])
    except PolicyMistakes as caught:
        mistakes = caught.mistakes
    assert mistakes
    assert all(m.line >= 1 and m.col >= 1 and m.message.isprintable() for m in mistakes)
    return None


quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
yaml_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@quick
@given(data=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_arbitrary_bytes_never_break_the_loader(tmp_path: Path, data: bytes) -> None:
    assert load_whatever(tmp_path, data) is None


@quick
@given(data=st.lists(st.sampled_from(list("{}[]:,-?&*!|>'\"%@`# \n\tab0~<=")), max_size=60).map("".join))
def test_arbitrary_punctuation_never_breaks_the_loader(tmp_path: Path, data: str) -> None:
    assert load_whatever(tmp_path, data.encode()) is None


@quick
@given(data=st.data())
def test_any_value_at_any_place_never_breaks_the_loader(tmp_path: Path, data: st.DataObject) -> None:
    """A well-formed file in which some values are replaced by arbitrary ones."""
    tree = yaml.safe_load(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        spot: Any = tree
        while True:
            step = data.draw(
                st.sampled_from(list(spot) if isinstance(spot, dict) else list(range(len(spot))))
            )
            if not isinstance(spot[step], (dict, list)) or not spot[step] or data.draw(st.booleans()):
                break
            spot = spot[step]
        spot[step] = data.draw(yaml_values)
        if not isinstance(tree.get("rules"), list):
            break
    load_whatever(tmp_path, yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "replace"))


@quick
@given(data=st.data())
def test_mutations_of_a_good_file_never_break_the_loader(tmp_path: Path, data: st.DataObject) -> None:
    """Characters cut out, doubled and replaced."""
    text = GOOD
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 20))
        text = text[:at] + data.draw(st.text(max_size=4) | st.just(text[at : at + 9])) + text[at + length :]
    load_whatever(tmp_path, text.encode("utf-8", "replace"))


def test_every_beginning_of_a_good_file_loads_or_is_refused(tmp_path: Path) -> None:
    """Half-written files: every 7th cut, starting at a random one."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    for cut in range(random.Random(seed).randrange(7), len(GOOD), 7):
        load_whatever(tmp_path, GOOD[:cut].encode())


def test_thousands_of_rules_are_seen_together_in_reasonable_time(tmp_path: Path) -> None:
    """Comparing each rule with each other took minutes on a file within the size limit."""
    rules = "".join(f"  - {{name: r{n}, match: {{method: POST, path: '/{{x}}/{n}'}}}}\n" for n in range(5000))
    (tmp_path / "one.yaml").write_text("upstream: one\nbase_url: http://one.example\nrules:\n" + rules)
    started = time.process_time()
    assert len(load_policies([tmp_path]).upstreams["one"].rules) == 5000
    assert time.process_time() - started < 20
