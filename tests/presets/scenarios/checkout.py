"""Checkout.com, unverified. The request is that of
https://www.checkout.com/docs/payments/manage-payments/idempotency."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

KEY = "header Cko-Idempotency-Key"
HEADERS = {"Authorization": "Bearer sk_one", "Cko-Idempotency-Key": "74f18c1ee79747949cc5f0bd4d771e93"}
NEWLY = {"Authorization": "Bearer sk_two", "Cko-Idempotency-Key": "39e177d4db0f5cc94974979eee1c8f47"}
PAYMENT = Asked(
    path="/payments",
    json={"source": {"type": "token", "token": "tok_6qi7"}, "amount": 1000, "currency": "USD"},
    headers=HEADERS,
)
RAW = PAYMENT.but(json={"source": {"type": "card", "number": "4242424242424242", "cvv": "100"}})
APPROVED = Told(status=201, json={"id": "pay_1", "approved": True, "status": "Authorized"})
DECLINED = Told(status=201, json={"id": "pay_1", "approved": False, "status": "Declined"})
INVALID = Told(status=422, json={"error_type": "request_invalid", "error_codes": ["amount_required"]})

CASES = [
    Case(
        rule="token",
        request=Asked(path="/tokens", json={"type": "card", "number": "4242424242424242"}, headers=HEADERS),
        safe=True,
        answer=Told(status=201, json={"type": "card", "token": "tok_6qi7"}),
    ),
    Case(rule="raw-card", request=RAW, answer=APPROVED, alike=(RAW.but(headers=NEWLY),), refused=(DECLINED,)),
    Case(
        rule="payment-search",
        request=Asked(path="/payments/search", json={"query": "id:'pay_1'"}, headers=HEADERS),
        safe=True,
        answer=Told(json={"data": []}),
    ),
    Case(
        rule="payment",
        request=PAYMENT,
        answer=APPROVED,
        alike=(PAYMENT.but(headers=NEWLY),),
        different=(PAYMENT.but(json={"amount": 1001}),),
        refused=(DECLINED,),
        doubtful=(Told(status=502, json={}),),
        final=(INVALID,),
        key=KEY,
        held=True,
    ),
    Case(
        rule="payment-step",
        request=Asked(path="/payments/pay_1/refunds", json={"amount": 500}, headers=HEADERS),
        answer=Told(status=202, json={"action_id": "act_1"}),
        different=(Asked(path="/payments/pay_1/captures", json={"amount": 500}, headers=HEADERS),),
        key=KEY,
        held=True,
    ),
    Case(
        rule="transfer",
        request=Asked(path="/transfers", json={"amount": 100}, headers=HEADERS),
        answer=Told(status=201, json={"id": "tra_1", "status": "pending"}),
        key=KEY,
        held=True,
    ),
]
