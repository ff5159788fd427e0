"""SendGrid. Shapes as in https://github.com/twilio/sendgrid-oai, errors as in
https://www.twilio.com/docs/sendgrid/api-reference/how-to-use-the-sendgrid-v3-api/errors."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

SDK = {"Authorization": "Bearer SG.1", "User-Agent": "sendgrid/6.12.5;python"}
RESTARTED = {"Authorization": "Bearer SG.2", "User-Agent": "sendgrid/6.13.0;python"}
SUBUSER = {"on-behalf-of": "subuser_one"}


def error(status: int, message: str = "…") -> Told:
    return Told(status=status, json={"errors": [{"message": message, "field": None, "help": None}]})


BUSY = Told(
    status=429,
    json={"errors": [{"field": None, "message": "too many requests"}]},
    headers={"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1790000000"},
)
REFUSED = (BUSY, error(401, "authorization required"), error(403, "From address is not verified"))
OPEN = (error(500), error(503), Told(status=502, text="<html></html>"))

SEND = Asked(
    path="/v3/mail/send",
    json={
        "personalizations": [{"to": [{"email": "john_doe@example.com", "name": "John Doe"}]}],
        "from": {"email": "orders@example.com"},
        "subject": "Your Example Order Confirmation",
        "content": [{"type": "text/plain", "value": "Thank you for your order!"}],
    },
    headers=SDK,
)
ACCEPTED = Told(status=202, headers={"X-Message-Id": "14c5d75ce93.dfd.64b469"})
SINGLE = "27c21bbf-a12c-440b-b8bf-c526975328ca"
NOW = Asked(
    method="PUT", path=f"/v3/marketing/singlesends/{SINGLE}/schedule", json={"send_at": "now"}, headers=SDK
)
SEARCH = Asked(
    path="/v3/marketing/contacts/search", json={"query": "email LIKE 'jo%' AND CONTAINS(list_ids, 'l1')"}
)
CONTACTS = Told(json={"result": [{"id": "1", "email": "john_doe@example.com"}], "contact_count": 1})


def single(status: str) -> Told:
    return Told(json={"id": SINGLE, "name": "Example", "status": status, "send_at": "2026-11-17T09:00:00Z"})


CASES = [
    Case(
        rule="send",
        request=SEND,
        answer=ACCEPTED,
        arguments={"body.subject": "Your Example Order Confirmation"},
        alike=(SEND.but(headers=RESTARTED),),
        different=(
            SEND.but(json={"personalizations": [{"to": [{"email": "jane_doe@example.com"}]}]}),
            SEND.but(json={"send_at": 1790000000}),
            SEND.but(headers=SUBUSER),
        ),
        refused=REFUSED,
        doubtful=OPEN,
        final=(error(400, "The from object must be provided"), error(413)),
    ),
    Case(
        rule="send-single-send",
        request=NOW,
        answer=Told(status=201, json={"send_at": "2026-11-17T09:00:00Z", "status": "scheduled"}),
        arguments={"path.single": SINGLE, "body.send_at": "now"},
        alike=(NOW.but(headers=RESTARTED),),
        different=(
            NOW.but(path="/v3/marketing/singlesends/another/schedule"),
            NOW.but(headers=SUBUSER),
            NOW.but(headers={"on-behalf-of": "subuser_two"}),
        ),
        refused=REFUSED,
        doubtful=OPEN,
        final=(error(404),),
        probe=f"/v3/marketing/singlesends/{SINGLE}",
        found=single("triggered"),
        absent=single("draft"),
    ),
    Case(
        rule="schedule-single-send",
        request=NOW.but(json={"send_at": "2026-12-01T09:00:00Z"}),
        answer=Told(status=201, json={"send_at": "2026-12-01T09:00:00Z", "status": "scheduled"}),
        different=(NOW.but(json={"send_at": "2026-12-02T09:00:00Z"}),),
        doubtful=OPEN,
    ),
    Case(
        rule="create-single-send",
        request=Asked(path="/v3/marketing/singlesends", json={"name": "Example API Created"}, headers=SDK),
        answer=Told(status=201, json={"id": SINGLE, "name": "Example API Created", "status": "draft"}),
    ),
    Case(
        rule="upsert-contacts",
        request=Asked(
            method="PUT",
            path="/v3/marketing/contacts",
            json={"contacts": [{"email": "annahamilton@example.org"}]},
            headers=SDK,
        ),
        answer=Told(status=202, json={"job_id": "89876b28-e90e-41d1-b73b-e4a6ce2354ba"}),
    ),
    Case(
        rule="create-batch",
        request=Asked(path="/v3/mail/batch", headers=SDK),
        answer=Told(status=201, json={"batch_id": "YOUR_BATCH_ID"}),
    ),
    Case(
        rule="search-contacts",
        request=SEARCH,
        safe=True,
        answer=CONTACTS,
        different=(SEARCH.but(json={"query": "email LIKE 'ja%'"}), SEARCH.but(headers=SUBUSER)),
        # "If the query takes longer than 20 seconds, a 408 Request Timeout status will be returned."
        refused=(BUSY, error(408)),
    ),
    Case(
        rule="find-contacts",
        request=SEARCH.but(path="/v3/marketing/contacts/search/emails", json={"emails": ["a@example.com"]}),
        safe=True,
        answer=Told(json={"result": {"a@example.com": {"contact": {"id": "1"}}}}),
    ),
    Case(
        rule="batch-contacts",
        request=SEARCH.but(path="/v3/marketing/contacts/batch", json={"ids": ["1", "2"]}),
        safe=True,
        answer=CONTACTS,
    ),
    Case(
        rule="search-single-sends",
        request=SEARCH.but(path="/v3/marketing/singlesends/search", json={"status": ["draft"]}),
        safe=True,
        answer=Told(json={"result": [{"id": SINGLE, "status": "draft"}], "_metadata": {"count": 1}}),
    ),
    Case(
        rule="validate",
        request=Asked(
            path="/v3/validations/email", json={"email": "example@example.com", "source": "signup"}
        ),
        safe=True,
        answer=Told(json={"result": {"email": "cedric@fogowl.com", "verdict": "Valid", "score": 0.85021}}),
    ),
    # Without a rule the account's header counts too.
    Case(
        rule=None,
        request=Asked(path="/v3/templates", json={"name": "receipt", "generation": "dynamic"}, headers=SDK),
        answer=Told(status=201, json={"id": "d-2c214ac919e84170b21855cc129b4a5f", "name": "receipt"}),
        different=(
            Asked(
                path="/v3/templates",
                json={"name": "receipt", "generation": "dynamic"},
                headers={**SDK, **SUBUSER},
            ),
        ),
    ),
]
