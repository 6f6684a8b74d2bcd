"""`serve`: check the address, say where the page is, and answer until Ctrl-C."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import uvicorn

from splitveil.core.errors import UsageError
from splitveil.core.listening import LOOPBACK, check_token, is_loopback, listen, shown_host
from splitveil.web.app import create_app


def serve(
    root: Path, *, host: str, port: int, token: str | None, browser: bool, say: Callable[[str], None] = print
) -> None:
    """Serve the app over `root`. An address that other machines can reach is refused without a token."""
    if not is_loopback(host) and not token:
        raise UsageError(
            f"{host} can be reached from other machines, so the app needs a token.",
            "Add --token SECRET, or leave out --host.",
        )
    if token is not None:
        check_token(token)  # it travels in an address and in a cookie
    # with a token the name does not matter: a rebound page does not have the cookie
    hosts = None if token else LOOPBACK | {host.strip("[]")}
    app = create_app(root, token=token, hosts=hosts)
    listener = listen(host, port)
    port = listener.getsockname()[1]
    address = f"http://{shown_host(host)}:{port}/" + (f"?token={quote(token)}" if token else "")
    say(f"The runs in {root} are at {address} (Ctrl-C ends the app)")
    if browser:
        threading.Timer(0.8, webbrowser.open, [address]).start()
    config = uvicorn.Config(app, log_level="warning", server_header=False, ws="none", timeout_graceful_shutdown=2)
    try:
        with suppress(KeyboardInterrupt):  # the way to end the app: no failure, as with the servers
            uvicorn.Server(config).run(sockets=[listener])
    finally:
        listener.close()
        services = getattr(app.state, "services", None)
        for job in services.jobs.running() if services is not None else []:
            say(f"still training: {job.name} (process {job.process.pid})")
