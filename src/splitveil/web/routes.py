"""What the page asks for. Each answer is JSON; an error is one sentence and a hint."""

from __future__ import annotations

import os
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field

from splitveil import __version__
from splitveil.core.errors import RunFolderError, UsageError
from splitveil.report import build_report
from splitveil.web import form
from splitveil.web.curves import curves, version
from splitveil.web.details import MOST_COMPARED, comparison, details
from splitveil.web.index import Query as ListQuery
from splitveil.web.jobs import LOGS
from splitveil.web.services import Services

api = APIRouter(prefix="/api")
Ids = Annotated[list[str], Query(alias="id", min_length=1, max_length=MOST_COMPARED)]
REPORTS = "reports"


class Body(BaseModel):
    """What a page sends: nothing but the fields that are named."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def _services(request: Request) -> Services:
    return request.app.state.services


@api.get("/session")
def session(request: Request) -> dict[str, Any]:
    services = _services(request)
    return {
        "version": __version__,
        "folder": services.root.resolve().name,
        "writable": os.access(services.root, os.W_OK),
    }


@api.get("/runs")
def runs(
    request: Request,
    q: Annotated[str, Query(max_length=200)] = "",
    status: Annotated[str, Query(max_length=40)] = "",
    surrogate: Annotated[str, Query(max_length=200)] = "",
    data: Annotated[str, Query(max_length=200)] = "",
    sort: Annotated[str, Query(max_length=40)] = "started",
    descending: bool = True,
    with_model: bool = False,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> dict[str, Any]:
    services = _services(request)
    services.visited()
    wanted = ListQuery(q, status, surrogate, data, with_model, sort, descending, offset, limit)
    return services.index.page(wanted)


@api.get("/run")
def run(request: Request, id: str) -> dict[str, Any]:
    services = _services(request)
    services.visited()
    job = services.jobs.get(id)
    try:
        found = details(services.root, services.index.path(id))
    except RunFolderError:
        if job is None:
            raise
        found = {}  # started a moment ago, or failed before it made its folder
    return found | {"job": job}


@api.get("/curves")
def all_curves(request: Request, id: Ids, seen: Annotated[list[str] | None, Query()] = None) -> list[dict[str, Any]]:
    """Curves of each run; only the word "same" for one whose version the page has already."""
    services = _services(request)
    answers: list[dict[str, Any]] = []
    for identifier, mark in zip_longest(id, (seen or [])[: len(id)]):
        folder = services.index.path(identifier)
        if mark == version(folder):
            answers.append({"same": True})
        else:
            answers.append(curves(folder))
    return answers


@api.get("/live")
def live(request: Request, id: str) -> dict[str, Any]:
    services = _services(request)
    return services.live.look(services.index.path(id))


@api.get("/log")
def log(request: Request, id: str) -> dict[str, str]:
    services = _services(request)
    try:
        folder: Path | None = services.index.path(id)
    except RunFolderError:
        folder = None
    return {"text": services.jobs.log(id, folder)}


@api.get("/compare")
def compare(request: Request, id: Ids) -> dict[str, Any]:
    services = _services(request)
    return comparison(services.root, [services.index.path(one) for one in dict.fromkeys(id)])


class ReportBody(Body):
    ids: list[str] = Field(min_length=1, max_length=200)
    lang: str = "en"


@api.post("/report")
def make_report(request: Request, body: ReportBody) -> dict[str, str]:
    """Build the full report of some runs; it is kept in the folder `reports` beside them where that can be written."""
    services = _services(request)
    folders = [services.index.path(one) for one in dict.fromkeys(body.ids)]
    name = f"report-{datetime.now():%Y%m%d-%H%M%S-%f}.html"
    try:
        path = build_report(folders, services.root / REPORTS / name, lang=body.lang)
        where = f"{REPORTS}/{name}"
    except OSError:
        path = build_report(folders, services.temporary / name, lang=body.lang)
        where = ""
    services.reports[name] = path
    return {"url": f"/report/{name}", "file": where}


@api.get("/recipes")
def all_recipes() -> dict[str, Any]:
    return {"recipes": form.recipes(), "form": form.form()}


@api.get("/recipe")
def recipe(name: str) -> dict[str, Any]:
    return form.recipe_tree(name)


class CheckBody(Body):
    tree: dict[str, Any]


@api.post("/check")
def check(body: CheckBody) -> dict[str, Any]:
    return {"errors": form.check(body.tree)}


class StartBody(CheckBody):
    name: str = Field(max_length=200)
    device: str = Field("auto", max_length=20)


@api.post("/start")
def start(request: Request, body: StartBody) -> dict[str, Any]:
    services = _services(request)
    errors = form.check(body.tree)
    if errors:
        return {"errors": errors}
    try:
        identifier = services.jobs.start(body.name, body.tree, body.device)
    except UsageError as error:
        return {"errors": [{"key": "name", "message": str(error)}]}
    except OSError as error:
        raise UsageError(f"{services.root / LOGS} cannot be written: {error.strerror}.") from None
    services.look_again()
    return {"id": identifier, "errors": []}


class IdBody(Body):
    id: str


@api.post("/stop")
def stop(request: Request, body: IdBody) -> dict[str, Any]:
    services = _services(request)
    services.jobs.stop(body.id)
    return {"job": services.jobs.get(body.id)}


reports = APIRouter()


@reports.get("/report/{name}")
def report(request: Request, name: str) -> FileResponse:
    """A report that was built here. It brings a policy of its own, as strict as the app's, in its head."""
    path = _services(request).reports.get(name)
    if path is None or not path.is_file():
        raise HTTPException(404, "There is no such report.")
    policy = "frame-ancestors 'none'"
    return FileResponse(path, media_type="text/html", headers={"Content-Security-Policy": policy})
