"""Secrets go upstream and nowhere else: what may be one is not in the record."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ambient
from tests.http.numbered import place

pytestmark = pytest.mark.usefixtures("some_store")

SECRET = [
    "Authorization",
    "Cookie",
    "X-Api-Key",
    "X-Amz-Security-Token",
    "X-Auth-Token",
    "x-auth-key",
    "Private-Token",
    "X-Vault-Token",
    "X-Access-Token",
    "X-CSRF-Token",
    "X-XSRF-TOKEN",
    "X-ApiKey",
    "X-Client-Secret",
    "X-Password",
    "X-Amz-Credential",
    "X-Forwarded-Authorization",
    "X-Session-Id",
    "X-Signature",
    "Ocp-Apim-Subscription-Key",
    "X-Shop",
]
KEPT = ["Idempotency-Key", "X-Request-Id", "X-Monkey", "X-Author", "Accept"]


@pytest.mark.parametrize("name", SECRET + KEPT)
async def test_what_may_be_a_secret_is_sent_and_not_stored(tmp_path: Path, name: str) -> None:
    """Of the rest nothing is left out: a resend needs it."""
    value = "value-of-this-header"
    async with place(tmp_path, credentials="[x-shop]") as there:
        assert (await there.post(headers={name: value})).semel == "executed"
        sent = [(header.decode(), said.decode()) for header, said in there.origin.requests[0].headers]
        assert (name, value) in sent
    stored = value.encode() in await ambient.everything_in(tmp_path / "state")
    assert stored is (name in KEPT)


async def test_a_fresh_session_token_does_not_make_another_call(tmp_path: Path) -> None:
    """What is left out of the record is not what tells callers apart."""
    async with place(tmp_path) as there:
        results = [await there.post(headers={"X-Amz-Security-Token": token}) for token in ("one", "two")]
        assert [one.semel for one in results] == ["executed", "replayed"]
