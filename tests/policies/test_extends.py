"""`extends`: a file adds to a preset, and its own word wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.core.policy import Timeouts, Upstream
from proxy.policy_file import PolicyMistakes, load_policies

BASE = """
upstream: base
base_url: https://base.example/v1
credentials: [X-Base]
timeout: {connect: 1s, total: 5m}
rules:
  - {name: send, match: {method: POST, path: /send}, ttl: 1h}
  - {name: read, match: {method: GET}, mode: pass}
"""
OWN = """
upstream: own
extends: base
timeout: {connect: 9s}
credentials: [X-Own, x-base]
rules:
  - {name: first, match: {method: POST, path: /first}}
  - {name: send, match: {method: POST, path: /send/all}}
"""


class Scene:
    """A directory of presets and one of own files."""

    def __init__(self, root: Path) -> None:
        self.presets, self.own = root / "presets", root / "own"
        self.presets.mkdir()
        self.own.mkdir()

    def load(self) -> dict[str, Upstream]:
        return load_policies([self.own], presets=self.presets).upstreams

    def mistakes(self) -> list[str]:
        with pytest.raises(PolicyMistakes) as caught:
            self.load()
        return [f"{Path(m.file).name}:{m.line}:{m.col}: {m.message}" for m in caught.value.mistakes]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    (made.presets / "base.yaml").write_text(BASE)
    return made


def test_own_rules_come_first_and_replace_those_of_the_same_name(scene: Scene) -> None:
    (scene.own / "own.yaml").write_text(OWN)
    rules = scene.load()["own"].rules
    assert [rule.name for rule in rules] == ["first", "send", "read"]
    assert rules[1].path is not None
    assert rules[1].path.text == "/send/all"
    assert rules[1].ttl == 86400.0, "replaced whole, not mixed"


def test_what_the_file_does_not_say_comes_from_the_preset(scene: Scene) -> None:
    (scene.own / "own.yaml").write_text(OWN)
    own = scene.load()["own"]
    assert (own.name, own.host, own.base_path) == ("own", "base.example", "/v1")
    assert own.timeouts == Timeouts(connect=9.0, idle=120.0, total=300.0)


def test_credential_headers_add_up(scene: Scene) -> None:
    """A preset's secret header must not turn into an ordinary one by naming a further one."""
    (scene.own / "own.yaml").write_text(OWN)
    assert scene.load()["own"].credentials == ("x-base", "x-own")


def test_the_files_own_address_wins(scene: Scene) -> None:
    (scene.own / "own.yaml").write_text(OWN + "base_url: http://other.example:81\n")
    own = scene.load()["own"]
    assert (own.scheme, own.host, own.port, own.base_path) == ("http", "other.example", 81, "")


def test_the_preset_itself_stays_as_it_is(scene: Scene) -> None:
    (scene.own / "own.yaml").write_text(OWN)
    found = load_policies(["presets", scene.own], presets=scene.presets).upstreams
    assert [rule.name for rule in found["base"].rules] == ["send", "read"]
    assert found["base"].credentials == ("x-base",)


def test_presets_may_extend_presets(scene: Scene) -> None:
    (scene.presets / "middle.yaml").write_text(
        "upstream: middle\nextends: base\ntimeout: {idle: 3s}\nrules: [{name: mid, match: {path: /m}}]\n"
    )
    (scene.own / "own.yaml").write_text("upstream: own\nextends: middle\n")
    own = scene.load()["own"]
    assert [rule.name for rule in own.rules] == ["mid", "send", "read"]
    assert own.timeouts == Timeouts(connect=1.0, idle=3.0, total=300.0)


def test_an_own_file_may_have_the_name_of_the_preset_it_extends(scene: Scene) -> None:
    (scene.own / "base.yaml").write_text("upstream: base\nextends: base\nbase_url: http://mine.example\n")
    found = load_policies(["presets", scene.own], presets=scene.presets).upstreams["base"]
    assert (found.host, len(found.rules)) == ("mine.example", 2)


def test_an_own_rule_may_cover_a_presets(scene: Scene) -> None:
    """Within a file that would be a mistake; over a preset it is the point."""
    (scene.own / "own.yaml").write_text("upstream: own\nextends: base\nrules: [{name: all, mode: deny}]\n")
    assert [rule.name for rule in scene.load()["own"].rules] == ["all", "send", "read"]


def test_an_unknown_preset_is_a_mistake_with_a_suggestion(scene: Scene) -> None:
    (scene.own / "own.yaml").write_text("upstream: own\nextends: bsae\n")
    assert scene.mistakes() == ["own.yaml:2:10: there is no preset 'bsae': did you mean 'base'?"]
    (scene.own / "own.yaml").write_text("upstream: own\nextends: zzz\n")
    assert scene.mistakes() == ["own.yaml:2:10: there is no preset 'zzz' (there are: base)"]


def test_a_presets_name_is_not_a_path(scene: Scene) -> None:
    (scene.own / "own.yaml").write_text(
        "upstream: own\nextends: ../presets/base\nbase_url: http://x.example\n"
    )
    assert "is not an upstream's name" in scene.mistakes()[0]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_circle_of_presets_is_a_mistake(scene: Scene, length: int) -> None:
    names = [f"p{number}" for number in range(length)]
    for number, name in enumerate(names):
        after = names[(number + 1) % length]
        (scene.presets / f"{name}.yaml").write_text(f"upstream: {name}\nextends: {after}\n")
    (scene.own / "own.yaml").write_text("upstream: own\nextends: p0\n")
    (found,) = scene.mistakes()
    assert found.startswith(f"p{length - 1}.yaml:2:10: 'extends: p0' leads back")


def test_a_presets_mistakes_are_told_once_and_in_the_preset(scene: Scene) -> None:
    (scene.presets / "base.yaml").write_text(BASE.replace("https://base", "htps://base"))
    for name in ("a", "b"):
        (scene.own / f"{name}.yaml").write_text(f"upstream: {name}\nextends: base\n")
    (found,) = scene.mistakes()
    assert found.startswith("base.yaml:3:11: ")


def test_without_an_address_anywhere_the_file_is_told(scene: Scene) -> None:
    (scene.presets / "base.yaml").write_text("upstream: base\n")
    (scene.own / "own.yaml").write_text("upstream: own\nextends: base\n")
    assert scene.mistakes() == ["own.yaml:1:1: 'base_url' is missing"]
