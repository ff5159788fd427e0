"""Slack. Shapes and errors as in https://docs.slack.dev/reference/methods, above all chat.postMessage."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

SDK = {"Authorization": "Bearer xoxb-1", "User-Agent": "Python/3.11 slackclient/3.46.0"}
RESTARTED = {"Authorization": "Bearer xoxb-2", "User-Agent": "Python/3.12 slackclient/3.47.0"}
CHARSET = {"Content-Type": "application/json;charset=utf-8"}


def failed(error: str) -> Told:
    return Told(json={"ok": False, "error": error})


BUSY = Told(status=429, json={"ok": False, "error": "ratelimited"}, headers={"Retry-After": "1"})
NOT_NOW = tuple(failed(error) for error in ("ratelimited", "invalid_auth", "missing_scope"))
OF_CHANNELS = tuple(failed(error) for error in ("channel_not_found", "not_in_channel", "is_archived"))
OPEN = tuple(
    failed(error) for error in ("fatal_error", "internal_error", "request_timeout", "service_unavailable")
)

POST = Asked(path="/api/chat.postMessage", json={"channel": "C123ABC456", "text": "Hi"}, headers=SDK)
FORM = Asked(
    path="/api/chat.postMessage", form=(("token", "xoxb-1"), ("channel", "#general"), ("text", "Hi"))
)
POSTED = Told(
    json={
        "ok": True,
        "channel": "C123ABC456",
        "ts": "1503435956.000247",
        "message": {"text": "Hi", "bot_id": "B123ABC456", "type": "message", "ts": "1503435956.000247"},
    }
)
UPDATE = Asked(
    path="/api/chat.update",
    json={"channel": "C123ABC456", "ts": "1503435956.000247", "text": "Hello"},
    headers=SDK,
)
SHARE = Asked(
    method="GET",
    path="/api/files.remote.share?channels=C1234567890,C2345678901&file=F2147483862",
    headers=SDK,
)
LIST = Asked(
    path="/api/conversations.list", form=(("limit", "100"), ("types", "public_channel")), headers=SDK
)
HOOK = Asked(path="/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX", json={"text": "Hello, World!"})
CONTEXT = Asked(
    path="/api/assistant.search.context", json={"query": "x", "action_token": "of one"}, headers=SDK
)

CASES = [
    *(
        Case(
            rule="read",
            request=Asked(path=f"/api/{method}", form=(("query", "x"),), headers=SDK),
            safe=True,
            answer=Told(json={"ok": True}),
            refused=(failed("fatal_error"),),
        )
        for method in (
            "assistant.search.context",
            "team.accessLogs",
            "team.billableInfo",
            "team.integrationLogs",
            "users.discoverableContacts.lookup",
            "openid.connect.userInfo",
            "admin.conversations.search",
        )
    ),
    # What the token of a message may open is hidden as other tokens are.
    Case(
        rule="read",
        request=CONTEXT,
        safe=True,
        answer=Told(json={"ok": True, "results": {}}),
        different=(CONTEXT.but(json={"action_token": "of another"}),),
    ),
    # Socket Mode, at wss-….slack.com.
    Case(
        rule=None,
        request=Asked(method="GET", path="/link/?ticket=12348&app_id=5678"),
        safe=True,
        answer=Told(json={}),
    ),
    Case(
        rule="post",
        request=POST,
        answer=POSTED,
        arguments={"body.channel": "C123ABC456", "body.text": "Hi"},
        alike=(POST.but(headers=RESTARTED), POST.but(headers=CHARSET)),
        different=(
            POST.but(json={"channel": "C999ABC456"}),
            POST.but(json={"text": "Hi again"}),
            POST.but(json={"thread_ts": "1503435956.000247"}),
        ),
        refused=(
            *(BUSY, *NOT_NOW, *OF_CHANNELS),
            failed("restricted_action_read_only_channel"),
        ),
        doubtful=(*OPEN, Told(status=503, text="<html></html>")),
        final=tuple(
            failed(error) for error in ("no_text", "too_many_attachments", "invalid_blocks", "brand_new")
        ),
    ),
    # As Go and older clients do it. The token is hidden, and another workspace's is another call.
    Case(
        rule="post",
        request=FORM,
        answer=POSTED,
        arguments={"body.channel": ["#general"]},
        alike=(FORM.but(form=(("channel", "#general"), ("text", "Hi"), ("token", "xoxb-1"))),),
        different=(FORM.but(form=(("token", "xoxb-other"),)), FORM.but(form=(("text", "Hi again"),))),
        refused=NOT_NOW,
        doubtful=OPEN,
    ),
    Case(
        rule="write",
        request=UPDATE,
        answer=Told(json={"ok": True, "channel": "C123ABC456", "ts": "1503435956.000247", "text": "Hello"}),
        arguments={"path.method": "chat.update", "body.ts": "1503435956.000247"},
        alike=(UPDATE.but(headers=RESTARTED),),
        different=(UPDATE.but(json={"text": "Good bye"}), UPDATE.but(path="/api/chat.scheduleMessage")),
        refused=(BUSY, *NOT_NOW),
        doubtful=OPEN,
        final=(failed("message_not_found"), failed("cant_update_message"), *OF_CHANNELS),
    ),
    # https://docs.slack.dev/reference/methods/files.remote.share: by GET, and shared all the same.
    Case(
        rule="write",
        request=SHARE,
        answer=Told(json={"ok": True, "file": {"id": "F2147483862", "is_external": True}}),
        arguments={"path.method": "files.remote.share", "query.channels": ["C1234567890,C2345678901"]},
        alike=(SHARE.but(headers=RESTARTED),),
        different=(SHARE.but(path="/api/files.remote.share?channels=C1234567890&file=F2147483862"),),
        refused=(BUSY, *NOT_NOW),
        doubtful=OPEN,
        final=OF_CHANNELS,
    ),
    Case(
        rule="write",
        request=Asked(
            path="/api/apps.uninstall",
            form=(("token", "xoxb-1"), ("client_id", "56579136444.26251006572"), ("client_secret", "f25b5")),
        ),
        answer=Told(json={"ok": True}),
        arguments={"body.client_id": ["56579136444.26251006572"]},
    ),
    Case(
        rule="post",
        request=Asked(method="GET", path="/api/chat.postMessage?channel=C123ABC456&text=Hi", headers=SDK),
        answer=POSTED,
        arguments={"query.text": ["Hi"]},
        doubtful=OPEN,
    ),
    Case(
        rule="write",
        request=Asked(
            path="/api/reactions.add",
            form=(
                ("channel", "C123ABC456"),
                ("name", "thumbsup"),
                ("timestamp", "1503435956.000247"),
                ("token", "xoxb-1"),
            ),
        ),
        answer=Told(json={"ok": True}),
        arguments={"body.name": ["thumbsup"]},
        final=(failed("already_reacted"),),
    ),
    Case(
        rule="write",
        request=Asked(
            path="/api/files.completeUploadExternal",
            json={"files": [{"id": "F123ABC456", "title": "slack-test"}], "channel_id": "C123ABC456"},
            headers=SDK,
        ),
        answer=Told(json={"ok": True, "files": [{"id": "F123ABC456", "title": "slack-test"}]}),
        doubtful=OPEN,
    ),
    Case(
        rule="read",
        request=LIST,
        safe=True,
        answer=Told(json={"ok": True, "channels": [{"id": "C012AB3CD", "name": "general"}]}),
        arguments={"path.method": "conversations.list", "body.limit": ["100"]},
        alike=(LIST.but(headers=RESTARTED),),
        different=(LIST.but(form=(("cursor", "dGVhbTpDMDYxRkE1UEI="),)),),
        refused=(BUSY, *NOT_NOW, *OPEN),
    ),
    Case(
        rule="read",
        request=Asked(path="/api/users.info", form=(("token", "xoxb-1"), ("user", "W1234567890"))),
        safe=True,
        answer=Told(json={"ok": True, "user": {"id": "W1234567890", "name": "spengler"}}),
        refused=(failed("user_not_found"),),
    ),
    Case(
        rule="read",
        request=Asked(path="/api/conversations.open", json={"users": "W1234567890"}, headers=SDK),
        safe=True,
        answer=Told(json={"ok": True, "channel": {"id": "D069C7QFK"}}),
    ),
    Case(
        rule="upload-address",
        request=Asked(
            path="/api/files.getUploadURLExternal",
            form=(("filename", "laughingoutloudcat.jpg"), ("length", "53072")),
            headers=SDK,
        ),
        safe=True,
        answer=Told(
            json={
                "ok": True,
                "upload_url": "https://files.slack.com/upload/v1/ABC123",
                "file_id": "F123ABC456",
            }
        ),
        refused=NOT_NOW,
    ),
    Case(
        rule="upload",
        request=Asked(path="/upload/v1/ABC123", text="the bytes", headers={"Content-Type": "image/jpeg"}),
        safe=True,
        answer=Told(text="OK - 9"),
        different=(
            Asked(path="/upload/v1/ABC124", text="the bytes", headers={"Content-Type": "image/jpeg"}),
        ),
    ),
    Case(
        rule="unrecorded",
        request=Asked(
            path="/api/oauth.v2.access", form=(("client_id", "1"), ("client_secret", "2"), ("code", "3"))
        ),
        answer=Told(json={"ok": True, "access_token": "xoxb-17653672481-19874698323"}),
        recorded=False,
    ),
    Case(
        rule="unrecorded",
        request=Asked(path="/api/assistant.threads.setStatus", json={"status": "is thinking…"}, headers=SDK),
        answer=Told(json={"ok": True}),
        recorded=False,
    ),
    Case(
        rule="webhook",
        request=HOOK,
        answer=Told(text="ok"),
        different=(
            HOOK.but(path="/services/T00000000/B00000000/YYYYYYYYYYYYYYYYYYYYYYYY"),
            HOOK.but(json={"text": "Good bye"}),
        ),
        refused=(BUSY, Told(status=403, text="action_prohibited")),
        final=(Told(status=400, text="invalid_payload"), Told(status=404, text="no_service")),
    ),
    Case(
        rule="workflow-webhook",
        request=HOOK.but(path="/workflows/T00000000/A00000000/123456/XXXXXXXXXXXXXXXX"),
        answer=Told(json={"ok": True}),
    ),
    Case(
        rule="read",
        request=Asked(method="GET", path="/api/users.list?limit=2", headers=SDK),
        safe=True,
        answer=Told(json={"ok": True, "members": []}),
        refused=NOT_NOW,
    ),
    Case(
        rule="upload-address",
        request=Asked(
            method="GET", path="/api/files.getUploadURLExternal?filename=a.jpg&length=53072", headers=SDK
        ),
        safe=True,
        answer=Told(json={"ok": True, "upload_url": "https://files.slack.com/upload/v1/A", "file_id": "F1"}),
    ),
    Case(
        rule=None,
        request=Asked(method="GET", path="/files-pri/T1-F1/a.jpg", headers=SDK),
        safe=True,
        answer=Told(text="the bytes"),
    ),
]
