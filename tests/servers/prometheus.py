"""A real Prometheus on a free port of loopback, in a directory of its own: what it has scraped stays until it
is ended, also when the proxies have ended before.

It starts synchronously, as the other servers do; what it is asked goes through the test's event loop, so that
upstreams of the test go on answering meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
import yaml

from tests.inside import call
from tests.servers.valkey import free_port

PROGRAM = Path("/usr/bin/prometheus")
START_SECONDS = 30.0
# Also how long a scrape may take. With all presets it takes a few hundredths of a second, and longer where
# other tests use the processor.
INTERVAL = 1.0
needs_prometheus = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not installed")


class Sample(NamedTuple):
    """One series at one time, by its labels without the name."""

    labels: Mapping[str, str]
    at: float
    value: float


class Refused(Exception):
    """Prometheus does not answer such a query; it says why."""


class Prometheus:
    """`token`: sent with every scrape, as the credentials of `Authorization: Bearer`."""

    def __init__(self, *, job: str = "semel", interval: float = INTERVAL, token: str = "") -> None:
        self.port = free_port()
        self.interval = interval
        self._job = job
        self._token = token
        self._directory = Path(tempfile.mkdtemp(prefix="prometheus-"))
        self._process: subprocess.Popen[bytes] | None = None

    # ---- its life ----

    def start(self, targets: Sequence[str]) -> None:
        """`host:port` each. The first scrape comes after some seconds: changes of targets are taken together,
        and these are the first."""
        (self._directory / "prometheus.yml").write_text(yaml.safe_dump(self._configuration(targets)))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(PROGRAM), f"--config.file={self._directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn",
                ],
                stdout=log,
                stderr=log,
            )  # fmt: skip
        self._await_ready()

    def _configuration(self, targets: Sequence[str]) -> dict[str, object]:
        spoken = f"{self.interval * 1000:.0f}ms"
        job: dict[str, object] = {
            "job_name": self._job,
            "static_configs": [{"targets": list(targets)}],
        }
        if self._token:
            job["authorization"] = {"type": "Bearer", "credentials": self._token}
        given = {"scrape_interval": spoken, "scrape_timeout": spoken, "evaluation_interval": spoken}
        return {"global": given, "scrape_configs": [job]}

    @property
    def _log(self) -> Path:
        return self._directory / "log"

    def _await_ready(self) -> None:
        until = time.monotonic() + START_SECONDS
        while not _is_ready(self.port):
            assert self._process is not None
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < until, f"Prometheus did not start\n{self._log.read_text()}"
            time.sleep(0.02)

    def remove(self) -> None:
        """Killed: what it has scraped is for nobody after the test."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        shutil.rmtree(self._directory, ignore_errors=True)

    # ---- what it knows ----

    async def query(self, expression: str, at: float | None = None) -> list[Sample]:
        """All series at one time. A scalar has no labels."""
        moment = {} if at is None else {"time": f"{at:.3f}"}
        found = await self._ask("query", query=expression, **moment)
        if found["resultType"] == "scalar":
            return [Sample({}, *_point(found["result"]))]
        return [Sample(_labels(one), *_point(one["value"])) for one in found["result"]]

    async def query_range(self, expression: str, start: float, end: float, step: float) -> list[Sample]:
        """All samples of all series, those of a series in the order of time."""
        bounds = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        found = await self._ask("query_range", query=expression, **bounds)
        return [
            Sample(_labels(one), *_point(point)) for one in found["result"] for point in one["values"]
        ]  # fmt: skip

    async def value(self, expression: str, at: float | None = None) -> float | None:
        """Of a query that gives one series; None where it gives none."""
        found = await self.query(expression, at)
        assert len(found) < 2, f"{expression} gives {len(found)} series"
        return found[0].value if found else None

    async def wait_for(
        self, expression: str, met: Callable[[list[Sample]], object], *, within: float = 30
    ) -> list[Sample]:
        """Until what is scraped is so; otherwise the failure shows what it was at last."""
        found: list[Sample] = []
        try:
            async with asyncio.timeout(within):
                while not met(found := await self.query(expression)):
                    await asyncio.sleep(self.interval / 5)
        except TimeoutError:
            raise AssertionError(f"{expression} is still {found}\n{self._log.read_text()}") from None
        return found

    async def last_scrape(self, selector: str) -> float:
        """When the newest sample of these series was taken."""
        return max(one.value for one in await self.query(f"timestamp({selector})"))

    async def names(self) -> list[str]:
        """Of all metrics."""
        got = await call(self.port, "GET", "/api/v1/label/__name__/values")
        found: list[str] = json.loads(got.body)["data"]
        return found

    async def _ask(self, what: str, **given: str) -> dict[str, Any]:
        form = urlencode(given).encode()
        header = {"Content-Type": "application/x-www-form-urlencoded"}
        got = await call(self.port, "POST", f"/api/v1/{what}", header, form)
        told = json.loads(got.body)
        if told["status"] != "success":
            raise Refused(f"{given['query']}: {told['error']}")
        data: dict[str, Any] = told["data"]
        return data


@contextlib.contextmanager
def prometheus(
    targets: Sequence[str], *, token: str = "", interval: float = INTERVAL
) -> Iterator[Prometheus]:
    """One that runs, and is gone afterwards."""
    server = Prometheus(token=token, interval=interval)
    try:
        server.start(targets)
        yield server
    finally:
        server.remove()


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/-/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _labels(series: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in series["metric"].items() if name != "__name__"}


def _point(told: Sequence[Any]) -> tuple[float, float]:
    return float(told[0]), float(told[1])
