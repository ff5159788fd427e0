"""PayPal. Shapes as in https://developer.paypal.com/api/orders/v2 and its neighbours; errors as in
https://developer.paypal.com/api/rest/responses/ and https://developer.paypal.com/api/handle-payment-failures."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

KEY = "header PayPal-Request-Id"
HEADERS = {
    "Authorization": "Bearer A21AAF-one",
    "PayPal-Request-Id": "7b92603e-77ed-4896-8e78-5dea2050476a",
    "PayPal-Client-Metadata-Id": "5ab0f2e1",
}
# An access token lives for nine hours, and who crashed mints a new id.
NEWLY = {
    "Authorization": "Bearer A21AAF-two",
    "PayPal-Request-Id": "123e4567-e89b-12d3-a456-426655440010",
    "PayPal-Client-Metadata-Id": "99e0aa17",
}
# {"alg": "none"}.{"iss": "CLIENT-ID", "payer_id": "SELLER-PAYER-ID"}.
OTHER_SELLER = {"PayPal-Auth-Assertion": "eyJhbGciOiJub25lIn0.eyJpc3MiOiJDIiwicGF5ZXJfaWQiOiJTIn0."}


def refusal(status: int, name: str, *issues: str, message: str = "…") -> Told:
    details = [{"issue": issue, "description": "…"} for issue in issues]
    return Told(
        status=status,
        json={"name": name, "message": message, "debug_id": "90957fca61718", "details": details},
    )


BUSY = refusal(429, "RATE_LIMIT_REACHED")
RUNNING = refusal(409, "RESOURCE_CONFLICT", "PREVIOUS_REQUEST_IN_PROGRESS")
BROKEN = refusal(500, "INTERNAL_SERVER_ERROR")
INVALID = refusal(400, "INVALID_REQUEST", "MISSING_REQUIRED_PARAMETER")
DECLINED = refusal(422, "UNPROCESSABLE_ENTITY", "INSTRUMENT_DECLINED")
NOT_APPROVED = refusal(422, "UNPROCESSABLE_ENTITY", "ORDER_NOT_APPROVED")
OTHER_FUNDING = refusal(422, "UNPROCESSABLE_ENTITY", "REDIRECT_PAYER_FOR_ALTERNATE_FUNDING")
# https://developer.paypal.com/checkout/handle-overcharge
MUST_ACT = refusal(422, "UNPROCESSABLE_ENTITY", "PAYER_ACTION_REQUIRED")
CAPTURED = refusal(422, "UNPROCESSABLE_ENTITY", "ORDER_ALREADY_CAPTURED")
KNOWN_ID = refusal(422, "UNPROCESSABLE_ENTITY", "PAYPAL_REQUEST_ID_PREVIOUSLY_USED")
# https://github.com/paypal/PayPal-Ruby-SDK/issues/120
KNOWN_BATCH = Told(
    status=400,
    json={
        "name": "USER_BUSINESS_ERROR",
        "message": "User business error.",
        "debug_id": "4854e55f0e1b3",
        "details": [{"field": "SENDER_BATCH_ID", "issue": "Duplicate batch request"}],
    },
)


def asked(path: str, json: object = None) -> Asked:
    return Asked(path=path, json=json, headers={**HEADERS, "Content-Type": "application/json"})


def keyed(rule: str, request: Asked, answer: Told, *different: Asked, refused: tuple[Told, ...] = ()) -> Case:
    """What holds for every POST that takes a PayPal-Request-Id."""
    return Case(
        rule=rule,
        request=request,
        answer=answer,
        alike=(request.but(headers=NEWLY),),
        different=(request.but(headers=OTHER_SELLER), *different),
        refused=(BUSY, *refused),
        doubtful=(RUNNING, BROKEN),
        final=(INVALID, CAPTURED),
        key=KEY,
    )


CARD = {"card": {"number": "4111111111111111", "security_code": "123", "expiry": "2029-02"}}
OTHER_CARD = {"card": {"number": "4000056655665556", "security_code": "123", "expiry": "2029-02"}}
CODE = {"card": {"vault_id": "8kk8451t", "security_code": "123"}}
UNIT = {"reference_id": "d9f80740", "amount": {"currency_code": "USD", "value": "100.00"}}
OTHER_UNIT = {"reference_id": "d9f80740", "amount": {"currency_code": "USD", "value": "100.01"}}
ORDER = asked("/v2/checkout/orders", {"intent": "CAPTURE", "purchase_units": [UNIT]})
ORDERED = Told(status=201, json={"id": "5O190127TN364715T", "status": "CREATED", "links": []})
COMPLETED = Told(status=201, json={"id": "5O190127TN364715T", "status": "COMPLETED", "links": []})
REFUND = asked(
    "/v2/payments/captures/2GG279541U471931P/refund", {"amount": {"value": "10.00", "currency_code": "USD"}}
)
ITEM = {
    "recipient_type": "EMAIL",
    "amount": {"value": "10.00", "currency": "USD"},
    "receiver": "ada@example.com",
}
PAYOUT = asked(
    "/v1/payments/payouts",
    {
        "sender_batch_header": {"sender_batch_id": "2026-11-commissions", "email_subject": "Paid"},
        "items": [ITEM],
    },
)
UNNAMED = asked("/v1/payments/payouts", {"sender_batch_header": {"email_subject": "Paid"}, "items": [ITEM]})
PAID_OUT = Told(
    status=201,
    json={
        "batch_header": {"payout_batch_id": "2324242", "batch_status": "PENDING", "sender_batch_header": {}}
    },
)
SUBSCRIPTION = asked("/v1/billing/subscriptions", {"plan_id": "P-5ML4271244454362WXNWU5NQ", "quantity": "1"})
INVOICE = asked(
    "/v2/invoicing/invoices",
    {"detail": {"invoice_number": "INV-1", "currency_code": "USD"}, "items": [{"name": "Work"}]},
)
SENT = "https://www.paypal.com/invoice/payerView/details/INV2-Z56S"


def invoice(status: str) -> Told:
    return Told(
        json={"id": "INV2-Z56S", "status": status, "detail": {"metadata": {"recipient_view_url": SENT}}}
    )


CASES = [
    Case(
        rule="token",
        request=Asked(
            path="/v1/oauth2/token",
            form=(("grant_type", "client_credentials"),),
            headers={"Authorization": "Basic Q0xJRU5UOlNFQ1JFVA=="},
        ),
        answer=Told(json={"access_token": "A21AAF", "token_type": "Bearer", "expires_in": 31668}),
        recorded=False,
    ),
    Case(
        rule="client-token",
        request=asked("/v1/identity/generate-token"),
        answer=Told(json={"client_token": "eyJicmFpbnRyZWUi", "expires_in": 3600}),
        recorded=False,
    ),
    # ---- reads ----
    Case(
        rule="invoice-search",
        request=asked("/v2/invoicing/search-invoices?page=1", {"total_amount_range": {"lower_amount": {}}}),
        safe=True,
        answer=Told(json={"total_items": 0, "items": []}),
        arguments={"query.page": ["1"]},
        refused=(BROKEN,),
    ),
    Case(
        rule="invoice-number",
        request=asked("/v2/invoicing/generate-next-invoice-number"),
        safe=True,
        answer=Told(json={"invoice_number": "INVOICE-1235"}),
    ),
    Case(
        rule="webhook-check",
        request=asked(
            "/v1/notifications/verify-webhook-signature", {"webhook_id": "1JE4291016473214C", "cert_url": "…"}
        ),
        safe=True,
        answer=Told(json={"verification_status": "SUCCESS"}),
    ),
    Case(
        rule=None,
        request=Asked(method="GET", path="/v2/checkout/orders/5O190127TN364715T", headers=HEADERS),
        safe=True,
        answer=Told(json={"id": "5O190127TN364715T", "status": "APPROVED"}),
    ),
    # ---- cards ----
    Case(
        rule="card-order",
        request=ORDER.but(json={"payment_source": CARD}),
        answer=COMPLETED,
        alike=(ORDER.but(headers=NEWLY, json={"payment_source": CARD}),),
        different=(
            ORDER.but(json={"payment_source": OTHER_CARD}),
            ORDER.but(json={"payment_source": CARD, "purchase_units": [OTHER_UNIT]}),
            ORDER.but(json={"payment_source": CARD}, headers=OTHER_SELLER),
        ),
        refused=(BUSY, DECLINED),
        doubtful=(BROKEN,),
        final=(INVALID,),
    ),
    Case(
        rule="card-step",
        request=asked("/v2/checkout/orders/5O190127TN364715T/capture", {"payment_source": CARD}),
        answer=COMPLETED,
        alike=(
            asked("/v2/checkout/orders/5O190127TN364715T/capture", {"payment_source": CARD}).but(
                headers=NEWLY
            ),
        ),
        different=(
            asked("/v2/checkout/orders/5O190127TN364715T/capture", {"payment_source": OTHER_CARD}),
            asked("/v2/checkout/orders/5O190127TN364715T/authorize", {"payment_source": CARD}),
        ),
        refused=(BUSY, DECLINED, MUST_ACT),
        doubtful=(BROKEN,),
    ),
    Case(
        rule="card-vault",
        request=asked("/v3/vault/setup-tokens", {"payment_source": CARD}),
        answer=Told(status=201, json={"id": "5C991763VB2771612", "status": "APPROVED"}),
        different=(
            asked("/v3/vault/setup-tokens", {"payment_source": OTHER_CARD}),
            asked("/v3/vault/payment-tokens", {"payment_source": CARD}),
        ),
        refused=(BUSY,),
        final=(INVALID,),
    ),
    # A card that PayPal knows already, with its code.
    Case(
        rule="card-order",
        request=ORDER.but(json={"payment_source": CODE}),
        answer=COMPLETED,
        different=(ORDER.but(json={"payment_source": {"card": {**CODE["card"], "security_code": "124"}}}),),
    ),
    Case(
        rule="card-step",
        request=asked("/v2/checkout/orders/5O190127TN364715T/capture", {"payment_source": CODE}),
        answer=COMPLETED,
    ),
    Case(
        rule="card-vault",
        request=asked("/v3/vault/setup-tokens", {"payment_source": CODE}),
        answer=Told(status=201, json={"id": "5C991763VB2771612", "status": "APPROVED"}),
    ),
    Case(
        rule="card-subscription",
        request=SUBSCRIPTION.but(json={"subscriber": {"payment_source": CARD}}),
        answer=Told(status=201, json={"id": "I-BW452GLLEP1G", "status": "ACTIVE"}),
        alike=(SUBSCRIPTION.but(headers=NEWLY, json={"subscriber": {"payment_source": CARD}}),),
        different=(
            SUBSCRIPTION.but(json={"subscriber": {"payment_source": OTHER_CARD}}),
            SUBSCRIPTION.but(json={"subscriber": {"payment_source": CARD}, "quantity": "2"}),
        ),
        refused=(BUSY,),
        doubtful=(BROKEN,),
        final=(INVALID,),
    ),
    # ---- orders ----
    keyed(
        "order",
        ORDER,
        ORDERED,
        ORDER.but(json={"purchase_units": [OTHER_UNIT]}),
        ORDER.but(json={"intent": "AUTHORIZE"}),
        refused=(DECLINED,),
    ),
    keyed(
        "order-authorize",
        asked("/v2/checkout/orders/5O190127TN364715T/authorize"),
        COMPLETED,
        asked("/v2/checkout/orders/2RL190127TN364715/authorize"),
        refused=(DECLINED, NOT_APPROVED, OTHER_FUNDING, MUST_ACT),
    ),
    keyed(
        "order-capture",
        asked("/v2/checkout/orders/5O190127TN364715T/capture"),
        COMPLETED,
        asked("/v2/checkout/orders/2RL190127TN364715/capture"),
        refused=(DECLINED, NOT_APPROVED, OTHER_FUNDING, MUST_ACT),
    ),
    # ---- payments ----
    keyed(
        "refund",
        REFUND,
        Told(status=201, json={"id": "1JU08902781691411", "status": "COMPLETED"}),
        REFUND.but(json={"amount": {"value": "11.00", "currency_code": "USD"}}),
        REFUND.but(path="/v2/payments/captures/3HH279541U471931P/refund"),
    ),
    keyed(
        "authorization-step",
        asked("/v2/payments/authorizations/0VF52814937998046/capture", {"final_capture": True}),
        Told(status=201, json={"id": "2GG279541U471931P", "status": "COMPLETED"}),
        asked("/v2/payments/authorizations/0VF52814937998046/void", {"final_capture": True}),
        asked("/v2/payments/authorizations/1VF52814937998046/capture", {"final_capture": True}),
    ),
    # ---- payouts ----
    Case(
        rule="payout",
        request=PAYOUT,
        answer=PAID_OUT,
        arguments={"body.sender_batch_header.sender_batch_id": "2026-11-commissions"},
        alike=(PAYOUT.but(headers=NEWLY),),
        different=(
            PAYOUT.but(json={"items": [ITEM, ITEM]}),
            PAYOUT.but(json={"sender_batch_header": {"sender_batch_id": "2026-12", "email_subject": "Paid"}}),
        ),
        refused=(BUSY, refusal(403, "INSUFFICIENT_FUNDS")),
        doubtful=(BROKEN,),
        mismatch=(KNOWN_BATCH,),
        final=(refusal(400, "VALIDATION_ERROR", "Receiver is invalid or does not match with type"),),
        key=KEY,
    ),
    Case(
        rule="payout-unnamed",
        request=UNNAMED,
        answer=PAID_OUT,
        alike=(UNNAMED.but(headers=NEWLY),),
        different=(UNNAMED.but(json={"items": [ITEM, ITEM]}),),
        refused=(BUSY,),
        doubtful=(BROKEN,),
        mismatch=(KNOWN_BATCH,),
        final=(refusal(400, "VALIDATION_ERROR", "Receiver is invalid or does not match with type"),),
        key="body sender_batch_header.sender_batch_id",
    ),
    # ---- subscriptions ----
    keyed(
        "subscription",
        SUBSCRIPTION,
        Told(status=201, json={"id": "I-BW452GLLEP1G", "status": "APPROVAL_PENDING"}),
        SUBSCRIPTION.but(json={"quantity": "2"}),
    ),
    keyed(
        "subscription-capture",
        asked(
            "/v1/billing/subscriptions/I-BW452GLLEP1G/capture",
            {"note": "Overdue", "capture_type": "OUTSTANDING_BALANCE", "amount": {"value": "100"}},
        ),
        Told(json={"id": "TRFGHNJKOIIOJKL", "status": "COMPLETED"}),
    ),
    keyed(
        "plan",
        asked("/v1/billing/plans", {"product_id": "PROD-XXCD1234QWER65782", "name": "Monthly"}),
        Told(status=201, json={"id": "P-5ML4271244454362WXNWU5NQ", "status": "ACTIVE"}),
    ),
    keyed(
        "product",
        asked("/v1/catalogs/products", {"name": "Video Streaming Service", "type": "SERVICE"}),
        Told(status=201, json={"id": "PROD-XXCD1234QWER65782", "name": "Video Streaming Service"}),
    ),
    Case(
        rule="subscription-cancel",
        request=asked("/v1/billing/subscriptions/I-BW452GLLEP1G/cancel", {"reason": "Not satisfied"}),
        answer=Told(status=204),
        arguments={"path.subscription": "I-BW452GLLEP1G"},
        different=(asked("/v1/billing/subscriptions/I-CW452GLLEP1G/cancel", {"reason": "Not satisfied"}),),
        refused=(BUSY,),
        doubtful=(BROKEN,),
        final=(refusal(422, "UNPROCESSABLE_ENTITY", "SUBSCRIPTION_STATUS_INVALID"),),
        probe="/v1/billing/subscriptions/I-BW452GLLEP1G",
        found=Told(json={"id": "I-BW452GLLEP1G", "status": "CANCELLED"}),
        absent=Told(json={"id": "I-BW452GLLEP1G", "status": "ACTIVE"}),
    ),
    # ---- vault ----
    Case(
        rule="vault",
        request=asked(
            "/v3/vault/payment-tokens",
            {"payment_source": {"token": {"id": "5C991763VB2771612", "type": "SETUP_TOKEN"}}},
        ),
        answer=Told(status=201, json={"id": "8kk8451t", "customer": {"id": "customer_4029352050"}}),
        refused=(BUSY, MUST_ACT),
        doubtful=(BROKEN,),
        mismatch=(KNOWN_ID,),
        final=(INVALID,),
        key=KEY,
    ),
    # ---- invoices ----
    Case(
        rule="invoice",
        request=INVOICE,
        answer=Told(status=201, json={"href": "https://api-m.paypal.com/v2/invoicing/invoices/INV2-Z56S"}),
        different=(INVOICE.but(json={"items": [{"name": "Goods"}]}),),
        refused=(BUSY,),
        doubtful=(BROKEN,),
        final=(INVALID,),
    ),
    Case(
        rule="invoice-send",
        request=asked("/v2/invoicing/invoices/INV2-Z56S/send", {"send_to_invoicer": True}),
        answer=Told(json={"href": SENT, "rel": "payer-view", "method": "GET"}),
        different=(asked("/v2/invoicing/invoices/INV2-Z57S/send", {"send_to_invoicer": True}),),
        refused=(BUSY,),
        doubtful=(BROKEN,),
        final=(INVALID,),
        probe="/v2/invoicing/invoices/INV2-Z56S",
        found=invoice("SENT"),
        absent=invoice("DRAFT"),
    ),
    Case(
        rule=None,
        request=asked("/v2/invoicing/invoices/INV2-Z56S/remind", {"subject": "Reminder"}),
        answer=Told(status=204),
        different=(asked("/v2/invoicing/invoices/INV2-Z57S/remind", {"subject": "Reminder"}),),
        doubtful=(BROKEN,),
    ),
]
