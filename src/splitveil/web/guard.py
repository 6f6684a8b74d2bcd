"""Who may ask, and what a page may do: an ASGI layer around the whole app.

- Host header: a page of the attacker that rebinds its own name to 127.0.0.1 still sends its own name, and is refused.
- Requests that change something carry a header of ours, which other origins cannot send without being asked, and which
  nobody is ever granted; an Origin that is not this server is refused as well.
- Token: needed wherever the server can be reached from other machines. It comes once in the address, then in a cookie.
- Answers carry a policy under which markup that slipped through could neither run nor load anything.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from splitveil.core.listening import LOOPBACK, bears_token, host_name, is_token

HEADER = "x-splitveil"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Wraps an app. `hosts` are the names under which it may be addressed; None where the token alone decides."""

    def __init__(self, app: ASGIApp, *, token: str | None = None, hosts: frozenset[str] | None = LOOPBACK) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # there are no websockets here; start and stop of the server pass
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Content-Security-Policy", POLICY)
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self.app)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.hosts is not None and (name := host_name(host)) not in self.hosts:
            return _no(403, f"This server does not answer to the name '{name}'.")
        if headers.get("sec-fetch-site", "none") == "cross-site" and scope["path"] != "/":
            return _no(403, "Another site may not ask this server.")
        if scope["method"] not in {"GET", "HEAD"}:
            origin = headers.get("origin")
            if HEADER not in headers or (origin is not None and urlsplit(origin).netloc != host):
                return _no(403, "This request does not come from the app's own page.")
        return _without_token(self.token, scope, headers) if self.token else None


def _without_token(token: str, scope: Scope, headers: Headers) -> Response | None:
    """None when the request proves that it knows the token."""
    cookie = f"splitveil-{_port(headers.get('host', ''))}"  # cookies do not tell ports apart
    if is_token(_cookie(headers, cookie), token) or bears_token(headers.get("authorization", ""), token):
        return None
    query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    if scope["method"] == "GET" and is_token(query.pop("token", ""), token):
        target = scope["path"] + (f"?{urlencode(query)}" if query else "")
        answer = RedirectResponse(target if not target.startswith("//") else "/", status_code=303)
        answer.set_cookie(cookie, token, httponly=True, samesite="strict")
        return answer
    return _no(401, "This server needs its token: open the address that it printed when it started.")


def _port(host: str) -> str:
    return host.rpartition(":")[2] if not host.endswith("]") else ""


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _no(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message, "hint": ""}, status_code=status)
