"""Whose host it is: `hosts` of policies, base_urls, wildcards, and what cannot be told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.core.policy import PolicySet
from proxy.errors import UnknownUpstream
from proxy.front.address import Place, UpstreamAddress
from proxy.front.forwarded import OwnPlaces, reach
from proxy.policy_file import PolicyMistakes, load_policies
from proxy.settings_values import Unknown


def load(directory: Path, *files: str) -> PolicySet:
    directory.mkdir(exist_ok=True)
    for number, text in enumerate(files):
        (directory / f"{number}.yaml").write_text(text)
    return load_policies([directory])


def at(policies: PolicySet, host: str, port: int = 443) -> list[str]:
    return [upstream.name for upstream in policies.at(host, port)]


def test_the_base_url_is_the_host_unless_others_are_named(tmp_path: Path) -> None:
    """With the port of the scheme where none is said."""
    policies = load(
        tmp_path / "p",
        "upstream: one\nbase_url: https://one.example/v1\n",
        "upstream: two\nbase_url: http://two.example\n"
        "hosts: [a.example, 'b.example:8443', '[::1]', '[::1]:9']\n",
    )
    assert at(policies, "one.example") == ["one"]
    assert at(policies, "one.example", 80) == []
    assert at(policies, "two.example", 80) == [], "named hosts take the place of the base_url's"
    assert at(policies, "a.example", 80) == at(policies, "b.example", 8443) == ["two"]
    assert at(policies, "::1", 80) == at(policies, "::1", 9) == ["two"]
    assert at(policies, "a.example", 443) == []


def test_the_presets_know_the_regional_and_other_hosts_of_their_apis() -> None:
    """As the SDKs and the vendors' own answers name them; not whoever has a similar name."""
    policies = load_policies(["presets"])
    for name, hosts in {
        "openai": "api.openai.com us.api.openai.com eu.api.openai.com ae.api.openai.com",
        "twilio": "api.twilio.com verify.twilio.com api.dublin.ie1.twilio.com verify.sydney.au1.twilio.com",
        "discord": "discord.com canary.discord.com ptb.discord.com discordapp.com canary.discordapp.com",
        "slack": "slack.com hooks.slack.com files.slack.com wss-primary.slack.com acme.slack.com",
        "stripe": "api.stripe.com files.stripe.com connect.stripe.com meter-events.stripe.com",
    }.items():
        for host in hosts.split():
            assert at(policies, host) == [name], host
    for host in (
        "openai.com",
        "badapi.openai.com",
        "stripe.com",
        "evilslack.com",
        "xdiscord.com",
        "twilio.com",
    ):
        assert at(policies, host) == [], host


def test_a_file_with_an_address_of_its_own_does_not_take_over_its_presets_hosts(tmp_path: Path) -> None:
    """A server of one's own that speaks like another: it is at its own host, and the preset keeps its."""
    own = tmp_path / "own.yaml"
    own.write_text("upstream: own\nextends: openai\nbase_url: https://models.example.com\n")
    policies = load_policies(["presets", own])
    assert at(policies, "models.example.com") == ["own"]
    assert at(policies, "api.openai.com") == ["openai"]
    own.write_text("upstream: own\nextends: openai\n")
    assert at(load_policies(["presets", own]), "eu.api.openai.com") == ["own"]


def test_the_nearest_entry_counts(tmp_path: Path) -> None:
    """The host itself, then the longest ending; a wildcard is not its own ending."""
    policies = load(
        tmp_path / "p",
        "upstream: all\nbase_url: https://x.invalid\nhosts: ['*.example']\n",
        "upstream: some\nbase_url: https://y.invalid\nhosts: ['*.api.example', api.example]\n",
        "upstream: one\nbase_url: https://v1.api.example\n",
    )
    assert at(policies, "v1.api.example") == ["one"]
    assert at(policies, "v2.api.example") == at(policies, "a.b.api.example") == ["some"]
    assert at(policies, "api.example") == ["some"]
    assert at(policies, "www.example") == ["all"]
    assert at(policies, "example") == at(policies, "badexample") == []


def test_a_wildcard_inside_stands_for_one_part_of_the_name(tmp_path: Path) -> None:
    """AWS has the region there. What is nearer counts first: the host itself, then this, then an ending."""
    policies = load(
        tmp_path / "p",
        "upstream: sqs\nbase_url: https://sqs.us.aws.example\n"
        "hosts: ['sqs.*.aws.example', 'a.*.aws.example:9']\n",
        "upstream: rest\nbase_url: https://z.invalid\nhosts: ['*.aws.example']\n",
        "upstream: one\nbase_url: https://sqs.eu.aws.example\n",
    )
    assert at(policies, "sqs.us.aws.example") == at(policies, "sqs.ap-1.aws.example") == ["sqs"]
    assert at(policies, "sqs.eu.aws.example") == ["one"]
    assert at(policies, "a.us.aws.example", 9) == ["sqs"]
    for host in ("ses.us.aws.example", "sqs.aws.example", "sqs.a.b.aws.example", "x.sqs.us.aws.example"):
        assert at(policies, host) == ["rest"]
    assert at(policies, "sqs.us.aws.example.evil.example") == at(policies, "sqs..aws.example.com") == []


