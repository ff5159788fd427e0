"""The presets for models: which rule a request meets, what names it, what it costs; and that they ship."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from proxy.core.canonical import Body
from proxy.core.cost import cost_of
from proxy.core.identity import Asked, identify
from proxy.core.matching import find_rule
from proxy.core.policy import Mode, Normalize, Repeat, Rule, Scope, Upstream
from proxy.policy_file import load_policies, presets_directory

ROOT = Path(__file__).parents[2]
PRESETS = load_policies(["presets"]).upstreams
OPENAI, ANTHROPIC = PRESETS["openai"], PRESETS["anthropic"]

# Method, path, rule; an asterisk where repeating does no harm.
OPENAI_TABLE = """
POST /v1/chat/completions chat*
POST /v1/completions completions*
POST /v1/responses responses*
POST /v1/responses/compact compact*
POST /v1/responses/input_tokens count-tokens*
POST /v1/embeddings embeddings*
POST /v1/moderations moderations*
POST /v1/batches batch
POST /v1/files file-upload
POST /v1/fine_tuning/jobs fine-tuning
POST /v1/threads/thread_1/runs thread-run
POST /v1/conversations conversation*
POST /v1/responses/resp_1/cancel -
POST /v1/batches/batch_1/cancel -
POST /v1/images/generations -
POST /v1/chat/completions/ -
POST /v1/chat/completions/chatcmpl_1 -
DELETE /v1/responses/resp_1 -
GET /v1/models -
GET /v1/chat/completions -
"""
ANTHROPIC_TABLE = """
POST /v1/messages messages*
POST /v1/messages/count_tokens count-tokens*
POST /v1/complete complete*
POST /v1/messages/batches batch
POST /v1/messages/batches/msgbatch_1/cancel batch-cancel
POST /v1/files file-upload
DELETE /v1/messages/batches/msgbatch_1 -
GET /v1/messages/batches/msgbatch_1 -
GET /v1/models -
"""


def rows(table: str) -> list[tuple[str, str, str]]:
    return [
        (method, path, rule) for method, path, rule in (line.split() for line in table.split("\n") if line)
    ]


def rule_of(upstream: Upstream, path: str, method: str = "POST") -> Rule:
    found = find_rule(upstream, method, path)
    assert found is not None
    return found.rule


@pytest.mark.parametrize(
    ("upstream", "method", "path", "wanted"),
    [(OPENAI, *row) for row in rows(OPENAI_TABLE)] + [(ANTHROPIC, *row) for row in rows(ANTHROPIC_TABLE)],
)
def test_which_rule_a_request_meets(upstream: Upstream, method: str, path: str, wanted: str) -> None:
    """Asking a model is safe; what stays or goes on at the vendor has effects, also without a rule."""
    found = find_rule(upstream, method, path)
    if found is None:
        assert wanted == "-"
        return
    safe = found.rule.is_safe(method)
    assert found.rule.name + ("*" if safe else "") == wanted
    assert (found.rule.mode, found.rule.repeat, found.rule.scope) == (Mode.ONCE, Repeat.ORDINAL, Scope.RUN)


def test_where_they_are_and_how_long_they_may_take() -> None:
    """The vendors' addresses; ten minutes of silence, as the SDKs allow, and as long for a duplicate."""
    for upstream, host in ((OPENAI, "api.openai.com"), (ANTHROPIC, "api.anthropic.com")):
        assert (upstream.scheme, upstream.host, upstream.port, upstream.base_path) == ("https", host, 443, "")
        assert upstream.timeouts.idle >= 600
        assert upstream.timeouts.total >= upstream.timeouts.idle
    for upstream, path in ((OPENAI, "/v1/chat/completions"), (ANTHROPIC, "/v1/messages")):
        assert rule_of(upstream, path).wait >= 600


@pytest.mark.parametrize("name", PRESETS)
def test_every_rule_says_where_it_comes_from(name: str) -> None:
    """The comment above a rule cites a public page, or says that the rule is unverified."""
    text = (presets_directory() / f"{name}.yaml").read_text()
    above = ""
    cited = 0
    for line in text.partition("\nrules:\n")[2].splitlines():
        if line.startswith("  #"):
            above += line
        elif line.startswith("  - name:"):
            # A rule may share the comment of the one before it, as cancelling a batch does.
            assert "https://" in above or "nverified" in above, line
            cited += 1
        elif not line:
            above = above if "https://" in above else ""
    assert cited == len(PRESETS[name].rules)


# ---- names ----


