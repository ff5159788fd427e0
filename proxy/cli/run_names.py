"""Names of runs and attempts: short, sortable by time, never the same twice; and the addresses made of them.

An attempt's name must differ at every start of the agent: a constant one would make every restart send again.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from proxy.errors import BadRequest, ConfigurationError

# Some clients (Node's, boto3) send no proxy user at all when the password is empty. Where there are no tokens
# nobody looks at it.
NO_TOKEN = "-"  # noqa: S105 (the opposite of one)


def new_run(now: datetime) -> str:
    return f"run-{now.astimezone(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def new_attempt(now: datetime) -> str:
    now = now.astimezone(UTC)
    return f"{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03d}-{secrets.token_hex(3)}"


def given_run(name: str) -> str:
    from proxy.front.run_ref import check_run

    try:
        return check_run(name)
    except BadRequest as error:
        raise ConfigurationError(f"--id: {error.detail}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where a proxy is, for one attempt."""

    proxy: str  # its URL, without a slash at the end
    run: str
    attempt: str
    token: str = ""

    @property
    def reference(self) -> str:
        return f"{self.run}+{self.attempt}"

    @property
    def base(self) -> str:
        """For clients with a base URL: an upstream's name follows."""
        token = f":{quote(self.token, safe='')}" if self.token else ""
        return f"{self.proxy}/@{self.reference}{token}"

    @property
    def forward(self) -> str:
        """For HTTP_PROXY. The run stands in the user's place."""
        parts = urlsplit(self.proxy)
        return f"{parts.scheme}://{self.reference}:{quote(self.token or NO_TOKEN, safe='')}@{parts.netloc}"

    @property
    def host_and_port(self) -> str:
        return urlsplit(self.proxy).netloc
