"""Further cases of Stripe: numbers in other spellings, secrets that are passed on, what v2 holds."""

from __future__ import annotations

from collections.abc import Iterator

from tests.presets.cases import Asked, Case, Told

BROKEN = Told(status=500, json={"error": {"type": "api_error", "message": "An unknown error occurred"}})
MADE = Told(json={"id": "x_1"})
ONE, OTHER = "4242424242424242", "4000056655665556"
AMOUNT = (("amount", "1099"), ("currency", "usd"))


def spelled_otherwise() -> Iterator[Case]:
    """In the query beside a form, in JSON, as a list. Another number is another call."""

    def in_query(number: str) -> Asked:
        return Asked(path=f"/v1/charges?source[number]={number}", form=AMOUNT)

    def in_form(number: str) -> Asked:
        return Asked(path="/v1/charges", form=(*AMOUNT, ("source[card][number][]", number)))

    def in_json(number: str) -> Asked:
        return Asked(path="/v1/charges", json={"amount": 1099, "source": {"number": number}})

    for spelled in (in_query, in_form, in_json):
        yield Case(
            rule="raw-numbers",
            request=spelled(ONE),
            answer=MADE,
            alike=(spelled(ONE).but(headers={"Idempotency-Key": "minted"}),),
            different=(spelled(OTHER),),
            doubtful=(BROKEN,),
        )
    # No number: whatever else ends alike is sent again under its key.
    yield Case(
        rule="charge",
        request=Asked(
            path="/v1/charges?expand[]=customer", form=(*AMOUNT, ("shipping[tracking_number]", "1Z"))
        ),
        answer=MADE,
        key="header Idempotency-Key",
    )


def secrets() -> Iterator[Case]:
    for rule, path in (
        ("secret", "/v1/ephemeral_keys"),
        ("secret", "/v1/account_sessions"),
        ("secret", "/v1/customer_sessions"),
        ("secret", "/v1/account_links"),
        ("terminal-token", "/v1/terminal/connection_tokens"),
        ("login-link", "/v1/accounts/acct_1/login_links"),
        ("portal-session", "/v1/billing_portal/sessions"),
        ("v2-secret", "/v2/billing/meter_event_session"),
        ("v2-secret", "/v2/core/account_links"),
    ):
        yield Case(rule=rule, request=Asked(path=path), answer=Told(json={"secret": "s"}), recorded=False)


def v2_held() -> Iterator[Case]:
    def bank(number: str) -> Asked:
        return Asked(path="/v2/core/vault/us_bank_accounts", json={"account_number": number})

    yield Case(
        rule="v2-numbers",
        request=bank("000123456789"),
        answer=MADE,
        alike=(bank("000123456789").but(headers={"Idempotency-Key": "minted"}),),
        different=(bank("000999999991"),),
        doubtful=(BROKEN,),
    )

    def usage(value: str) -> Asked:
        event = {"event_name": "tokens", "payload": {"stripe_customer_id": "cus_1", "value": value}}
        return Asked(path="/v2/billing/meter_event_stream", json={"events": [event]})

    yield Case(
        rule="meter-events",
        request=usage("25"),
        answer=Told(text=""),
        alike=(usage("25").but(headers={"Idempotency-Key": "minted", "Authorization": "Bearer renewed"}),),
        different=(usage("26"),),
        doubtful=(BROKEN,),
    )