def named(upstream: Upstream, path: str, document: object, *headers: tuple[bytes, bytes]) -> bytes:
    asked = Asked(
        tenant="",
        upstream=upstream.name,
        method="POST",
        raw_path=path.encode(),
        query=b"",
        headers=((b"Content-Type", b"application/json"), *headers),
        path_names={},
        body=Body(media_type="application/json", data=json.dumps(document).encode()),
        run="task",
    )
    return identify(asked, rule_of(upstream, path), b"secret" * 6).key


def chat(text: str, **more: object) -> dict[str, object]:
    return {"model": "gpt-4.1", "messages": [{"role": "user", "content": text}], **more}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Now: 2026-11-16T10:58:50.123456+00:00", "Now: 2026-11-17T09:00:01+00:00"),
        ("Now: 2026-11-16T10:58:50Z, be brief", "Now: 2027-01-01T00:00:00.5Z, be brief"),
        ("It is 2026-11-16 10:58.", "It is 2026-12-24 23:59:59."),
        ("It is 2026-11-16 10:58:50 UTC now", "It is 2026-11-16 10:58:51 UTC now"),
        ("2026-11-16", "2026-11-17"),
        ("今日は2026-11-16です", "今日は2026-11-17です"),
        ("[2026-11-16 10:58:50,123] INFO started", "[2026-11-16 10:58:51,007] INFO started"),
        ("20261116T105850Z", "20261116T110000Z"),
        ("Date: Mon, 16 Nov 2026 10:58:50 GMT", "Date: Tue, 17 Nov 2026 08:00:00 GMT"),
        ("Mon Nov 16 10:58:50 2026", "Tue Nov 17 10:58:50 2026"),  # ctime
        ("Fri Nov  6 10:58:50 UTC 2026", "Mon Nov 16 10:58:50 CET 2026"),  # date
        ("Today is Monday, November 16, 2026.", "Today is Tuesday, December 1, 2026."),
        ("Heute, 16 November 2026", "Heute, 1 December 2026"),
    ],
)
def test_a_prompt_with_another_time_is_the_same_call(one: str, other: str) -> None:
    """A resumed agent writes another "now" into its prompt and has to meet its past all the same."""
    path = "/v1/chat/completions"
    assert named(OPENAI, path, chat(one)) == named(OPENAI, path, chat(other))
    assert named(OPENAI, "/v1/responses", {"input": one}) == named(OPENAI, "/v1/responses", {"input": other})
    message = {"system": one, "messages": [{"role": "user", "content": [{"type": "text", "text": one}]}]}
    again = {"system": other, "messages": [{"role": "user", "content": [{"type": "text", "text": other}]}]}
    assert named(ANTHROPIC, "/v1/messages", message) == named(ANTHROPIC, "/v1/messages", again)
    tools = [
        {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"at": text}, ensure_ascii=False)}
        for text in (one, other)
    ]
    assert named(OPENAI, path, {"messages": tools[:1]}) == named(OPENAI, path, {"messages": tools[1:]})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("release 1.2.3", "release 1.2.4"),
        ("release v2026.11.16", "release v2026.11.17"),
        ("tag 2026-11-16-rc1", "tag 2026-11-17-rc1"),  # part of a name
        ("file report_2026-11-16", "file report_2026-11-17"),
        ("$1,234.56", "$1,234.57"),
        ("2026.11 EUR", "2026.12 EUR"),
        ("call +1 202-555-0100", "call +1 202-555-0101"),
        ("call 555-2024-01-02", "call 555-2024-01-03"),
        ("in 2026", "in 2027"),
        ("2026-2027", "2026-2028"),
        ("May 2026", "June 2026"),
        ("2026-13-01", "2026-14-01"),  # no month
        ("order 4711-12-30", "order 4712-12-30"),
        ("1763290730", "1763290731"),  # may be a time, may be anything
        ("at 10:30", "at 11:30"),
        ("ratio 3:2", "ratio 3:4"),
        ("10.0.0.1", "10.0.0.2"),
    ],
)
def test_what_only_resembles_a_time_makes_another_call(one: str, other: str) -> None:
    """Versions, money, phone numbers, years, names with a date in them."""
    path = "/v1/chat/completions"
    assert named(OPENAI, path, chat(one)) != named(OPENAI, path, chat(other))
    assert named(ANTHROPIC, "/v1/messages", chat(one)) != named(ANTHROPIC, "/v1/messages", chat(other))