def test_one_host_named_by_two_upstreams_is_a_mistake(tmp_path: Path) -> None:
    """With the place of the second, and where the first is."""
    with pytest.raises(PolicyMistakes) as caught:
        load(
            tmp_path / "p",
            "upstream: one\nbase_url: https://one.example\nhosts: [a.example, 'b.example:443']\n",
            "upstream: two\nbase_url: https://two.example\nhosts:\n  - c.example\n  - b.example\n  - '*.d'\n",
            "upstream: three\nbase_url: https://three.example\nhosts: ['*.d']\n",
        )
    told = [str(mistake) for mistake in caught.value.mistakes]
    assert len(told) == 2
    assert told[0].startswith(f"{tmp_path}/p/1.yaml:5:5: the host b.example:443 belongs to")
    assert f"{tmp_path}/p/0.yaml:3:" in told[0]
    assert told[1].startswith(f"{tmp_path}/p/2.yaml:3:9: the host *.d:443 belongs to")


def test_a_later_source_takes_a_host_over(tmp_path: Path) -> None:
    """As it takes over a name."""
    for name in ("first", "second"):
        load(tmp_path / name, f"upstream: {name}\nbase_url: https://x.invalid\nhosts: [a.example]\n")
    sources = [tmp_path / "first", tmp_path / "second"]
    assert at(load_policies(sources), "a.example") == ["second"]
    assert at(load_policies(sources[::-1]), "a.example") == ["first"]


def reached(policies: PolicySet, path: str, host: str = "api.example") -> tuple[str, str, bool]:
    place = Place("https", host, 443)
    address, upstream = reach(policies, Unknown.DENY, UpstreamAddress("", path, None, place=place))
    assert address.upstream == upstream.name
    return upstream.name, address.raw_path, address.place is None


def test_upstreams_at_one_host_are_told_apart_by_their_paths_or_not_at_all(tmp_path: Path) -> None:
    """The longest base path that fits; where none does, or two do, nobody guesses whose rules apply."""
    policies = load(
        tmp_path / "p",
        "upstream: v1\nbase_url: https://api.example/v1\n",
        "upstream: eu\nbase_url: https://api.example/v1/eu\n",
        "upstream: same\nbase_url: https://twice.example\n",
        "upstream: again\nbase_url: https://twice.example\n",
    )
    assert reached(policies, "/v1/x") == ("v1", "/x", True)
    assert reached(policies, "/v1/eu/x") == ("eu", "/x", True)
    assert reached(policies, "/v1/europe") == ("v1", "/europe", True)
    for path, host in (("/v2/x", "api.example"), ("/v1", "api.example"), ("/x", "twice.example")):
        with pytest.raises(UnknownUpstream, match="several upstreams"):
            reached(policies, path, host)


def test_beside_the_base_url_the_place_stays(tmp_path: Path) -> None:
    """Another path, another host, another scheme: the call is named by where it goes."""
    policies = load(
        tmp_path / "p",
        "upstream: up\nbase_url: https://api.example/v1\nhosts: [api.example, files.example]\n",
    )
    assert reached(policies, "/v1/x") == ("up", "/x", True)
    assert reached(policies, "/v2/x") == ("up", "/v2/x", False)
    assert reached(policies, "/v1/x", "files.example") == ("up", "/v1/x", False)
    plain = UpstreamAddress("", "/v1/x", None, place=Place("http", "api.example", 443))
    assert reach(policies, Unknown.DENY, plain)[0].place is not None


def test_where_semel_itself_is() -> None:
    """Loopback by any name; every address of the machine where it listens on all of them."""
    own = OwnPlaces()
    own.listen_at([("127.0.0.1", 8080)])
    assert own.are("localhost", 8080)
    assert own.are("127.0.0.1", 8080)
    assert not own.are("localhost", 8081)
    assert not own.are("api.example", 8080)
    assert own.lie_at(("127.0.0.1", 8080), ("127.0.0.1", 5000))
    assert not own.lie_at(("10.0.0.1", 8080), ("10.0.0.2", 5000))
    own.listen_at([("0.0.0.0", 8080)])
    assert own.are("10.0.0.1", 8080, ("10.0.0.1", 8080)), "where this client found it"
    assert own.lie_at(("10.0.0.1", 8080), ("10.0.0.1", 5000))
    assert not own.lie_at(("10.0.0.1", 8080), ("10.0.0.2", 5000))
    assert not own.lie_at("/a/socket", "")
    own.listen_at([("10.0.0.1", 8080)])
    assert not own.are("localhost", 8080), "it does not listen there"
