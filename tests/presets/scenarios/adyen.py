"""Adyen, unverified. Shapes as in https://github.com/Adyen/adyen-openapi, json/CheckoutService-v71.json."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

KEY = "header Idempotency-Key"
HEADERS = {"X-API-Key": "AQE1", "Idempotency-Key": "37ca9c97-d1d1-4c62-89e8-706891a563ed"}
NEWLY = {"X-API-Key": "AQE2", "Idempotency-Key": "ed365a19-8607-4e98-2643-1d1d79c9ac73"}
RUNNING = Told(
    status=422,
    json={"status": 422, "errorCode": "704", "message": "request already processed or in progress"},
)
REFUSED = Told(json={"pspReference": "993617895204576J", "resultCode": "Refused", "refusalReason": "Refused"})
INVALID = Told(
    status=422, json={"status": 422, "errorCode": "14_006", "message": "…", "errorType": "validation"}
)


def asked(path: str, json: dict[str, object]) -> Asked:
    return Asked(path=path, json={"merchantAccount": "ACME", **json}, headers=HEADERS)


PAYMENT = asked(
    "/v71/payments",
    {
        "amount": {"currency": "EUR", "value": 1000},
        "reference": "order-1",
        "paymentMethod": {"type": "scheme", "encryptedCardNumber": "adyenjs_0_1"},
    },
)
RAW = PAYMENT.but(json={"paymentMethod": {"type": "scheme", "number": "4111111111111111", "cvc": "737"}})
PAID = Told(json={"pspReference": "993617895204576J", "resultCode": "Authorised"})

CASES = [
    Case(
        rule="payment-methods",
        request=asked("/v71/paymentMethods", {"countryCode": "NL"}),
        safe=True,
        answer=Told(json={"paymentMethods": []}),
    ),
    Case(
        rule="card-details",
        request=asked("/v71/cardDetails", {"cardNumber": "411111"}),
        safe=True,
        answer=Told(json={"brands": [{"type": "visa", "supported": True}]}),
    ),
    Case(rule="raw-card", request=RAW, answer=PAID, alike=(RAW.but(headers=NEWLY),), refused=(REFUSED,)),
    Case(
        rule="payment",
        request=PAYMENT,
        answer=PAID,
        alike=(PAYMENT.but(headers=NEWLY),),
        different=(
            PAYMENT.but(json={"reference": "order-2"}),
            PAYMENT.but(json={"merchantAccount": "OTHER"}),
        ),
        refused=(REFUSED,),
        doubtful=(RUNNING,),
        final=(INVALID,),
        key=KEY,
    ),
    Case(
        rule="modification",
        request=asked(
            "/v71/payments/993617895204576J/refunds", {"amount": {"currency": "EUR", "value": 2500}}
        ),
        answer=Told(status=201, json={"pspReference": "993617894906488A", "status": "received"}),
        doubtful=(RUNNING,),
        key=KEY,
    ),
    Case(
        rule="other",
        request=asked("/v71/paymentLinks", {"reference": "order-1"}),
        answer=Told(status=201, json={"id": "PL61C53A8B97E6915A", "url": "https://test.adyen.link/1"}),
        key=KEY,
    ),
]
