"""The server of the edge half, for auditors: pictures in, what would be sent out.

A device never runs this in the field. It stands for a device in a laboratory, so that somebody who may not have the
weights can attack what it sends: `splitveil audit --endpoint URL`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from splitveil.serving.artefact import Artefact
from splitveil.serving.exchange import FEATURES, artefact_id, received
from splitveil.serving.halves import EdgeHalf
from splitveil.serving.random_inputs import Source
from splitveil.serving.service import Settings, body, build_service
from splitveil.serving.wire import MEDIA_TYPE, Kind, encode


def build_edge_app(artefact: Artefact, settings: Settings | None = None, source: Source | None = None) -> FastAPI:
    """The app that serves `edge.onnx`, defences and all: POST /v1/features, beside the routes that `build_app` has.

    Every request draws new noise, from the operating system's generator unless `source` is given (for tests).
    """
    settings = settings or Settings()
    half = EdgeHalf(artefact, threads=settings.threads)
    name, shape = artefact_id(artefact), artefact.manifest.input.shape

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield

    # shapes alone: recipe, seed and defences are what the owner need not show to an auditor
    shown = artefact.manifest.model_dump(mode="json", include={"input": {"shape"}, "feature": {"shape"}})
    app = build_service(artefact, settings, "edge", lifespan, shown)

    async def features(request: Request) -> Response:
        data = await body(request, settings)
        message = received(data, Kind.PICTURES, name, shape)
        app.state.metrics.message(len(message.values), len(data))
        app.state.metrics.batch(len(message.values))
        sent = await run_in_threadpool(half.features, message.values, source)
        return Response(encode(Kind.FEATURES, sent, artefact=name, request=message.request), media_type=MEDIA_TYPE)

    app.add_api_route(FEATURES, features, methods=["POST"])
    return app
