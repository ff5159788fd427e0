"""The agent's environment: what makes the usual clients go through semel, without a change in its code.

Three ways lead there, and a client takes the first that it knows: a base URL of its own SDK, HTTP_PROXY and
HTTPS_PROXY (with a certificate that it must trust), and SEMEL_URL for whoever writes code for it. What a
person has set is kept where semel can still do its work, and told where it cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib import request

from proxy.cli.run_names import Addresses
from proxy.cli.sdks import base_urls
from proxy.store.keyring import VARIABLE as KEY_VARIABLE

if TYPE_CHECKING:
    from proxy.core.policy import Upstream

_bypasses = request.proxy_bypass_environment  # type: ignore[attr-defined] # public, and typeshed lacks it
# Lower case as well: curl reads http_proxy only so, and whoever has set both means both.
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
EXCEPTIONS = ("NO_PROXY", "no_proxy")
# Servers of the agent's own machine (databases, tools, browsers) have ports that change from start to start,
# so their calls would not be found again. A policy that names one of these hosts asks for it all the same.
LOOPBACK = ("localhost", "127.0.0.1", "::1")
SWITCHES = {"NODE_USE_ENV_PROXY": "1"}  # without it Node ignores HTTPS_PROXY


def environment(
    given: Mapping[str, str],
    addresses: Addresses,
    trust: Mapping[str, str],
    upstreams: Iterable[Upstream],
) -> tuple[dict[str, str], list[str]]:
    """And what a person should know about it. `trust`: files of certificates, by their variables."""
    upstreams = list(upstreams)
    exceptions = ",".join(_exceptions(given, addresses, upstreams))
    base, kept = _base_urls(given, addresses, upstreams)
    made = {
        **{name: value for name, value in given.items() if name != KEY_VARIABLE},
        **dict.fromkeys(PROXIES, addresses.forward),
        **dict.fromkeys(EXCEPTIONS, exceptions),
        **SWITCHES,
        **trust,
        **base,
        "SEMEL_RUN": addresses.run,
        "SEMEL_ATTEMPT": addresses.attempt,
        "SEMEL_URL": addresses.base,
    }
    if addresses.token:
        made["SEMEL_TOKEN"] = addresses.token
    return made, [*kept, *_replaced_proxy(given), *_past_semel(exceptions, upstreams)]


def _base_urls(
    given: Mapping[str, str], addresses: Addresses, upstreams: list[Upstream]
) -> tuple[dict[str, str], list[str]]:
    made, notes = {}, []
    outer = given.get("SEMEL_URL")
    for variable, url in base_urls(addresses.base, upstreams).items():
        before = given.get(variable)
        # A `semel run` around this one has set it, and the inner one is asked to record.
        if not before or (outer and before.startswith(outer)):
            made[variable] = url
        else:
            notes.append(f"{variable} is set already and stays; its calls go through HTTP_PROXY, if at all.")
    return made, notes


def _exceptions(given: Mapping[str, str], addresses: Addresses, upstreams: list[Upstream]) -> list[str]:
    """What is reached without the proxy: what the person says, semel itself, and loopback unless a policy
    names it. Some clients do not understand a port here: they reach semel through semel, which it allows."""
    said = given.get("NO_PROXY") or given.get("no_proxy") or ""
    entries = [entry.strip() for entry in said.split(",")]
    wanted = any(is_loopback(upstream.host) for upstream in upstreams)
    entries += [addresses.host_and_port] if wanted else [addresses.host_and_port, *LOOPBACK]
    return list(dict.fromkeys(filter(None, entries)))


def _replaced_proxy(given: Mapping[str, str]) -> list[str]:
    """The values are not shown: they may hold a password."""
    names = [name for name in PROXIES if given.get(name)]
    if not names or given.get("SEMEL_URL"):
        return []
    told = f"{' and '.join(names)} named another proxy: the agent goes through semel now, and semel connects"
    return [f"{told} to the upstreams directly."]


def _past_semel(exceptions: str, upstreams: list[Upstream]) -> list[str]:
    """An upstream that the person's NO_PROXY leaves out is not recorded."""
    missed = sorted(
        {
            upstream.host
            for upstream in upstreams
            if _bypasses(f"{upstream.host}:{upstream.port}", {"no": exceptions})
        }
    )
    if not missed:
        return []
    return [f"NO_PROXY keeps {', '.join(missed)} away from HTTP_PROXY: these calls are not recorded."]


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
