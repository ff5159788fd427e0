"""The SDKs that agents use: is it installed here, and what points it at semel.

Facts about SDKs change with their versions; these are the documented variables and arguments. What needs the
forward proxy says so, because that is not there yet.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.core.policy import Upstream

PLACEHOLDER = "UPSTREAM"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sdk:
    """`set`: the variable or the code, with {url}. Without a host it is a client for any API."""

    name: str
    set: str
    host: str = ""
    path: str = ""  # what the SDK expects in its base URL
    variable: str = ""
    note: str = ""


SDKS = (
    Sdk(
        name="openai",
        host="api.openai.com",
        path="/v1",
        variable="OPENAI_BASE_URL",
        set="OPENAI_BASE_URL={url}",
    ),
    Sdk(
        name="anthropic",
        host="api.anthropic.com",
        variable="ANTHROPIC_BASE_URL",
        set="ANTHROPIC_BASE_URL={url}",
    ),
    Sdk(
        name="stripe",
        host="api.stripe.com",
        set='StripeClient(key, base_addresses={{"api": "{url}"}})',
        note="without a client object, set stripe.api_base",
    ),
    Sdk(
        name="boto3",
        variable="AWS_ENDPOINT_URL",
        set="AWS_ENDPOINT_URL={url}",
        note="only for servers that do not check signatures; AWS does, with host and path, so there "
        "HTTPS_PROXY is the way (`semel run` sets it)",
    ),
    Sdk(name="resend", host="api.resend.com", set='resend.api_url = "{url}"'),
    Sdk(name="twilio", host="api.twilio.com", set='client.api.base_url = "{url}"'),
    Sdk(name="sendgrid", host="api.sendgrid.com", set='SendGridAPIClient(key, host="{url}")'),
    Sdk(name="httpx", set='httpx.Client(base_url="{url}")'),
    Sdk(
        name="requests", set='requests.post("{url}/...")', note="it has no base URL: write it into the calls"
    ),
    Sdk(name="aiohttp", set='aiohttp.ClientSession(base_url="{url}/")'),
    Sdk(
        name="node",
        set='baseURL: "{url}"',
        note="its openai and anthropic packages read OPENAI_BASE_URL and ANTHROPIC_BASE_URL, too",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    sdk: str
    host: str | None  # of its API; None: a client for any
    installed: str | None  # its version, or where it is
    upstream: str | None  # the configured upstream that is its API
    set: str
    note: str

    @property
    def is_of_use(self) -> bool:
        """Not an SDK for an API that nobody has configured here."""
        return self.host is None or self.upstream is not None


def version_of(name: str) -> str | None:
    if name == "node":
        return shutil.which("node")
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def advice(
    proxy: str,
    upstreams: Iterable[Upstream],
    environ: Mapping[str, str] = os.environ,
    installed: Callable[[str], str | None] = version_of,
) -> list[Advice]:
    """For every SDK in the table. `proxy` is the proxy's URL."""
    by_host = {upstream.host: upstream for upstream in upstreams}
    return [_advice(sdk, proxy.rstrip("/"), by_host.get(sdk.host), environ, installed) for sdk in SDKS]


def base_urls(proxy: str, upstreams: Iterable[Upstream]) -> dict[str, str]:
    """Variables that point an SDK at semel, where a configured upstream is its API. Not AWS's: it checks
    signatures over host and path."""
    by_host = {upstream.host: upstream for upstream in upstreams}
    known = [sdk for sdk in SDKS if sdk.variable and sdk.host in by_host]
    return {sdk.variable: _url(sdk, proxy.rstrip("/"), by_host[sdk.host]) for sdk in known}


def _url(sdk: Sdk, proxy: str, upstream: Upstream | None) -> str:
    if upstream is None:
        return f"{proxy}/{PLACEHOLDER}{sdk.path}"
    return f"{proxy}/{upstream.name}{sdk.path.removeprefix(upstream.base_path)}"


def _advice(
    sdk: Sdk,
    proxy: str,
    upstream: Upstream | None,
    environ: Mapping[str, str],
    installed: Callable[[str], str | None],
) -> Advice:
    url = _url(sdk, proxy, upstream)
    notes = [sdk.note] if sdk.note else []
    if sdk.host and upstream is None:
        notes.append(f"no upstream is configured for https://{sdk.host} yet")
    # The value itself is not shown: a URL may hold a password.
    if (value := environ.get(sdk.variable)) and value.rstrip("/") != url:
        notes.append(f"{sdk.variable} is set to something else now")
    return Advice(
        sdk=sdk.name,
        host=sdk.host or None,
        installed=installed(sdk.name),
        upstream=upstream.name if upstream else None,
        set=sdk.set.format(url=url),
        note="; ".join(notes),
    )
