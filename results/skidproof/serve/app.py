"""The service's addresses: pages for people, JSON for programs, metrics for Prometheus. Nothing here can write."""

import asyncio
import contextlib
import math
import re
import threading
import time

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from skidproof import rows
from skidproof import store as stores
from skidproof.cli import EXIT_USAGE, Complaint, plain
from skidproof.export import prometheus
from skidproof.store.query import moment

LIMIT = Query(100, ge=1, le=1000, description="Items of this page at most.")
AFTER = Query(None, max_length=400, description="`next` of the page before.")
AT_A_TIME = 4
STATE_S = 0.5
KEY = Path(..., ge=1, le=2**31 - 1, description="The machine's number, as in /api/v1/machines.")
NAME = {"max_length": 200}
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
KINDS = ("runs", "tests", "measurements", "errata", "evidence", "failures")


class Kept:
    """Answers that cost much, given again while the store stays as it is, which is looked up every STATE_S at most: of many who ask at
    once one has it made, the others wait."""

    def __init__(self, store, most=64):
        self.store, self.most, self.answers = store, most, {}
        self.state, self.looked = None, -math.inf
        self.lock = threading.Lock()  # of all: what makes pages is not safe with threads

    def get(self, key, make):
        now = time.monotonic()
        if now - self.looked > STATE_S:
            self.state, self.looked = self.store.state(), now
        state = self.state
        found = self.answers.get(key)
        if found is not None and found[0] == state:
            return found[1]
        with self.lock:
            found = self.answers.get(key)
            if found is None or found[0] != state:
                self.answers.pop(key, None)
                self.answers[key] = found = (state, make())
                while len(self.answers) > self.most:
                    self.answers.pop(next(iter(self.answers)))
            return found[1]


class InTurn:
    """Answers a few requests at a time, in the order in which they came, and adds HEADERS to each.

    The threads that answer share one interpreter: with many, the one that makes a page comes to its turn seldom, and all wait for it.
    AnyIO 3, which hands out threads, serves the last that came first. What is sent waits for no slow reader with a turn of its own.
    """

    def __init__(self, app):
        self.app, self.turns = app, None

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if self.turns is None:
            self.turns = asyncio.Semaphore(AT_A_TIME)
        messages = []

        async def keep(message):
            messages.append(message)

        async with self.turns:
            await self.app(scope, receive, keep)
        for message in messages:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((name.lower().encode(), value.encode()) for name, value in HEADERS.items())]
            await send(message)


def readable(request: Request):
    """Characters that no name has are refused before a database sees them; so is what nothing here asks for."""
    known = {parameter.alias for parameter in request.scope["route"].dependant.query_params}
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise HTTPException(400, f"there is no parameter {name[:80]!r} here; there are: {', '.join(sorted(known)) or 'none'}")
        if not value.isprintable():
            raise HTTPException(400, f"{name}: characters that cannot be printed")
    for value in request.path_params.values():
        if isinstance(value, str) and not value.isprintable():
            raise HTTPException(400, "characters that cannot be printed")


def page_of(items, following=None):
    return {"items": [plain(item) for item in items], "next": following}


def page_after(items, key, limit, after):
    """Of items that are all at hand; `after` is the last one's key on the page before."""
    if after is not None:
        if not re.fullmatch(r"[0-9]{1,18}", after):
            raise HTTPException(400, "after: not a `next` of this list")
        items = [item for item in items if item[key] > int(after)]
    chosen = items[:limit]
    return page_of(chosen, str(chosen[-1][key]) if len(items) > limit else None)


def application(url=None):
    """The service over the store at this URL (default as store.open), which is opened for reading alone."""
    store = stores.open(url)
    kept = Kept(store)
    app = FastAPI(title="Skidproof's results", version="1", docs_url=None, redoc_url=None, dependencies=[Depends(readable)],
                  description="Read-only. Lists are paged: ask again with `after` set to `next` until it is null.")

    app.add_middleware(InTurn)

    @app.exception_handler(StarletteHTTPException)
    async def refused(_, error):
        return JSONResponse({"error": str(error.detail)}, error.status_code, headers=getattr(error, "headers", None))

    @app.exception_handler(RequestValidationError)
    async def bad_query(_, error):
        said = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors()[:5])
        return JSONResponse({"error": said}, 400)

    @app.exception_handler(Complaint)
    async def complained(_, error):
        code = 400 if error.exit_code == EXIT_USAGE else 503
        return JSONResponse({"error": error.message, "advice": error.advice}, code, headers={} if code == 400 else {"Retry-After": "10"})

    pages(app, store, kept)
    lists(app, store, kept)

    @app.get("/healthz", tags=["operation"])
    def healthz():
        """Whether the store answers: 200, or 503 with the reason."""
        return {"status": "ok", **plain(store.state())}

    @app.get("/metrics", response_class=PlainTextResponse, tags=["operation"])
    def metrics():
        """The last run of each machine, as `skidproof export --format prometheus` writes it."""
        return PlainTextResponse(kept.get("metrics", lambda: metrics_of(store)),
                                 media_type="text/plain; version=0.0.4; charset=utf-8")

    return app