@pytest.mark.parametrize(
    ("upstream", "path", "one", "other"),
    [
        (OPENAI, "/v1/chat/completions", "gpt-4o-2024-05-13", "gpt-4o-2024-08-06"),
        (OPENAI, "/v1/responses", "gpt-5-2025-08-07", "gpt-5-2026-01-01"),
        (ANTHROPIC, "/v1/messages", "claude-haiku-4-5-20251001", "claude-haiku-4-5-20251101"),
    ],
)
def test_another_model_is_another_call(upstream: Upstream, path: str, one: str, other: str) -> None:
    """Models have dates in their names, and those are not times."""
    assert named(upstream, path, {"model": one}) != named(upstream, path, {"model": other})


def test_what_an_embedding_is_of_is_never_normalised() -> None:
    """Two documents that differ only in a date have two vectors."""
    assert rule_of(OPENAI, "/v1/embeddings").key.normalize == ()
    assert rule_of(OPENAI, "/v1/chat/completions").key.normalize == (Normalize.TIMESTAMPS,)
    one, other = ({"model": "m", "input": f"log of {day}"} for day in ("2026-11-16", "2026-11-17"))
    assert named(OPENAI, "/v1/embeddings", one) != named(OPENAI, "/v1/embeddings", other)


def test_what_sdks_change_by_themselves_does_not_matter_and_beta_features_do() -> None:
    """Retry counts and versions of the SDK are not the call; what chooses the form of the answer is."""
    path, asked = "/v1/messages", chat("hi")
    plain = named(ANTHROPIC, path, asked, (b"anthropic-version", b"2023-06-01"))
    sdk = ((b"x-stainless-retry-count", b"1"), (b"user-agent", b"x/2"), (b"x-api-key", b"other"))
    assert named(ANTHROPIC, path, asked, (b"Anthropic-Version", b"2023-06-01"), *sdk) == plain
    beta = (b"anthropic-beta", b"files-api-2025-04-14")
    assert named(ANTHROPIC, path, asked, (b"anthropic-version", b"2023-06-01"), beta) != plain
    assert named(OPENAI, "/v1/responses", {**asked, "stream": True}) != named(OPENAI, "/v1/responses", asked)


# ---- cost, and what the comments promise ----


def test_models_have_a_cost_and_the_free_ones_none() -> None:
    """Read from the tokens that an answer reports."""
    answer = {"model": "gpt-4o-mini-2024-07-18", "usage": {"prompt_tokens": 1000, "completion_tokens": 100}}
    headers = ((b"Content-Type", b"application/json"),)
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses"):
        assert cost_of(rule_of(OPENAI, path), 200, headers, json.dumps(answer).encode()) == 0.00021
    message = {"model": "claude-opus-5", "usage": {"input_tokens": 1000, "output_tokens": 100}}
    assert cost_of(rule_of(ANTHROPIC, "/v1/messages"), 200, headers, json.dumps(message).encode()) == 0.0075
    for upstream, path in ((OPENAI, "/v1/moderations"), (ANTHROPIC, "/v1/messages/count_tokens")):
        assert rule_of(upstream, path).cost is None


@pytest.mark.parametrize(("name", "rule"), [("openai", "responses"), ("anthropic", "messages")])
def test_a_file_of_your_own_takes_the_place_of_one_rule(name: str, rule: str, tmp_path: Path) -> None:
    """By its name; the rest of the preset stays, and the headers that name every call."""
    path = {"responses": "/v1/responses", "messages": "/v1/messages"}[rule]
    own = (
        f"upstream: {name}\nextends: {name}\nrules: [{{name: {rule}, match: {{method: POST, path: {path}}}}}]"
    )
    (tmp_path / "own.yaml").write_text(own)
    found = load_policies(["presets", tmp_path / "own.yaml"]).upstreams[name]
    before, after = ({one.name: one for one in upstream.rules} for upstream in (PRESETS[name], found))
    assert before[rule].is_safe("POST")
    assert not after[rule].is_safe("POST")
    assert after[rule].key.counted == PRESETS[name].accounts
    assert {one: after[one] for one in after if one != rule} == {
        one: before[one] for one in before if one != rule
    }
    assert (found.host, found.timeouts) == (PRESETS[name].host, PRESETS[name].timeouts)
    assert (PRESETS[name].verified, found.verified) == ("2026-11-17", "")


# ---- shipping ----


def test_the_wheel_carries_them(tmp_path: Path) -> None:
    """Built by the same backend as for a release, and found there by the code that is in it."""
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    built = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    listing = subprocess.run(
        [sys.executable, "-m", "proxy.cli", "policies", "list", "--json"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert listing.returncode == 0, listing.stderr
    found = {one["name"]: one["file"] for one in json.loads(listing.stdout)["policies"]}
    assert {"openai", "anthropic"} <= set(found)
    assert found["openai"] == str(tmp_path / "site" / "proxy" / "presets" / "openai.yaml")
