"""`semel explain --like`: the fields that differ, and the line that makes them match, tried on a real semel.

Every pair is sent through semel, so the record is the real one; the line that `explain` prints is pasted into
the policy file, and a semel under that policy takes the second request for the first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.explaining import document, explained, recorded
from tests.explain_pairs import ExplainPair, Request, applied, pairs

MATCH, DIFFER = pairs("match"), pairs("differ")
POLICY = """upstream: up
base_url: http://127.0.0.1:PORT
rules:
  - name: send
    match: {method: POST, path: /v1/messages}
"""
FIRST = Request("POST", "/up/v1/messages", (), '{"to": "bob", "n": 1}')
SECOND = Request("POST", "/up/v1/messages", (), '{"to": "bob", "n": 2}')


def name_of(pair: ExplainPair) -> str:
    return pair.name


def like(capsys: pytest.CaptureFixture[str], folder: Path, call: str, request: Request) -> dict[str, Any]:
    found: dict[str, Any] = document(capsys, folder, request, "--like", call)["like"]
    return found


def test_there_are_enough_pairs() -> None:
    """Twenty that a line makes match, and some that none can."""
    assert len(MATCH) >= 20
    assert len(DIFFER) >= 5


@pytest.mark.parametrize("pair", MATCH, ids=name_of)
def test_the_printed_line_makes_them_match(
    pair: ExplainPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, the second request is another call. With each suggestion pasted, it is the first one again."""
    before = tmp_path / "before"
    (status, call), (other, _) = recorded(before, pair.policy, pair.first, pair.second)
    assert status == "executed"
    assert other in ("executed", "refused")  # refused: a key conflict
    told = like(capsys, before, call, pair.second)
    assert not told["same"]
    assert sorted(one["field"] for one in told["differences"]) == sorted(pair.differs)
    assert [one["yaml"] for one in told["suggestions"]] == pair.suggests
    for number, suggestion in enumerate(told["suggestions"]):
        after = applied(pair.policy, suggestion)
        first, second = recorded(tmp_path / f"after-{number}", after, pair.first, pair.second)
        assert (first[0], second[0]) == ("executed", "replayed"), after
        assert first[1] == second[1]
    expect_same_as_itself(pair, before, call, capsys)