def metrics_of(store):
    return prometheus.metrics_text([run for name, found in store.rows_of(store.last_runs()) for run in rows.source_of(name, found).runs])


def subjects_of(store, kept):
    """store.subjects() as dicts, by their numbers."""
    return kept.get("subjects", lambda: {one["subject"]: one for one in store.subjects().sort_values("subject").to_dict("records")})


def subject_of(store, kept, key):
    found = subjects_of(store, kept).get(key)
    if found is None:
        raise HTTPException(404, f"there is no machine {key}")
    return found


@contextlib.contextmanager
def no_such_run():
    """Of an address, what is not there is 404, not a bad question."""
    try:
        yield
    except Complaint as complaint:
        raise HTTPException(404 if complaint.exit_code == EXIT_USAGE else 503, complaint.message) from complaint


def pages(app, store, kept):
    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def fleet_page():
        from skidproof.report import fleet
        return HTMLResponse(kept.get("fleet", lambda: fleet.fleet_page(store, link=lambda key: f"/machines/{key}")))

    @app.get("/machines/{subject}", response_class=HTMLResponse, include_in_schema=False)
    def machine_page(subject: int = KEY):
        from skidproof.report import history
        subject_of(store, kept, subject)
        return HTMLResponse(kept.get(("machine", subject), lambda: history.history_page(store, subject)))

    @app.get("/runs/{run}", response_class=HTMLResponse, include_in_schema=False)
    def run_page(run: str = Path(..., **NAME)):
        from skidproof import report
        with no_such_run():
            return HTMLResponse(kept.get(("run", run), lambda: report.page_of_rows(run, store.run_rows(run))))


def lists(app, store, kept):
    @app.get("/api/v1/machines", tags=["machines"])
    def machines(limit: int = LIMIT, after: str = AFTER):
        """Every machine: host, name and core type, with the facts and the counts of its last run."""
        return page_after(list(subjects_of(store, kept).values()), "subject", limit, after)

    @app.get("/api/v1/machines/{subject}", tags=["machines"])
    def machine(subject: int = KEY):
        """One machine."""
        return plain(subject_of(store, kept, subject))

    @app.get("/api/v1/machines/{subject}/nights", tags=["machines"])
    def nights(subject: int = KEY, limit: int = LIMIT, after: str = AFTER):
        """What was true of the machine in each of its runs: microcode, kernel, BIOS, version."""
        subject_of(store, kept, subject)
        return page_after(store.facts(subject).sort_values("run").to_dict("records"), "run", limit, after)

    @app.get("/api/v1/machines/{subject}/changes", tags=["machines"])
    def changes(subject: int = KEY, limit: int = LIMIT):
        """The change points of its figures, and what else changed then."""
        subject_of(store, kept, subject)
        return page_of(store.change_points(subject).head(limit).to_dict("records"))

    @app.get("/api/v1/runs/{run}", tags=["runs"])
    def run_rows(run: str = Path(..., **NAME), limit: int = LIMIT, after: str = AFTER):
        """The rows of a run, as the file held them."""
        with no_such_run():
            found = [{"number": number, "row": row} for number, row in enumerate(store.run_rows(run), start=1)]
        page = page_after(found, "number", limit, after)
        return {"items": [item["row"] for item in page["items"]], "next": page["next"]}

    for kind in KINDS:
        listing(app, store, kind)


def time_of(words):
    return None if words is None else moment(words)


def listing(app, store, kind):
    @app.get(f"/api/v1/{kind}", tags=[kind], name=kind, description=f"The {kind} that the filters leave, in the store's order.")
    def listed(machine: str = Query(None, **NAME, description="A host or a machine's name; * and ? are wildcards."),
               run: str = Query(None, **NAME, description="A run's id."),
               test: str = Query(None, **NAME, description="A test's id; * and ? are wildcards."),
               status: str = Query(None, regex="^(pass|fail|error|skip|xfail|xpass|observed|disturbed)$"),
               figure: str = Query(None, **NAME, description="A measurement's name; * and ? are wildcards."),
               erratum: str = Query(None, **NAME), since: str = Query(None, max_length=40, description="UTC, as 2026-03-01 or with a time."),
               until: str = Query(None, max_length=40), limit: int = LIMIT, after: str = AFTER):
        found, following = store.query(kind, limit, after, machine=machine, run=run, test=test, status=status, figure=figure, erratum=erratum,
                                       since=time_of(since), until=time_of(until))
        return page_of(found.to_dict("records"), following)


def from_environment():
    """What a worker process serves: the store that SKIDPROOF_STORE names, or skidproof.db in its folder."""
    return application(None)
