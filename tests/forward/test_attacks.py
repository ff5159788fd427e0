"""Attacks through the front: effects that go around the record, semel's own address in another spelling."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.front.address import parse_authority
from proxy.front.forwarded import OwnPlaces
from tests.forward.scene import scene
from tests.inside import call
from tests.origin import OK, run_on

pytestmark = pytest.mark.usefixtures("forward_store")

EFFECTS = "rules:\n  - {name: fire, match: {method: GET, path: /fire}, mode: once, safe: false}\n"
WISH = {"Connection": "Upgrade", "Upgrade": "websocket"}


@pytest.mark.parametrize("where", ["/up/fire", "/@run+one/up/fire"])
def test_a_get_with_effects_is_not_passed_as_an_upgrade(tmp_path: Path, where: str) -> None:
    """A rule says that this GET has effects: a wish for another protocol does not send it twice."""

    async def scenario() -> None:
        async with scene(tmp_path, OK, OK, tls=False, more=EFFECTS) as there:
            await call(there.port, "GET", where, WISH)
            await call(there.port, "GET", where.replace("one", "two"), WISH)
            assert there.origin.started == 1

    run_on("asyncio", scenario())


def test_semel_knows_itself_in_ipv6_spelling() -> None:
    """`[::ffff:127.0.0.1]` is 127.0.0.1: what names it names semel itself."""
    own = OwnPlaces()
    own.listen_at([("127.0.0.1", 8080)])
    assert own.are(*parse_authority("[::ffff:127.0.0.1]:8080"))
    assert own.lie_at(("::ffff:127.0.0.1", 8080, 0, 0), ("::ffff:127.0.0.1", 40000, 0, 0))