@pytest.mark.parametrize("pair", DIFFER, ids=name_of)
def test_no_line_is_printed_where_none_can_help(
    pair: ExplainPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What differs is named, and why no line can leave it out; nothing is suggested."""
    (status, call), (other, _) = recorded(tmp_path, pair.policy, pair.first, pair.second)
    assert (status, other) == ("executed", "executed")
    told = like(capsys, tmp_path, call, pair.second)
    assert not told["same"]
    assert sorted(one["field"] for one in told["differences"]) == sorted(pair.differs)
    assert sorted(one["field"] for one in told["remaining"]) == sorted(pair.remains)
    assert all(one["fixed"] for one in told["remaining"])
    assert told["suggestions"] == []
    printed = explained(capsys, tmp_path, pair.second, "--like", call).out
    assert "No line of a rule can make them match:" in printed
    assert "key: {" not in printed
    expect_same_as_itself(pair, tmp_path, call, capsys)


def expect_same_as_itself(
    pair: ExplainPair, folder: Path, call: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The very request that was recorded, credentials included: no difference, no advice."""
    told = like(capsys, folder, call, pair.first)
    assert told["same"]
    assert told["note"] == ""
    assert told["differences"] == told["suggestions"] == told["remaining"] == []


# ---- the page ----


def test_the_page_says_what_differs_and_what_to_paste_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Field, both values, the line by itself on a line, the file and line it belongs to."""
    ((_, call),) = recorded(tmp_path, POLICY, FIRST)
    printed = explained(capsys, tmp_path, SECOND, "--like", call).out
    _, _, compared = printed.partition(f"compared with call {call}\n")
    row = next(line.split() for line in compared.splitlines() if line.startswith("  body.n "))
    assert row == ["body.n", "2", "1"]
    assert "\n    key: {exclude: [n]}\n" in printed
    assert f"To make them match, a new line of rule send ({tmp_path}/policies/test.yaml:4)\n" in printed
    policy = tmp_path / "policies" / "test.yaml"
    policy.write_text(policy.read_text() + "    key: {normalize: [uuids]}\n")
    printed = explained(capsys, tmp_path, SECOND, "--like", call).out
    assert "\n    key: {exclude: [n], normalize: [uuids]}\n" in printed
    assert f"in place of key: in rule send ({policy}:6)\n" in printed


def test_a_line_that_says_more_than_it_seems_comes_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shared credentials, ignored keys, normalizing, and nothing left that counts: each is said."""
    keys = [(f"Authorization: Bearer geheim-{key}", f"Idempotency-Key: {key}") for key in "ab"]
    body = '{"at": "on 2026-11-1%d"}'
    requests = [Request("POST", "/up/v1/messages", keys[n], body % n) for n in (0, 1)]
    ((_, call),) = recorded(tmp_path, POLICY, requests[0])
    (suggestion,) = like(capsys, tmp_path, call, requests[1])["suggestions"]
    assert suggestion["yaml"] == "key: {credential: exclude, client_key: ignore, normalize: [timestamps]}"
    said = " ".join(suggestion["careful"])
    assert "other credentials" in said
    assert "Idempotency-Key" in said
    assert "timestamps out of every argument" in said
    only = [Request("POST", "/up/v1/messages", (), f'{{"n": {n}}}') for n in (1, 2)]
    ((_, call),) = recorded(tmp_path, POLICY, only[0])
    (suggestion,) = like(capsys, tmp_path, call, only[1])["suggestions"]
    assert "no argument counts any more" in " ".join(suggestion["careful"])


@pytest.mark.parametrize(
    ("key", "headers", "body", "named"),
    [
        ("{}", (), '{"to": "eve", "n": 2, "x": 1}', "n, to"),
        ("{exclude: [to]}", (), '{"to": "eve", "n": 2, "x": 1}', "n"),
        ("{include: [to, x]}", (), '{"to": "eve", "n": 1, "x": 1}', "to"),
        ("{include: [to]}", (), '{"to": "eve", "n": 1, "x": 1}', "to"),
        ("{headers: [x-team]}", ("X-Team: a",), '{"to": "bob", "n": 1, "x": 1}', "header x-team"),
    ],
)
def test_what_the_line_makes_one_call_is_named(
    key: str,
    headers: tuple[str, ...],
    body: str,
    named: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whether two calls that differ only in these are one is for a person to say: `to` is no timestamp."""
    first = Request("POST", "/up/v1/messages", (), '{"to": "bob", "n": 1, "x": 1}')
    ((_, call),) = recorded(tmp_path, f"{POLICY}    key: {key}\n", first)
    (suggestion,) = like(capsys, tmp_path, call, Request("POST", first.url, headers, body))["suggestions"]
    said = f"calls that differ only in {named} are then one call"
    assert [one for one in suggestion["careful"] if one.startswith(said)], suggestion
    printed = explained(capsys, tmp_path, Request("POST", first.url, headers, body), "--like", call).out
    assert f"Careful: {said}" in printed


def test_a_rule_of_a_preset_is_found_there_and_not_to_be_changed_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that extends it has its rules; the advice is to copy the one that is to change."""
    ((_, call),) = recorded(tmp_path, POLICY, FIRST)
    presets = tmp_path / "presets"
    presets.mkdir()
    policy = tmp_path / "policies" / "test.yaml"
    policy.rename(presets / "shipped.yml")
    policy.write_text("upstream: up\nextends: shipped\n")
    for module in ("proxy.policy_file", "proxy.explaining.written"):
        monkeypatch.setattr(f"{module}.presets_directory", lambda: presets)
    (suggestion,) = like(capsys, tmp_path, call, SECOND)["suggestions"]
    assert suggestion["at"] == f"{presets}/shipped.yml:4"
    assert "ships with semel" in " ".join(suggestion["careful"])


# ---- what was not typed ----

CHOOSING = ("Accept: */*", "Range: bytes=0-9", "Prefer: x", 'If-Match: "1"', "X-Team: a")
TAKEN = 'Accept: */*, Range: bytes=0-9, Prefer: x, If-Match: "1", X-Team: a'
KEYED = POLICY + "    key: {headers: [x-team]}\n"


def test_a_header_that_counts_and_was_not_typed_is_taken_over_from_the_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So the one field that differs is found all the same, and one line says what was assumed."""
    first = Request("POST", FIRST.url, CHOOSING, FIRST.body)
    ((_, call),) = recorded(tmp_path, KEYED, first)
    told = like(capsys, tmp_path, call, SECOND)
    assert [one["field"] for one in told["differences"]] == ["body.n"]
    assert [one["yaml"] for one in told["suggestions"]] == ["key: {exclude: [n], headers: [x-team]}"]
    (line,) = told["assumed"]
    start, _, rest = line.partition("since no -H gave it: ")
    assert start == "taken over from the record, "
    values, _, end = rest.partition("; ")
    assert sorted(values.split(", ")) == sorted(TAKEN.split(", "))
    assert end == "if your agent really leaves it out, that is the difference"
    assert f"  {line}\n" in explained(capsys, tmp_path, SECOND, "--like", call).out


def test_with_what_was_taken_over_the_page_is_of_one_piece(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same call has the same id, and its answer would be replayed."""
    ((_, call),) = recorded(tmp_path, KEYED, Request("POST", FIRST.url, CHOOSING, FIRST.body))
    found = document(capsys, tmp_path, FIRST, "--like", call)
    assert (found["call"], found["now"]["what"]) == (call, "replayed")
    assert {"name": "accept", "value": "*/*"} in found["headers"]
    assert found["like"]["same"]
    assert document(capsys, tmp_path, FIRST)["call"] != call  # without --like there is nothing to take over


def test_what_was_typed_is_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A header with another value is a difference, and the missing ones are still taken over."""
    ((_, call),) = recorded(tmp_path, KEYED, Request("POST", FIRST.url, CHOOSING, FIRST.body))
    told = like(capsys, tmp_path, call, Request("POST", FIRST.url, ("accept: text/html",), FIRST.body))
    assert [one["field"] for one in told["remaining"]] == ["header accept"]
    assert "Accept:" not in told["assumed"][0]
    assert "Prefer: x" in told["assumed"][0]


def test_a_guessed_media_type_gives_way_to_the_recorded_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """curl -d sends JSON as a form unless told otherwise. A guess that was right is not worth a line."""
    form = ("Content-Type: application/x-www-form-urlencoded",)
    ((_, call),) = recorded(tmp_path, POLICY, Request("POST", FIRST.url, form, FIRST.body))
    told = like(capsys, tmp_path, call, FIRST)
    assert told["same"]
    assert "Content-Type: application/x-www-form-urlencoded;" in told["assumed"][0]
    ((_, call),) = recorded(tmp_path / "json", POLICY, FIRST)
    assert like(capsys, tmp_path / "json", call, SECOND)["assumed"] == []


SAME_CALLER = "no credentials were given with -H: taken to be the same caller"


@pytest.mark.parametrize("header", ["Authorization: Bearer geheim", "Cookie: a=geheim", "X-Login: geheim"])
def test_without_credentials_the_caller_is_taken_to_be_the_same(
    header: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody likes to type a token: `credential: exclude` is not what they were asking for."""
    policy = POLICY.replace("rules:", "credentials: [x-login]\nrules:")
    ((_, call),) = recorded(tmp_path, policy, Request("POST", FIRST.url, (header,), FIRST.body))
    told = like(capsys, tmp_path, call, SECOND)
    assert [one["field"] for one in told["differences"]] == ["body.n"]
    assert [one["yaml"] for one in told["suggestions"]] == ["key: {exclude: [n]}"]
    assert told["assumed"] == [SAME_CALLER]
    assert f"  {SAME_CALLER}\n" in explained(capsys, tmp_path, SECOND, "--like", call).out
    found = document(capsys, tmp_path, FIRST, "--like", call)
    assert (found["call"], found["now"]["what"], found["like"]["same"]) == (call, "replayed", True)
    assert found["like"]["assumed"] == [SAME_CALLER]


def test_nothing_is_assumed_of_a_call_without_credentials_or_of_a_caller_who_gave_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There the record proves it: the same, or others, and then the line about credentials is suggested."""
    mine = ("Authorization: Bearer geheim-1",)
    requests = [FIRST, Request("POST", FIRST.url, mine, FIRST.body)]
    (_, without), (_, with_mine) = recorded(tmp_path, POLICY, *requests)
    assert like(capsys, tmp_path, without, SECOND)["assumed"] == []
    for call, header in ((with_mine, "Authorization: Bearer geheim-2"), (without, mine[0])):
        told = like(capsys, tmp_path, call, Request("POST", FIRST.url, (header,), FIRST.body))
        assert told["assumed"] == []
        assert [one["yaml"] for one in told["suggestions"]] == ["key: {credential: exclude}"]


def test_a_secret_header_that_the_rule_counts_is_taken_to_be_the_same_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record does not keep it, so its value cannot be taken over."""
    policy = POLICY + "    key: {headers: [x-session-id], credential: exclude}\n"
    first = Request("POST", FIRST.url, ("X-Session-Id: geheim",), FIRST.body)
    ((_, call),) = recorded(tmp_path, policy, first)
    told = like(capsys, tmp_path, call, FIRST)
    assert told["same"]
    assert told["assumed"] == [
        "not given with -H, and not kept in the record: taken to be the same: x-session-id"
    ]


# ---- what has changed since ----


def test_after_the_line_was_pasted_the_old_record_is_said_to_have_its_old_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both would match now; the call on record is not found any more, and that is told."""
    ((_, call),) = recorded(tmp_path, POLICY, FIRST)
    (suggestion,) = like(capsys, tmp_path, call, SECOND)["suggestions"]
    policy = tmp_path / "policies" / "test.yaml"
    policy.write_text(applied(policy.read_text(), suggestion))
    told = like(capsys, tmp_path, call, SECOND)
    assert (told["same"], told["same_now"]) == (False, True)
    assert "have changed since" in told["note"]
    printed = explained(capsys, tmp_path, SECOND, "--like", call).out
    assert "Both would have the same name now" in printed
    assert "under its older name, which is\n  not found any more: this request would be sent.\n" in printed


@pytest.mark.parametrize("key", ["client_key: ignore", "credential: exclude", "headers: [x-team]"])
def test_a_changed_rule_is_not_taken_for_other_credentials(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the arguments do not show of a recipe is tried too, before the credentials are suspected."""
    headers = ("Authorization: Bearer geheim", "Idempotency-Key: k", "X-Team: a")
    request = Request(FIRST.method, FIRST.url, headers, FIRST.body)
    ((_, call),) = recorded(tmp_path, POLICY, request)
    policy = tmp_path / "policies" / "test.yaml"
    policy.write_text(f"{policy.read_text()}    key: {{{key}}}\n")
    told = like(capsys, tmp_path, call, request)
    assert (told["same"], told["same_now"]) == (False, True)
    assert "have changed since" in told["note"]


@pytest.mark.parametrize(
    ("after", "note"),
    [
        ("upstream: other\nbase_url: http://127.0.0.1:9\n", "in no policy file now"),
        (POLICY + "    mode: pass\n", "not recorded"),
        (POLICY + "    key: {client_key: require}\n", "would be refused"),
    ],
)
def test_a_call_that_the_present_policies_do_not_know_is_not_compared(
    after: str, note: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its upstream is gone, its rule records nothing now, or would refuse it: nothing is made up."""
    ((_, call),) = recorded(tmp_path, POLICY, FIRST)
    (tmp_path / "policies" / "test.yaml").write_text(after.replace("PORT", "9"))
    url = FIRST.url.replace("/up/", "/other/") if "other" in after else FIRST.url
    told = like(capsys, tmp_path, call, Request("POST", url, ("Idempotency-Key: k",), FIRST.body))
    assert note in told["note"]
    assert told["differences"] == told["suggestions"] == []


def test_calls_of_two_upstreams_and_of_two_tenants_never_match(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are told, and no line is."""
    ((_, call),) = recorded(tmp_path, POLICY, FIRST)
    other = (tmp_path / "policies" / "test.yaml").read_text().replace("upstream: up", "upstream: down")
    (tmp_path / "policies" / "second.yaml").write_text(other)
    request = Request("POST", "/down/v1/messages", (), FIRST.body)
    told = document(capsys, tmp_path, request, "--like", call, "--tenant", "acme")["like"]
    assert [one["field"] for one in told["differences"]] == ["upstream", "tenant"]
    assert [one["field"] for one in told["remaining"]] == ["upstream", "tenant"]
    assert told["suggestions"] == []


def test_a_large_recorded_body_is_compared_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It lies in a blob, its arguments are told as a digest, and still the one field is found."""
    padding = "x" * 100_000
    bodies = [f'{{"n": {n}, "text": "{padding}"}}' for n in (1, 2)]
    requests = [Request("POST", "/up/v1/messages", (), body) for body in bodies]
    ((_, call),) = recorded(tmp_path, POLICY, requests[0])
    told = like(capsys, tmp_path, call, requests[1])
    assert [one["field"] for one in told["differences"]] == ["body.n"]
    assert [one["yaml"] for one in told["suggestions"]] == ["key: {exclude: [n]}"]
    blobs = [path for path in (tmp_path / "state" / "blobs").rglob("*") if path.is_file()]
    assert blobs
    for blob in blobs:
        blob.unlink()
    ran = explained(capsys, tmp_path, requests[1], "--like", call)
    assert ran.status == 1
    assert f"--like: the request of call {call} cannot be read from the record" in ran.err
    assert "semel would refuse" not in ran.err


# ---- which call ----


def test_the_beginning_of_an_id_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Six digits or more, in any case; the answer has the whole id."""
    (_, call), _ = recorded(tmp_path, POLICY, FIRST, SECOND)
    assert like(capsys, tmp_path, call[:8].upper(), FIRST)["call"] == call


def test_an_ambiguous_beginning_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the ids it could mean, so that more of one can be given."""
    calls = [call for _, call in recorded(tmp_path, POLICY, FIRST, SECOND)]

    async def all_of_them(store: Any, text: str) -> dict[str, object]:
        return dict.fromkeys(calls)

    monkeypatch.setattr("proxy.explaining.record._beginning_with", all_of_them)
    ran = explained(capsys, tmp_path, FIRST, "--like", "123456")
    assert ran.status == 1
    assert "--like: more than one call begins with 123456: " in ran.err
    assert all(call in ran.err for call in calls)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("0" * 32, "--like: there is no call 0000"),
        ("000000000", "--like: none of the newest 5000 calls in the record in "),
    ],
)
def test_a_call_that_is_not_there_is_the_options_fault(
    given: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 1; where it was looked for, and how to look elsewhere. The request is not blamed."""
    recorded(tmp_path, POLICY, FIRST)
    ran = explained(capsys, tmp_path, FIRST, "--like", given)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(said)
    assert given in ran.err
    assert f" in the record in {tmp_path}/state" in ran.err
    assert f"`semel calls list --state-dir {tmp_path}/state`" in ran.err
    assert "name that one with --state-dir DIR" in ran.err
    assert "semel would refuse" not in ran.err


@pytest.mark.parametrize("given", ["361a", "12345", "xyzxyzxyz", "0" * 33, ""])
def test_what_is_no_id_at_all_is_a_usage_error(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, and what an id looks like."""
    recorded(tmp_path, POLICY, FIRST)
    ran = explained(capsys, tmp_path, FIRST, "--like", given)
    assert (ran.status, ran.out) == (2, "")
    assert f"--like {given!r} is not a call's id: that has 32 hex digits" in ran.err
    assert "semel would refuse" not in ran.err


def test_without_a_record_there_is_nothing_to_compare_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A usage error that names --state-dir; nothing is made by asking."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "test.yaml").write_text(POLICY.replace("PORT", "9"))
    ran = explained(capsys, tmp_path, FIRST, "--like", "0" * 32)
    assert ran.status == 2
    assert "There is no record in" in ran.err
    assert "--state-dir" in ran.err
    assert not (tmp_path / "state").exists()
