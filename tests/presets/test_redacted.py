"""What presets keep out of the record: numbers of cards and accounts, tokens of users, in every spelling."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

from tests import ambient
from tests.inside import call, semel
from tests.presets.api import CASE, Api, new_case
from tests.presets.cases import Asked, Json, Told

# The secret goes in, the request comes out. `KEPT` stands beside it: it shows that the record was looked at.
Making = Callable[[str], Asked]
KEPT = "this-is-kept"


def form(path: str, name: str) -> Making:
    return lambda secret: Asked(path=path, form=((name, secret), ("description", KEPT)))


def query(path: str, name: str) -> Making:
    """Beside a form that says nothing of it."""
    return lambda secret: Asked(
        path=f"{path}?{urlencode({name: secret})}", form=(("amount", "1099"), ("description", KEPT))
    )


def query_alone(path: str, name: str) -> Making:
    return lambda secret: Asked(path=f"{path}?{urlencode({name: secret, 'description': KEPT})}")


def nested(path: str, *steps: str) -> Making:
    """As JSON; a step `[]` is a list."""

    def asked(secret: str) -> Asked:
        node: Json = secret
        for step in reversed(steps):
            node = [node] if step == "[]" else {step: node}
        return Asked(path=path, json={**node, "description": KEPT})

    return asked


STRIPE = [
    form("/v1/charges", "source[number]"),
    form("/v1/charges", "source[number][]"),
    form("/v1/charges", "source[card][number]"),
    form("/v1/charges", "card[number]"),
    form("/v1/payment_intents", "payment_method_data[card][number]"),
    form("/v1/payment_intents", "payment_method_data[card][cvc]"),
    form(
        "/v1/treasury/outbound_payments", "destination_payment_method_data[us_bank_account][account_number]"
    ),
    query("/v1/charges", "source[number]"),
    query("/v1/charges", "source[number][]"),
    query("/v1/charges", "source[card][number]"),
    query("/v1/charges", "card[number]"),
    query("/v1/payment_intents/pi_1/confirm", "payment_method_data[card][number]"),
    query("/v1/accounts/acct_1/persons", "id_number"),
    query("/v1/tokens", "card[number]"),
    query("/v1/payment_methods", "card[number]"),
    query_alone("/v1/charges", "source[number]"),
    nested("/v1/charges", "source", "number"),
    nested("/v1/charges", "source", "card", "number"),
    nested("/v1/charges", "source[number]"),
    nested("/v1/charges", "card", "number"),
    nested("/v1/charges", "card", "cvc"),
    nested("/v1/payment_intents", "payment_method_data", "card", "number"),
    nested("/v1/payment_intents", "payment_method_data", "sepa_debit", "iban"),
    nested("/v1/accounts", "external_account", "account_number"),
    nested("/v1/accounts", "individual", "id_number"),
    nested("/v1/tokens", "card", "number"),
    nested("/v1/tokens", "account", "individual", "ssn_last_4"),
    nested("/v1/payment_methods", "us_bank_account", "account_number"),
    nested("/v2/core/vault/us_bank_accounts", "account_number"),
    nested("/v2/core/vault/gb_bank_accounts", "iban"),
    nested("/v2/core/accounts", "identity", "individual", "id_numbers", "[]", "value"),
    nested("/v2/core/accounts", "identity", "business_details", "id_numbers", "[]", "value"),
    nested("/v2/core/accounts/acct_1/persons", "id_numbers", "[]", "value"),
    nested("/v2/core/account_tokens", "identity", "individual", "id_numbers", "[]", "value"),
    nested(
        "/v2/money_management/outbound_setup_intents", "payout_method_data", "bank_account", "account_number"
    ),
]
MODELS: dict[str, list[Making]] = {
    "openai": [
        lambda secret: Asked(
            path="/v1/responses",
            json={
                "input": KEPT,
                "tools": [{"type": "mcp", "authorization": secret, "headers": {"X": secret}}],
            },
        )
    ],
    "anthropic": [
        lambda secret: Asked(
            path="/v1/messages", json={"system": KEPT, "mcp_servers": [{"authorization_token": secret}]}
        ),
        lambda secret: Asked(
            path="/v1/sessions", json={"title": KEPT, "resources": [{"authorization_token": secret}]}
        ),
        lambda secret: Asked(
            path="/v1/sessions",
            json={"title": KEPT, "initial_events": [{}], "resources": [{"authorization_token": secret}]},
        ),
    ],
    "slack": [nested("/api/assistant.search.context", "action_token")],
}


async def test_it_reaches_the_api_and_not_the_files(tmp_path: Path) -> None:
    """In a run, where reads are recorded too."""
    asks = [("stripe", making) for making in STRIPE]
    asks += [(name, making) for name, makings in MODELS.items() for making in makings]
    secrets = [f"42424242{number:08}" for number in range(len(asks))]
    async with Api() as api:
        policies = api.policies(tmp_path / "presets", ["stripe", *MODELS])
        async with semel(tmp_path, "upstream: none\nbase_url: http://127.0.0.1:1\n", store=ambient.EMBEDDED,
                         settings={"policies": [str(policies)]}) as app:  # fmt: skip
            for (preset, making), secret in zip(asks, secrets, strict=True):
                case, asked = new_case(), making(secret)
                api.answers[case].append(Told(json={"ok": True}))
                headers = {**asked.all_headers, CASE: case}
                target = f"/@{case}+one/{preset}{asked.path}"
                answer = await call(app.address.port, "POST", target, headers, asked.body)
                assert (answer.status, answer.semel) == (200, "executed")
                [received] = api.received[case]
                assert secret in received.target or secret in json.dumps(received.body.decode())
    files = [path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()]
    kept = b"".join(files)
    assert kept.count(KEPT.encode()) >= len(asks)
    leaked = [f"{preset} {making(secret).path} {making(secret).body!r}"
              for (preset, making), secret in zip(asks, secrets, strict=True)
              if secret.encode() in kept]  # fmt: skip
    assert not leaked
