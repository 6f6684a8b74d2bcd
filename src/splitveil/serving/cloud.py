"""The server of the cloud half: features in, logits out, in batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
from fastapi import FastAPI, Request, Response

from splitveil.serving.artefact import Artefact
from splitveil.serving.batching import Batcher
from splitveil.serving.exchange import INFER, artefact_id, received
from splitveil.serving.halves import CloudHalf
from splitveil.serving.service import Settings, body, build_service
from splitveil.serving.wire import MEDIA_TYPE, Kind, WireError, encode


def build_app(artefact: Artefact, settings: Settings | None = None) -> FastAPI:
    """The app that serves `cloud.onnx`:

    POST /v1/infer      features -> logits, both as messages (wire.py)
    GET  /v1/manifest   which artefact this is, and the largest message that is taken
    GET  /healthz       needs no token
    GET  /metrics       requests, errors, pictures, latency and batch sizes, for Prometheus
    """
    settings = settings or Settings()
    half = CloudHalf(artefact, threads=settings.threads)
    name, shape = artefact_id(artefact), artefact.manifest.feature.shape

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        batcher = app.state.batcher = Batcher(
            half.logits,
            max_batch=settings.max_batch,
            max_wait_ms=settings.max_wait_ms,
            max_waiting=settings.max_waiting,
            observe=app.state.metrics.batch,
        )
        try:
            yield
        finally:
            await asyncio.to_thread(batcher.close)  # not here: requests that still wait need this thread

    app = build_service(artefact, settings, "cloud", lifespan, artefact.manifest.model_dump(mode="json"))

    async def infer(request: Request) -> Response:
        data = await body(request, settings)
        message = received(data, Kind.FEATURES, name, shape)
        app.state.metrics.message(len(message.values), len(data))
        logits = await asyncio.wrap_future(app.state.batcher.submit(message.values))
        if not np.isfinite(logits).all():
            raise WireError("The features are so large that the answer to them is not finite.")
        return Response(encode(Kind.LOGITS, logits, artefact=name, request=message.request), media_type=MEDIA_TYPE)

    app.add_api_route(INFER, infer, methods=["POST"])
    return app
