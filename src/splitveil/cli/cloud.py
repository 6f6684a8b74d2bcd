"""`splitveil cloud`: serve the cloud half of an artefact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def cloud(
    artefact: Annotated[Path, typer.Argument(help="The folder that splitveil export made.")],
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than this machine's need a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", help="Port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 8750,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File with the secret that devices must know (or in SPLITVEIL_TOKEN)."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="Certificate (PEM): serve https.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Key of the certificate (PEM).")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let other machines ask without a token, all the same.")
    ] = False,
    max_batch: Annotated[
        int, typer.Option(help="Most pictures that go through the network at once; 1: no batches.", min=1)
    ] = 64,
    max_wait_ms: Annotated[
        float, typer.Option(help="How long a request waits for others even where the network is free.", min=0, max=1000)
    ] = 0.0,
    max_message_mb: Annotated[float, typer.Option(help="Largest message that is taken.", min=0.001, max=1024)] = 16.0,
    threads: Annotated[int, typer.Option(help="Threads of the network.", min=1)] = 1,
) -> None:
    """Serve the cloud half: features in, logits out, until Ctrl-C.

    Devices ask with `splitveil edge ARTEFACT IMAGE --url URL`; both need copies of one artefact. The message is
    described in docs/serving.md. Also: GET /v1/manifest, GET /metrics (Prometheus), and GET /healthz, without a token.

    Example: splitveil cloud artefact --port 8750

    Example: splitveil cloud artefact --host 0.0.0.0 --token-file token --tls-cert cert.pem --tls-key key.pem
    """
    from splitveil.core.extras import require
    from splitveil.core.listening import read_token

    require("serve", "fastapi", "uvicorn", "onnxruntime")
    from splitveil.serving.artefact import read
    from splitveil.serving.cloud import build_app
    from splitveil.serving.manifest import CLOUD
    from splitveil.serving.running import Place, serve
    from splitveil.serving.service import Settings

    token = read_token(token_file)
    place = Place(host, port, tls_cert, tls_key, insecure)
    place.check(token)
    found = read(artefact, need=[CLOUD])
    app = build_app(
        found,
        Settings(
            token=token,
            max_batch=max_batch,
            max_wait_ms=max_wait_ms,
            max_message_bytes=int(max_message_mb * 2**20),
            threads=threads,
            hosts=place.hosts,
        ),
    )
    serve(
        app,
        place,
        lambda url: (
            f"{url} serves the cloud half of artefact {found.digest.hex()[:10]} (Ctrl-C ends it)\n"
            f"  it promises {found.manifest.promise()}\n"
            f"  signature {found.manifest.signature}"
        ),
    )
