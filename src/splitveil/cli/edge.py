"""`splitveil edge`: run the edge half of an artefact on pictures, and let the cloud half answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from splitveil.serving.artefact import Artefact
    from splitveil.serving.files import Classified
    from splitveil.serving.transport import Transport


def edge(
    artefact: Annotated[Path, typer.Argument(help="The folder that splitveil export made.")],
    images: Annotated[
        list[Path] | None, typer.Argument(help="Pictures (PNG or JPEG), or folders of them.", show_default=False)
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="Address of splitveil cloud (default: answer in this process).")
    ] = None,
    bits: Annotated[int, typer.Option("--bits", help="Bits for each value that is sent: 32, 16 or 8.")] = 32,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with the server's token (or in SPLITVEIL_TOKEN).")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option("--ca", help="Certificates to trust (PEM), instead of the system's.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer, then give up.", min=0.1)] = 30.0,
    repeat_limit: Annotated[
        int | None, typer.Option("--repeat-limit", help="Never send (nearly) the same picture more often.", min=1)
    ] = None,
    repeat_file: Annotated[
        Path | None, typer.Option("--repeat-file", help="Keep the counts of pictures here, for the next call.")
    ] = None,
    serve_at: Annotated[
        str | None,
        typer.Option("--serve", help="HOST:PORT: give auditors what would be sent, instead of classifying."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="With --serve: certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="With --serve: its key (PEM).")] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Send a token without TLS; with --serve: let other machines ask without one."),
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Classify pictures: the edge half runs here, and only what its defences let through is sent to --url.

    Pictures are brought to the size and the colours that the model takes. Noise is drawn from the operating system's
    secure generator. Repetition undoes noise: --repeat-limit refuses to send one picture too often.

    Example: splitveil edge artefact photos/ --url http://127.0.0.1:8750 --bits 8

    Example: splitveil edge artefact --serve 127.0.0.1:8751
    """
    from splitveil.core.errors import UsageError
    from splitveil.core.extras import require
    from splitveil.core.listening import read_token

    require("serve", "onnxruntime", *([] if serve_at is None else ["fastapi", "uvicorn"]))
    from splitveil.serving.artefact import read
    from splitveil.serving.manifest import CLOUD, EDGE

    token = read_token(token_file)
    if serve_at is not None:
        if images or url is not None:
            raise UsageError("--serve answers auditors and classifies nothing.", "Leave out the pictures and --url.")
        _serve(read(artefact, need=[EDGE]), serve_at, token, tls_cert, tls_key, insecure)
        return
    if not images:
        raise UsageError("There are no pictures to classify.", "Name PNG or JPEG files, or folders of them.")
    if repeat_file is not None and repeat_file.is_dir():
        raise UsageError(f"{repeat_file} is a folder, not a file.", "Give --repeat-file the name of a file in it.")

    from splitveil.serving.client import EdgeClient
    from splitveil.serving.files import Classified, classify, list_files
    from splitveil.serving.repeats import RepeatGuard

    found = read(artefact, need=[EDGE])
    if url is None and not found.has(CLOUD):
        raise UsageError(
            f"{artefact} has no {CLOUD}: this copy sends, and somebody else answers.",
            "Add --url with the address of splitveil cloud.",
        )
    if url is None and (repeat_limit is not None or repeat_file is not None):
        option = "--repeat-limit" if repeat_limit is not None else "--repeat-file"
        raise UsageError(
            f"{option} counts what is sent, and without --url nothing is.", f"Add --url, or leave out {option}."
        )
    files, ignored = list_files(images)
    guard = RepeatGuard(repeat_limit, repeat_file)
    transport = _transport(found, url, timeout, ca, insecure)
    done = Classified(found.manifest, transport.address, bits, ignored=ignored)
    try:
        with EdgeClient(found, transport, token=token, bits=bits, guard=guard) as client:
            client.check()
            classify(client, files, done)
    except (KeyboardInterrupt, Exception) as error:  # the counts cannot be written, say: the disk is full
        if done.rows:  # what was sent cannot be taken back, so its answers must not be lost
            _tell(done, found, json_=json_, sent=url is not None)
            print(f"interrupted: {len(done.rows)} of {len(files)} pictures were dealt with", file=sys.stderr)
        if done.unanswered:
            who, them = ("1 picture", "it") if done.unanswered == 1 else (f"{done.unanswered} pictures", "them")
            counts = f", so --repeat-file counts {them} as sent" if repeat_file and found.manifest.random else ""
            print(f"{who} got no answer, but the server may have {them}{counts}", file=sys.stderr)
        if isinstance(error, KeyboardInterrupt):
            raise typer.Exit(130) from None
        raise
    _tell(done, found, json_=json_, sent=url is not None)
    if done.failed:
        raise typer.Exit(1)


def _tell(done: Classified, artefact: Artefact, *, json_: bool, sent: bool) -> None:
    """Print what came out, to its end: Ctrl-C waits."""
    from splitveil.core.stopping import ctrl_c_waits

    with ctrl_c_waits():
        lines = [json.dumps(done.tree(artefact), indent=2)] if json_ else [done.table(), done.cost(sent=sent)]
        if not sent and not json_:
            lines.append("answered in this process by cloud.onnx of the same artefact; --url asks a server")
        print("\n".join(lines), flush=True)


def _transport(artefact: Artefact, url: str | None, timeout: float, ca: Path | None, insecure: bool) -> Transport:
    """To the server, or to the cloud half in this process."""
    from splitveil.core.errors import UsageError
    from splitveil.serving.halves import CloudHalf
    from splitveil.serving.transport import HttpTransport, LocalTransport

    if url is None:
        if ca is not None:
            raise UsageError("--ca is for a server.", "Add --url, or leave out --ca.")
        return LocalTransport(CloudHalf(artefact))
    return HttpTransport(url, timeout=timeout, ca=ca, insecure=insecure)


def _serve(
    artefact: Artefact, at: str, token: str | None, tls_cert: Path | None, tls_key: Path | None, insecure: bool
) -> None:
    """What the device would send, for auditors."""
    from splitveil.core.errors import UsageError
    from splitveil.serving.features import build_edge_app
    from splitveil.serving.running import Place, serve
    from splitveil.serving.service import Settings

    host, _, port = at.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"'{at}' is no place to listen.", "Write it as HOST:PORT, for example 127.0.0.1:8751.")
    place = Place(host, int(port), tls_cert, tls_key, insecure, option="--serve")
    place.check(token)
    serve(
        build_edge_app(artefact, Settings(token=token, hosts=place.hosts)),
        place,
        lambda url: (
            f"{url} gives auditors what a device with artefact {artefact.digest.hex()[:10]} sends (Ctrl-C ends it)\n"
            f"  attack it with: splitveil audit --endpoint {url} --data NAME\n"
            f"  signature {artefact.manifest.signature}"
        ),
    )
