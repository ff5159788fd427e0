"""Stripe. Shapes as in https://docs.stripe.com/api; errors as in https://docs.stripe.com/api/errors and
https://docs.stripe.com/error-codes."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Json, Told
from tests.presets.scenarios._stripe_more import secrets, spelled_otherwise, v2_held

SDK = {
    "Authorization": "Bearer sk_test_one",
    "Idempotency-Key": "0a7b9c1e-6f0d-4a52-9d0e-3f1f5f3c7a11",
    "Stripe-Version": "2026-09-30.dahlia",
    "X-Stripe-Client-User-Agent": '{"lang": "python"}',
}
# As the SDK would send it after a crash, or as another version of it.
NEWLY = {
    "Authorization": "Bearer sk_test_rolled",
    "Idempotency-Key": "5f3c7a11-9d0e-4a52-6f0d-0a7b9c1e3f1f",
    "Stripe-Version": "2026-11-15.dahlia",
    "X-Stripe-Client-Telemetry": '{"last_request_metrics": {"request_id": "req_1"}}',
}
CONNECTED = {"Stripe-Account": "acct_1032D82eZvKYlo2C"}
CONTEXT = {"Stripe-Context": "acct_1032D82eZvKYlo2C"}
KEY = "header Idempotency-Key"


def error(status: int, kind: str, message: str, **more: str) -> Told:
    return Told(status=status, json={"error": {"type": kind, "message": message, **more}})


# https://docs.stripe.com/declines/codes
DECLINED = error(
    402,
    "card_error",
    "Your card was declined.",
    code="card_declined",
    decline_code="generic_decline",
    charge="ch_3OqY8e2eZvKYlo2C0000001",
)
# https://docs.stripe.com/rate-limits
LOCKED = error(
    429,
    "invalid_request_error",
    "This object cannot be accessed right now because another API request or Stripe process is currently "
    "accessing it.",
    code="lock_timeout",
)
# https://github.com/stripe/stripe-ruby/issues/503
OTHER_REQUEST = error(
    400,
    "idempotency_error",
    "Keys for idempotent requests can only be used with the same parameters they were first used with. Try "
    "using a key other than 'k' if you meant to execute a different request.",
)
# https://github.com/stripe/stripe-ruby/issues/431; of which type it is, nobody promises.
RUNNING = error(
    409,
    "idempotency_error",
    "There is currently another in-progress request using this Idempotent Key (that probably means you "
    "submitted twice, and the other request is still going through): k. Please try again later.",
    code="idempotency_key_in_use",
)
STILL_RUNNING = error(
    409, "invalid_request_error", "There is currently another in-progress request using this Idempotent Key."
)
BROKEN = error(500, "api_error", "An unknown error occurred")
MISSING = error(
    400, "invalid_request_error", "Missing required param: amount.", code="parameter_missing", param="amount"
)
NOWHERE = error(404, "invalid_request_error", "No such payment_intent: 'pi_1'", code="resource_missing")


def post(path: str, *pairs: tuple[str, str]) -> Asked:
    return Asked(path=path, form=pairs, headers=SDK)


def v1(rule: str, request: Asked, answer: Json, *different: Asked) -> Case:
    """What holds for every POST of v1."""
    return Case(
        rule=rule,
        request=request,
        answer=Told(json=answer, headers={"Request-Id": "req_1"}),
        alike=(request.but(headers=NEWLY),),
        different=(request.but(headers=CONNECTED), request.but(headers=CONTEXT), *different),
        refused=(DECLINED, LOCKED),
        doubtful=(RUNNING, STILL_RUNNING, BROKEN),
        mismatch=(OTHER_REQUEST,),
        final=(MISSING, NOWHERE),
        key=KEY,
    )


INTENT = post(
    "/v1/payment_intents",
    ("amount", "2000"),
    ("currency", "usd"),
    ("automatic_payment_methods[enabled]", "true"),
    ("confirm", "true"),
    ("payment_method", "pm_card_visa"),
)
CONFIRM = post("/v1/payment_intents/pi_1/confirm", ("payment_method", "pm_card_visa"))
CHARGE = post("/v1/charges", ("amount", "1099"), ("currency", "usd"), ("source", "tok_visa"))
REFUND = post("/v1/refunds", ("payment_intent", "pi_1"), ("amount", "500"))
SUBSCRIPTION = post("/v1/subscriptions", ("customer", "cus_1"), ("items[0][price]", "price_1"))
SESSION = post(
    "/v1/checkout/sessions",
    ("success_url", "https://example.com/success"),
    ("line_items[0][price]", "price_1"),
    ("line_items[0][quantity]", "2"),
    ("mode", "payment"),
    ("expires_at", "1794910000"),
)
TRANSFER = post("/v1/transfers", ("amount", "400"), ("currency", "usd"), ("destination", "acct_1"))
TOKEN = post(
    "/v1/tokens",
    ("card[number]", "4242424242424242"),
    ("card[exp_month]", "5"),
    ("card[exp_year]", "2028"),
    ("card[cvc]", "314"),
)
METHOD = post(
    "/v1/payment_methods", ("type", "card"), ("card[number]", "4242424242424242"), ("card[cvc]", "314")
)
RAW = post(
    "/v1/payment_intents/pi_1/confirm",
    ("payment_method_data[type]", "card"),
    ("payment_method_data[card][number]", "4242424242424242"),
    ("payment_method_data[card][cvc]", "314"),
)
RAW_CHARGE = post(
    "/v1/charges",
    ("amount", "1099"),
    ("currency", "usd"),
    ("source[object]", "card"),
    ("source[number]", "4242424242424242"),
    ("source[cvc]", "314"),
)
V2 = Asked(
    path="/v2/core/event_destinations",
    json={"name": "My destination", "type": "webhook_endpoint", "webhook_endpoint": {"url": "https://a.ex"}},
    headers=SDK,
)
# https://docs.stripe.com/api/subscriptions/cancel
SUBSCRIBED = {"id": "sub_1", "object": "subscription", "status": "active"}
CANCELED = {"id": "sub_1", "object": "subscription", "status": "canceled", "canceled_at": 1794910000}

CASES = [
    # ---- numbers ----
    Case(
        rule="token",
        request=TOKEN,
        safe=True,
        answer=Told(json={"id": "tok_1", "object": "token", "type": "card", "card": {"last4": "4242"}}),
        alike=(TOKEN.but(headers=NEWLY),),
        different=(
            TOKEN.but(form=(("card[number]", "4000056655665556"),)),
            TOKEN.but(headers=CONNECTED),
        ),
        refused=(LOCKED, DECLINED),
    ),
    Case(
        rule="payment-method",
        request=METHOD,
        safe=True,
        answer=Told(json={"id": "pm_1", "object": "payment_method", "type": "card"}),
        alike=(METHOD.but(headers=NEWLY),),
        different=(METHOD.but(form=(("card[number]", "4000056655665556"),)),),
    ),
    Case(
        rule="raw-numbers",
        request=RAW,
        answer=Told(json={"id": "pi_1", "object": "payment_intent", "status": "succeeded"}),
        alike=(RAW.but(headers=NEWLY),),
        different=(
            RAW.but(form=(("payment_method_data[card][number]", "4000056655665556"),)),
            RAW.but(headers=CONNECTED),
        ),
        refused=(DECLINED, LOCKED),
        doubtful=(BROKEN,),
        final=(NOWHERE,),
    ),
    Case(
        rule="raw-numbers",
        request=RAW_CHARGE,
        answer=Told(json={"id": "ch_1", "object": "charge", "amount": 1099, "status": "succeeded"}),
        arguments={"body.amount": ["1099"]},
        alike=(RAW_CHARGE.but(headers=NEWLY),),
        different=(RAW_CHARGE.but(form=(("amount", "1100"),)),),
        refused=(DECLINED,),
    ),
    *(
        Case(
            rule="raw-numbers",
            request=post(path, (name, "000123456789")),
            answer=Told(json={"id": "x_1"}),
            alike=(post(path, (name, "000123456789")).but(headers=NEWLY),),
            different=(post(path, (name, "000999999991")),),
            doubtful=(BROKEN,),
        )
        for path, name in (
            *(
                ("/v1/setup_intents", f"payment_method_data[{kind}][account_number]")
                for kind in ("acss_debit", "au_becs_debit", "bacs_debit", "nz_bank_account")
            ),
            ("/v1/accounts", "individual[id_number]"),
            ("/v1/accounts/acct_1", "individual[ssn_last_4]"),
            ("/v1/accounts/acct_1/persons", "id_number"),
            ("/v1/accounts/acct_1/persons/person_1", "ssn_last_4"),
        )
    ),
    # https://docs.stripe.com/api/tokens/create_person
    *(
        Case(
            rule="token",
            request=post("/v1/tokens", (name, "0000")),
            safe=True,
            answer=Told(json={"id": "ct_1", "object": "token"}),
            different=(post("/v1/tokens", (name, "1111")),),
        )
        for name in ("cvc_update[cvc]", "person[id_number]", "account[individual][ssn_last_4]")
    ),
    *spelled_otherwise(),
    *secrets(),
    # ---- reads ----
    Case(
        rule="invoice-preview",
        request=post("/v1/invoices/create_preview", ("customer", "cus_1"), ("subscription", "sub_1")),
        safe=True,
        answer=Told(json={"object": "invoice", "status": "draft", "total": 1000}),
    ),
    Case(
        rule=None,
        request=Asked(
            method="GET", path="/v1/customers/search?query=email%3A%27a%40b.example%27", headers=SDK
        ),
        safe=True,
        answer=Told(json={"object": "search_result", "data": [], "has_more": False}),
        different=(
            Asked(
                method="GET",
                path="/v1/customers/search?query=email%3A%27a%40b.example%27",
                headers={**SDK, **CONNECTED},
            ),
        ),
    ),
    # ---- v1 ----
    v1(
        "payment-intent",
        INTENT,
        {"id": "pi_1", "object": "payment_intent", "amount": 2000, "status": "succeeded"},
        INTENT.but(form=(("amount", "2001"),)),
        INTENT.but(form=(("payment_method", "pm_card_mastercard"),)),
        INTENT.but(form=(("metadata[order]", "6735"),)),
    ),
    v1(
        "payment-step",
        CONFIRM,
        {"id": "pi_1", "object": "payment_intent", "status": "succeeded"},
        post("/v1/payment_intents/pi_2/confirm", ("payment_method", "pm_card_visa")),
        post("/v1/payment_intents/pi_1/capture"),
        post("/v1/payment_intents/pi_1/cancel"),
    ),
    v1(
        "payment-step",
        post("/v1/payment_intents/pi_1/capture", ("amount_to_capture", "750")),
        {"id": "pi_1", "object": "payment_intent", "amount_received": 750, "status": "succeeded"},
    ),
    v1(
        "charge",
        CHARGE,
        {"id": "ch_1", "object": "charge", "amount": 1099, "status": "succeeded"},
        CHARGE.but(form=(("amount", "1100"),)),
        CHARGE.but(form=(("source", "tok_mastercard"),)),
    ),
    v1(
        "refund",
        REFUND,
        {"id": "re_1", "object": "refund", "amount": 500, "status": "succeeded"},
        REFUND.but(form=(("amount", "501"),)),
        REFUND.but(form=(("payment_intent", "pi_2"),)),
    ),
    v1(
        "customer",
        post("/v1/customers", ("email", "ada@example.com"), ("name", "Ada")),
        {"id": "cus_1", "object": "customer", "email": "ada@example.com"},
        post("/v1/customers", ("email", "bob@example.com"), ("name", "Ada")),
    ),
    v1(
        "invoice",
        post("/v1/invoices", ("customer", "cus_1"), ("collection_method", "send_invoice")),
        {"id": "in_1", "object": "invoice", "status": "draft"},
        post("/v1/invoices", ("customer", "cus_2"), ("collection_method", "send_invoice")),
    ),
    v1(
        "invoice-step",
        post("/v1/invoices/in_1/pay"),
        {"id": "in_1", "object": "invoice", "status": "paid"},
        post("/v1/invoices/in_1/send"),
        post("/v1/invoices/in_1/finalize"),
        post("/v1/invoices/in_2/pay"),
    ),
    v1(
        "subscription",
        SUBSCRIPTION,
        SUBSCRIBED,
        SUBSCRIPTION.but(form=(("items[0][price]", "price_2"),)),
        SUBSCRIPTION.but(form=(("items[0][quantity]", "2"),)),
    ),
    Case(
        rule="checkout-session",
        request=SESSION,
        answer=Told(
            json={"id": "cs_1", "object": "checkout.session", "url": "https://checkout.stripe.com/c"}
        ),
        arguments={"body.mode": ["payment"]},
        alike=(SESSION.but(headers=NEWLY, form=(("expires_at", "1794913600"),)),),
        different=(
            SESSION.but(form=(("line_items[0][quantity]", "3"),)),
            SESSION.but(headers=CONNECTED),
        ),
        refused=(LOCKED,),
        doubtful=(RUNNING, BROKEN),
        mismatch=(OTHER_REQUEST,),
        final=(MISSING,),
        key=KEY,
    ),
    v1(
        "payment-link",
        post("/v1/payment_links", ("line_items[0][price]", "price_1"), ("line_items[0][quantity]", "1")),
        {"id": "plink_1", "object": "payment_link", "url": "https://buy.stripe.com/1"},
        post("/v1/payment_links", ("line_items[0][price]", "price_2"), ("line_items[0][quantity]", "1")),
    ),
    v1(
        "transfer",
        TRANSFER,
        {"id": "tr_1", "object": "transfer", "amount": 400},
        TRANSFER.but(form=(("destination", "acct_2"),)),
    ),
    v1(
        "payout",
        post("/v1/payouts", ("amount", "1100"), ("currency", "usd")),
        {"id": "po_1", "object": "payout", "amount": 1100, "status": "pending"},
        post("/v1/payouts", ("amount", "1101"), ("currency", "usd")),
    ),
    v1(
        "other",
        post("/v1/customers/cus_1", ("metadata[order_id]", "6735")),
        {"id": "cus_1", "object": "customer", "metadata": {"order_id": "6735"}},
        post("/v1/customers/cus_2", ("metadata[order_id]", "6735")),
        post("/v1/customers/cus_1", ("metadata[order_id]", "6736")),
        post("/v1/products", ("metadata[order_id]", "6735")),
    ),
    # ---- v1 DELETE ----
    Case(
        rule="customer-delete",
        request=Asked(method="DELETE", path="/v1/customers/cus_1", headers=SDK),
        answer=Told(json={"id": "cus_1", "object": "customer", "deleted": True}),
        arguments={"path.customer": "cus_1"},
        alike=(Asked(method="DELETE", path="/v1/customers/cus_1", headers={**SDK, **NEWLY}),),
        different=(
            Asked(method="DELETE", path="/v1/customers/cus_2", headers=SDK),
            Asked(method="DELETE", path="/v1/customers/cus_1", headers={**SDK, **CONNECTED}),
        ),
        refused=(LOCKED,),
        doubtful=(BROKEN,),
        final=(NOWHERE,),
        probe="/v1/customers/cus_1",
        found=Told(json={"id": "cus_1", "object": "customer", "deleted": True}),
        absent=Told(json={"id": "cus_1", "object": "customer", "email": "ada@example.com"}),
    ),
    Case(
        rule="subscription-cancel",
        request=Asked(method="DELETE", path="/v1/subscriptions/sub_1", headers=SDK),
        answer=Told(json=CANCELED),
        alike=(Asked(method="DELETE", path="/v1/subscriptions/sub_1", headers={**SDK, **NEWLY}),),
        different=(Asked(method="DELETE", path="/v1/subscriptions/sub_2", headers=SDK),),
        refused=(LOCKED,),
        doubtful=(BROKEN,),
        final=(NOWHERE,),
        probe="/v1/subscriptions/sub_1",
        found=Told(json=CANCELED),
        absent=Told(json=SUBSCRIBED),
    ),
    Case(
        rule=None,
        request=Asked(method="DELETE", path="/v1/products/prod_1", headers=SDK),
        answer=Told(json={"id": "prod_1", "object": "product", "deleted": True}),
        doubtful=(BROKEN,),
    ),
    *v2_held(),
    # ---- v2: https://docs.stripe.com/api/v2/core/event-destinations ----
    Case(
        rule="v2",
        request=V2,
        answer=Told(json={"id": "ed_1", "object": "v2.core.event_destination", "status": "enabled"}),
        arguments={"body.name": "My destination"},
        alike=(V2.but(headers=NEWLY),),
        different=(V2.but(json={"name": "Another"}), V2.but(headers=CONTEXT)),
        refused=(error(429, "rate_limit", "Too many requests"),),
        doubtful=(RUNNING, BROKEN),
        mismatch=(OTHER_REQUEST,),
        final=(MISSING,),
        key=KEY,
    ),
    Case(
        rule="v2",
        request=Asked(method="DELETE", path="/v2/core/event_destinations/ed_1", headers=SDK),
        answer=Told(json={"id": "ed_1", "object": "v2.core.event_destination", "deleted": True}),
        key=KEY,
    ),
]
