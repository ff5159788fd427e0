"""`notify` in semel.yaml: whom to tell, of what, and for how long to try."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import unquote, urlsplit

from proxy.core.policy import DEFAULT_PORTS
from proxy.policy_file import names
from proxy.policy_file.fields import Field, Level
from proxy.policy_file.values import base_url, choice, duration, host_and_port, list_of, text

SECRET_VARIABLE = "SEMEL_NOTIFY_SECRET"  # noqa: S105 (the name of a variable)
_VISIBLE = re.compile(r"[\x21-\x7e]+")


class Kind(StrEnum):
    """What is told. The first two are states of a call; `diverged` is an answer."""

    IN_DOUBT = "in_doubt"
    AWAITING_APPROVAL = "awaiting_approval"
    DIVERGED = "diverged"


@dataclass(frozen=True, slots=True)
class HookUrl:
    """Only the first three are ever shown: the rest may be the secret of whoever receives."""

    scheme: str
    host: str
    port: int
    target: str = field(repr=False)
    user: str = field(default="", repr=False)  # user:password

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    url: HookUrl
    secret_env: str = SECRET_VARIABLE
    events: tuple[Kind, ...] = tuple(Kind)
    timeout: float = 10.0
    give_up_after: float = 86400.0
    public_url: str = ""


def hook_url(given: str) -> HookUrl:
    """Nothing of it is repeated in a message but its host."""
    if not _VISIBLE.fullmatch(given):
        raise ValueError("an address has no blanks and only ASCII characters: percent-encode the others")
    if not re.match(r"https?://", given):
        raise ValueError("the address does not start with http:// or https://")
    if "#" in given:
        raise ValueError("the address has a #, and what follows is never sent: remove it")
    parts = urlsplit(given)
    user, at, place = parts.netloc.rpartition("@")
    host, port = host_and_port(place, DEFAULT_PORTS[parts.scheme])
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return HookUrl(parts.scheme, host, port, target, unquote(user) if at else "")


def public_url(given: str) -> str:
    base_url(given)
    return given.rstrip("/")


NOTIFY = Level(
    name="notify",
    doc="Whom to tell when a call needs a person.",
    fields=(
        Field("url", "Where to POST, http:// or https://.", required=True, parse=text(hook_url)),
        Field(
            "secret_env",
            "The environment variable that holds the secret to sign with, as whsec_….",
            default=SECRET_VARIABLE,
            parse=text(names.variable),
        ),
        Field(
            "events",
            "What is told.",
            default="[in_doubt, awaiting_approval, diverged]",
            parse=list_of(choice(Kind)),
        ),
        Field("timeout", "How long one POST may take.", default="10s", parse=duration()),
        Field("give_up_after", "How long one notification is tried.", default="24h", parse=duration()),
        Field(
            "public_url",
            "How people reach this semel, for the links. Default: where it listens.",
            parse=text(public_url),
        ),
    ),
    checks=(),
    not_yet=frozenset(),
)


def build_notify(**values: object) -> Notify:
    """A key that was not given, or given as null, is as by default."""
    return Notify(**{key: value for key, value in values.items() if value is not None})  # type: ignore[arg-type]
