"""What the proxy knows of a run, for the summary; and the mark that a run is complete.

`GET /_semel/runs/{run}` and `POST /_semel/runs/{run}/complete`. Nothing here may fail an agent: a proxy
without that API, a token that may not ask, a proxy that is gone all lead to a summary without figures.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from proxy.cli.run_proxy import connect

NOTHING_RECORDED = "no call of this run is on record"

PATIENCE = 10.0
LARGEST = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFigures:
    name: str
    replayed: int = 0
    executed: int = 0
    joined: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What is not told is zero or empty: figures are for people, and a newer proxy may tell more."""

    run: str
    state: str = "open"  # open | complete | expired
    steps: int = 0
    attempts: tuple[AttemptFigures, ...] = ()
    in_doubt: tuple[str, ...] = ()  # ids of calls
    awaiting_approval: tuple[str, ...] = ()
    diverged: int = 0
    unlisted: tuple[str, ...] = ()  # hosts
    saved_usd: float = 0.0
    saved_seconds: float = 0.0

    def of(self, attempt: str) -> AttemptFigures:
        """An attempt that has made no call is not known to the proxy."""
        found = (one for one in self.attempts if one.name == attempt)
        return next(found, AttemptFigures(name=attempt))


class Figures(Protocol):
    def of_run(self, run: str) -> RunFigures | None:
        """None: not to be had. A run that nobody has used yet is open and empty."""
        ...

    def complete(self, run: str, attempt: str) -> bool:
        """Mark it; whether that was done."""
        ...


class ProxyFigures:
    """`why` says what kept the figures back the last time that they were asked for."""

    def __init__(self, url: str, token: str = "") -> None:
        self._url, self._token = urlsplit(url), token
        self.why = ""

    def of_run(self, run: str) -> RunFigures | None:
        document = self._ask("GET", f"/_semel/runs/{quote(run, safe='')}")
        return None if document is None else read_figures(run, document)

    def complete(self, run: str, attempt: str) -> bool:
        said = {"attempt": attempt}
        return self._ask("POST", f"/_semel/runs/{quote(run, safe='')}/complete", said) is not None

    def _ask(self, method: str, path: str, said: Mapping[str, str] | None = None) -> dict[str, Any] | None:
        headers = {"Accept": "application/json", "Connection": "close"}
        if said is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Semel-Token"] = self._token
        body = None if said is None else json.dumps(said).encode()
        connection = connect(self._url, PATIENCE)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read(LARGEST)
        except (OSError, http.client.HTTPException) as error:
            self.why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return None
        finally:
            connection.close()
        return self._document(response.status, content)

    def _document(self, status: int, content: bytes) -> dict[str, Any] | None:
        if status not in (200, 204):
            self.why = _REASONS.get(status, f"the proxy answers {status}")
            return None
        try:
            document = json.loads(content or b"{}")
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            self.why = "the proxy's answer is not understood"
            return None
        return document


_REASONS = {
    401: "the proxy wants a token (--token, SEMEL_TOKEN)",
    403: "the proxy does not tell them to this token",
    404: NOTHING_RECORDED,
}


def read_figures(run: str, document: Mapping[str, Any]) -> RunFigures:
    return RunFigures(
        run=run,
        state=_text(document.get("state")) or "open",
        steps=_whole(document.get("steps")),
        attempts=tuple(
            AttemptFigures(
                name=_text(one.get("name")),
                **{key: _whole(one.get(key)) for key in ("replayed", "executed", "joined", "refused")},
            )
            for one in _list(document.get("attempts"))
            if isinstance(one, dict)
        ),
        in_doubt=_texts(document.get("in_doubt")),
        awaiting_approval=_texts(document.get("awaiting_approval")),
        diverged=_whole(document.get("diverged")),
        unlisted=_texts(document.get("unlisted")),
        saved_usd=_number(document.get("saved_usd")),
        saved_seconds=_number(document.get("saved_seconds")),
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    return tuple(one for one in _list(value) if isinstance(one, str))


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def _whole(value: object) -> int:
    """A count; of a list, how many are in it."""
    return len(value) if isinstance(value, list) else int(_number(value))
