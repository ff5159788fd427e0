"""Square. Shapes as in https://developer.squareup.com/reference/square; errors as in
https://developer.squareup.com/docs/payments-api/error-codes."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

KEY = "body idempotency_key"
HEADERS = {"Authorization": "Bearer EAAA-one", "Square-Version": "2026-10-15"}
NEWLY = {"Authorization": "Bearer EAAA-refreshed", "Square-Version": "2026-11-12"}


def refusal(status: int, category: str, code: str) -> Told:
    return Told(status=status, json={"errors": [{"category": category, "code": code, "detail": "…"}]})


BUSY = refusal(429, "RATE_LIMIT_ERROR", "RATE_LIMITED")
NO_FUNDS = refusal(400, "PAYMENT_METHOD_ERROR", "INSUFFICIENT_FUNDS")
DECLINED = refusal(402, "PAYMENT_METHOD_ERROR", "CARD_DECLINED")
REUSED = refusal(400, "INVALID_REQUEST_ERROR", "IDEMPOTENCY_KEY_REUSED")
INVALID = refusal(400, "INVALID_REQUEST_ERROR", "MISSING_REQUIRED_PARAMETER")
NOWHERE = refusal(404, "INVALID_REQUEST_ERROR", "NOT_FOUND")
# "You can safely retry your call using the same idempotency key."
PASSING = refusal(500, "API_ERROR", "TEMPORARY_ERROR")
CONFLICT = refusal(409, "INVALID_REQUEST_ERROR", "CONFLICT")


def asked(path: str, json: object = None) -> Asked:
    return Asked(path=path, json=json, headers=HEADERS)


def keyed(rule: str, request: Asked, answer: dict[str, object], *different: Asked) -> Case:
    """What holds for every call with an `idempotency_key`, which the agent mints anew after a crash, or does
    not give at all."""
    minted = {"idempotency_key": "3d3c3b22-9572-4fc6-1111-e4d2f41b4122"}
    return Case(
        rule=rule,
        request=request.but(json={"idempotency_key": "7b0f3ec5-086a-4871-8f13-3c81b3875218"}),
        answer=Told(json=answer),
        alike=(request.but(json=minted, headers=NEWLY), request),
        different=different,
        refused=(BUSY,),
        doubtful=(PASSING, CONFLICT),
        mismatch=(REUSED,),
        final=(INVALID, NOWHERE),
        key=KEY,
    )


MONEY = {"amount": 1000, "currency": "USD"}
PAYMENT = asked("/v2/payments", {"source_id": "ccof:GaJGNaZa8x4OgDJn4GB", "amount_money": MONEY})
PAID = {"payment": {"id": "R2B3Z8WMVt3EAmzYWLZvz7Y69EbZY", "amount_money": MONEY, "status": "COMPLETED"}}
REFUND = asked("/v2/refunds", {"payment_id": "R2B3Z8WMVt3EAmzYWLZvz7Y69EbZY", "amount_money": MONEY})
ORDER = asked(
    "/v2/orders",
    {"order": {"location_id": "057P5VYJ4A5X1", "line_items": [{"name": "Steak", "quantity": "1"}]}},
)
LINK = asked(
    "/v2/online-checkout/payment-links",
    {"quick_pay": {"name": "Auto Detailing", "price_money": MONEY, "location_id": "A9Y43N9ABXZBP"}},
)
CHECKOUT = asked(
    "/v2/terminals/checkouts",
    {"checkout": {"amount_money": MONEY, "device_options": {"device_id": "dbb5d83a-7838-11ea-bc55"}}},
)


def payment(status: str) -> Told:
    return Told(json={"payment": {"id": "bP9mAsEMYPUGjjGNaNO5ZDVyLhSZY", "status": status}})


def step(rule: str, name: str, done: str) -> Case:
    """An approved payment is completed, or cancelled."""
    path = f"/v2/payments/bP9mAsEMYPUGjjGNaNO5ZDVyLhSZY/{name}"
    return Case(
        rule=rule,
        request=asked(path),
        answer=payment(done),
        arguments={"path.payment": "bP9mAsEMYPUGjjGNaNO5ZDVyLhSZY"},
        alike=(asked(path).but(headers=NEWLY),),
        different=(asked(f"/v2/payments/cP9mAsEMYPUGjjGNaNO5ZDVyLhSZY/{name}"),),
        refused=(BUSY,),
        doubtful=(PASSING,),
        final=(NOWHERE,),
        probe="/v2/payments/bP9mAsEMYPUGjjGNaNO5ZDVyLhSZY",
        found=payment(done),
        absent=payment("APPROVED"),
    )


CASES = [
    # https://github.com/square/square-python-sdk, doc/api/payments.md: an unknown key is no error.
    Case(
        rule="cancel-by-key",
        request=asked("/v2/payments/cancel", {"idempotency_key": "7b0f3ec5-086a-4871-8f13-3c81b3875218"}),
        answer=Told(json={}),
        denied=True,
    ),
    Case(
        rule="token",
        request=Asked(
            path="/oauth2/token",
            json={"client_id": "sq0idp-u", "client_secret": "sq0csp-3", "grant_type": "refresh_token"},
        ),
        answer=Told(json={"access_token": "EAAA", "token_type": "bearer", "merchant_id": "M1"}),
        recorded=False,
    ),
    # ---- reads ----
    *(
        Case(
            rule=rule,
            request=asked(path, body),
            safe=True,
            answer=Told(json={}),
            different=(asked(path, {**body, "limit": 1}),),
            refused=(BUSY,),
        )
        for rule, path, body in (
            ("area-search", "/v2/bookings/availability/search", {"query": {}}),
            ("area-search", "/v2/loyalty/accounts/search", {"query": {}}),
            ("area-search", "/v2/terminals/checkouts/search", {"query": {}}),
            (
                "bulk-retrieve",
                "/v2/customers/bulk-retrieve",
                {"customer_ids": ["8DDA5NZVBZFGAX0V3HPF81HHE0"]},
            ),
            (
                "bulk-retrieve",
                "/v2/vendors/bulk-retrieve",
                {"vendor_ids": ["INV_V_JDKYHBWT1D4F8MFH63DBMEN8Y4"]},
            ),
            ("area-retrieve", "/v2/inventory/counts/batch-retrieve", {"location_ids": ["59TNP9SA8VGDA"]}),
            ("area-retrieve", "/v2/inventory/changes/batch-retrieve", {"types": ["PHYSICAL_COUNT"]}),
            (
                "area-retrieve",
                "/v2/bookings/team-member-booking-profiles/bulk-retrieve",
                {"team_member_ids": ["TMXUrsBWWcHTt79t"]},
            ),
            ("gift-card", "/v2/gift-cards/from-gan", {"gan": "7783320001001635"}),
            ("gift-card", "/v2/gift-cards/from-nonce", {"nonce": "cnon:7783322135245171"}),
        )
    ),
    # Neither a search nor a read, although as long.
    Case(
        rule="other",
        request=asked("/v2/gift-cards/activities", {"idempotency_key": "U16kfr", "gift_card_activity": {}}),
        answer=Told(json={}),
        key=KEY,
        held=True,
    ),
    Case(
        rule=None,
        request=asked("/v2/gift-cards/gftc:1/link-customer", {"customer_id": "GKY0FZ3V717AH8Q2D821PNT2ZW"}),
        answer=Told(json={}),
    ),
    Case(
        rule="mobile-code",
        request=asked("/mobile/authorization-code", {"location_id": "YOUR_LOCATION_ID"}),
        answer=Told(json={"authorization_code": "YOUR_MOBILE_AUTHZ_CODE", "expires_at": "…"}),
        recorded=False,
    ),
    Case(
        rule="search",
        request=asked("/v2/orders/search", {"location_ids": ["057P5VYJ4A5X1"]}),
        safe=True,
        answer=Told(json={"orders": []}),
        arguments={"path.what": "orders"},
        different=(asked("/v2/customers/search", {"location_ids": ["057P5VYJ4A5X1"]}),),
        refused=(PASSING, INVALID),
    ),
    Case(
        rule="catalog-items-search",
        request=asked("/v2/catalog/search-catalog-items", {"text_filter": "red"}),
        safe=True,
        answer=Told(json={"items": []}),
    ),
    Case(
        rule="batch-retrieve",
        request=asked("/v2/catalog/batch-retrieve", {"object_ids": ["W62UWFY35CWMYGVWK6TWJDNI"]}),
        safe=True,
        answer=Told(json={"objects": []}),
    ),
    Case(
        rule="order-calculate",
        request=asked("/v2/orders/calculate", {"order": {"location_id": "D7AVYMEAPJ3A3"}}),
        safe=True,
        answer=Told(json={"order": {"total_money": MONEY}}),
    ),
    Case(
        rule=None,
        request=Asked(method="GET", path="/v2/payments/bP9mAsEMYPUGjjGNaNO5ZDVyLhSZY", headers=HEADERS),
        safe=True,
        answer=payment("APPROVED"),
    ),
    # ---- payments ----
    Case(
        rule="payment",
        request=PAYMENT.but(json={"idempotency_key": "7b0f3ec5-086a-4871-8f13-3c81b3875218"}),
        answer=Told(json=PAID),
        arguments={"body.amount_money.amount": 1000, "body.source_id": "ccof:GaJGNaZa8x4OgDJn4GB"},
        alike=(PAYMENT.but(json={"idempotency_key": "minted-anew"}, headers=NEWLY), PAYMENT),
        different=(
            PAYMENT.but(json={"amount_money": {"amount": 1001, "currency": "USD"}}),
            PAYMENT.but(json={"amount_money": {"amount": 1000, "currency": "CAD"}}),
            PAYMENT.but(json={"source_id": "ccof:other"}),
            PAYMENT.but(json={"location_id": "L88917AVBK2S5"}),
        ),
        refused=(BUSY, NO_FUNDS, DECLINED),
        doubtful=(PASSING, CONFLICT),
        mismatch=(REUSED,),
        final=(INVALID, NOWHERE),
        key=KEY,
    ),
    step("payment-complete", "complete", "COMPLETED"),
    step("payment-cancel", "cancel", "CANCELED"),
    keyed(
        "refund",
        REFUND,
        {"refund": {"id": "R2B3_xVVXnlWgnC1hdS0MqAhhC", "status": "PENDING"}},
        REFUND.but(json={"amount_money": {"amount": 1, "currency": "USD"}}),
        REFUND.but(json={"payment_id": "another"}),
    ),
    keyed(
        "card",
        asked("/v2/cards", {"source_id": "cnon:uIbfJXhXETSP197M3GB", "card": {"customer_id": "VDKXEEKP"}}),
        {"card": {"id": "ccof:uIbfJXhXETSP197M3GB", "last_4": "1111"}},
    ),
    # ---- orders ----
    keyed(
        "order",
        ORDER,
        {"order": {"id": "CAISENgvlJ6jLWAzERDzjyHVybY", "version": 1}},
        ORDER.but(json={"order": {"location_id": "057P5VYJ4A5X1"}}),
    ),
    keyed(
        "order-pay",
        asked("/v2/orders/CAISENgvlJ6jLWAzERDzjyHVybY/pay", {"payment_ids": ["EnZdNAlWCmfh6Mt5FMNST1o7taB"]}),
        {"order": {"id": "CAISENgvlJ6jLWAzERDzjyHVybY", "state": "COMPLETED"}},
        asked("/v2/orders/DAISENgvlJ6jLWAzERDzjyHVybY/pay", {"payment_ids": ["EnZdNAlWCmfh6Mt5FMNST1o7taB"]}),
    ),
    keyed(
        "payment-link", LINK, {"payment_link": {"id": "PKVT6XGJZXYUP3NZ", "url": "https://square.link/u/1"}}
    ),
    # ---- invoices ----
    keyed(
        "invoice",
        asked("/v2/invoices", {"invoice": {"order_id": "CAISENgvlJ6jLWAzERDzjyHVybY"}}),
        {"invoice": {"id": "inv:0-ChCHu2mZEabLeeHahQnXDjZQECY", "status": "DRAFT"}},
    ),
    keyed(
        "invoice-publish",
        asked("/v2/invoices/inv:0-ChCHu2mZEabLeeHahQnXDjZQECY/publish", {"version": 1}),
        {"invoice": {"id": "inv:0-ChCHu2mZEabLeeHahQnXDjZQECY", "status": "SCHEDULED"}},
        asked("/v2/invoices/inv:0-ChCHu2mZEabLeeHahQnXDjZQECY/publish", {"version": 2}),
    ),
    # ---- the rest ----
    keyed(
        "customer",
        asked("/v2/customers", {"given_name": "Amelia", "email_address": "amelia@example.com"}),
        {"customer": {"id": "JDKYHBWT1D4F8MFH63DBMEN8Y4"}},
        asked("/v2/customers", {"given_name": "Amelia", "email_address": "earhart@example.com"}),
    ),
    keyed(
        "subscription",
        asked(
            "/v2/subscriptions", {"location_id": "S8GWD5R9QB376", "customer_id": "CHFGVKYY8RSV93M5KCYTG4PN0G"}
        ),
        {"subscription": {"id": "56214fb2-cc85-47a1-93bc-44f3766bb56f", "status": "ACTIVE"}},
    ),
    keyed(
        "catalog-object",
        asked("/v2/catalog/object", {"object": {"id": "#Cocoa", "type": "ITEM"}}),
        {"catalog_object": {"id": "R2TA2FOBUGCJZNIWJSOSNAI4", "type": "ITEM"}},
    ),
    # https://developer.squareup.com/reference/square/terminal-api/create-terminal-checkout
    Case(
        rule="other",
        request=CHECKOUT.but(json={"idempotency_key": "28a0c3bc-7839-11ea-bc55-0242ac130003"}),
        answer=Told(json={"checkout": {"id": "08YceKh7B3ZqO", "amount_money": MONEY, "status": "PENDING"}}),
        arguments={"body.checkout.amount_money.amount": 1000},
        alike=(CHECKOUT.but(json={"idempotency_key": "minted-anew"}, headers=NEWLY),),
        different=(
            CHECKOUT.but(json={"idempotency_key": "minted-anew", "checkout": {"amount_money": MONEY}}),
        ),
        refused=(BUSY,),
        doubtful=(PASSING, CONFLICT),
        final=(INVALID, NOWHERE),
        key=KEY,
        held=True,
    ),
    # https://developer.squareup.com/reference/square/customers-api/update-customer: it takes none.
    Case(
        rule=None,
        request=Asked(method="PUT", path="/v2/customers/JDKY", json={"note": "VIP"}, headers=HEADERS),
        answer=Told(json={"customer": {"id": "JDKY"}}),
    ),
]
