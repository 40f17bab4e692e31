"""Who may ask: hosts, origins, sizes, sessions, and the headers every answer carries."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
import time
from collections import deque
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import delete, select
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onelabel.review.database import Database
from onelabel.review.export import find_reviewer
from onelabel.review.models import Session
from onelabel.review.settings import Settings

MAX_BODY = 1 << 20
SESSION_SECONDS = 30 * 86_400
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": _CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """ASGI middleware: refuses foreign hosts, foreign origins and big bodies; adds the security headers."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        names = {settings.host, "localhost", "127.0.0.1", "::1", *settings.allow_hosts}
        # a wildcard address is reached by names only the network knows; the token stands guard there
        self.hosts = None if settings.host in ("0.0.0.0", "::", "") and not settings.allow_hosts else names
        extra = {"strict-transport-security": "max-age=31536000"} if settings.secure else {}
        self.headers = [(k.encode(), v.encode()) for k, v in {**HEADERS, **extra}.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *self.headers]
                if b"cache-control" not in present:
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        refused = self.refusal(scope)
        if refused is None:
            await self.app(scope, receive, guarded)
            return
        status, reason = refused
        body = json.dumps({"detail": reason}).encode()
        head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await guarded({"type": "http.response.start", "status": status, "headers": head})
        await guarded({"type": "http.response.body", "body": body})

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason why a request is not let in, or None."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if self.hosts is not None and hostname(host) not in self.hosts:
            return 400, "this host name is not served here; start the server with --allow-host"
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return None
        origin = headers.get("origin")
        if origin is None:
            if "x-onelabel-client" not in headers:
                return 403, "a write needs the page's Origin, or the header X-Onelabel-Client from programs"
        elif urlsplit(origin).scheme not in ("http", "https") or urlsplit(origin).netloc.lower() != host.lower():
            return 403, "a write from another origin is refused"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, "a write from another site is refused"
        if "transfer-encoding" in headers:
            return 411, "a body needs its length"
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > MAX_BODY:
            return 413, f"a body may have {MAX_BODY} bytes"
        return None


def hostname(host: str) -> str:
    """The name in a Host header, without its port and brackets."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


class TooMany(Exception):
    """Too many wrong tokens."""


class Gate:
    """Sign-in by name and token; sessions live in the database as hashes, so a restart signs nobody out."""

    def __init__(self, db: Database, settings: Settings, instance: str) -> None:
        self.db, self.settings = db, settings
        self.cookie = f"onelabel_review_{instance}"  # cookies do not know ports: two servers must not share one
        self.default = None if settings.token else find_reviewer(db, settings.reviewer)
        self._known: dict[str, tuple[float, int]] = {}
        self._wrong: dict[str, deque[float]] = {}
        self._lock = threading.Lock()

    def sign_in(self, name: str, token: str | None, address: str) -> str | None:
        """A new session's secret, or None where the token is wrong; raises `TooMany` after ten wrong ones a minute."""
        expected = self.settings.token
        if expected is not None:
            with self._lock:
                wrong = self._wrong.setdefault(address, deque())
                while wrong and wrong[0] < time.monotonic() - 60:
                    wrong.popleft()
                if len(wrong) >= 10:
                    raise TooMany
                given = hashlib.sha256((token or "").encode()).digest()
                if not hmac.compare_digest(given, hashlib.sha256(expected.encode()).digest()):
                    wrong.append(time.monotonic())
                    return None
                del self._wrong[address]
        secret = secrets.token_urlsafe(32)
        reviewer = find_reviewer(self.db, name)
        with self.db.write() as connection:
            connection.execute(delete(Session).where(Session.expires_at < time.time()))
            row = {"key": _hash(secret), "reviewer_id": reviewer, "expires_at": time.time() + SESSION_SECONDS}
            connection.execute(self.db.insert(Session), row)
        return secret

    def sign_out(self, secret: str | None) -> None:
        if secret:
            with self.db.write() as connection:
                connection.execute(delete(Session).where(Session.key == _hash(secret)))
            self._known.pop(_hash(secret), None)

    def remembered(self, secret: str | None) -> int | None:
        """The reviewer of a session looked up within the last minute, without asking the database."""
        known = self._known.get(_hash(secret)) if secret else None
        return known[1] if known and known[0] > time.monotonic() - 60 else None

    def reviewer(self, secret: str | None) -> int | None:
        """The reviewer of a session, or the default one where no token is asked for."""
        if secret:
            query = select(Session.reviewer_id).where(Session.key == _hash(secret), Session.expires_at >= time.time())
            with self.db.read() as connection:
                found: Any = connection.execute(query).scalar()
            if found is not None:
                if len(self._known) > 10_000:
                    self._known.clear()
                self._known[_hash(secret)] = (time.monotonic(), found)
                return int(found)
        return self.default


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
