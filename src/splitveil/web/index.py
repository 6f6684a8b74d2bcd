"""The index of runs: an SQLite file beside the run folders, rebuilt from them at any time.

The folders are the truth; the index only spares reading ten thousand of them for every look at the list. Losing it
costs one pass over the folders. Where the folder cannot be written, or the file is damaged, the index lives in memory.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitveil.core.errors import RunFolderError, UsageError
from splitveil.experiments.discover import find_runs
from splitveil.web.summary import COLUMNS, run_id, run_path, signature, summarise

log = logging.getLogger("splitveil.web")

FILE = ".splitveil-index.sqlite"
VERSION = 4  # raise it when COLUMNS or the meaning of a column changes: an older file is then made anew
BATCH = 100  # rows per transaction: the list fills while a first pass is still reading
LARGEST_PAGE = 500
SORTS = frozenset(COLUMNS) - {"id", "signature", "words", "method_zh"}


@dataclass(frozen=True)
class Query:
    """What part of the list is wanted. Empty strings mean: everything."""

    text: str = ""
    status: str = ""
    surrogate: str = ""
    data: str = ""
    with_model: bool = False
    sort: str = "started"
    descending: bool = True
    offset: int = 0
    limit: int = 50


class Index:
    """Thread-safe: one connection, one lock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.done, self.total = 0, 0  # progress of the pass that is running
        self.scanned = False
        self._told: set[Path] = set()  # folders that may not be read: named once, not at every look
        self._lock = threading.Lock()
        self._connection, self.in_memory = _open(root)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def reopen(self) -> None:
        """Begin again with an empty index, after the file was found damaged."""
        with self._lock:
            self._connection.close()
            self._connection, self.in_memory = _open(self.root)

    def refresh(self, stop: threading.Event | None = None) -> int:
        """Read folders that are new or have changed, forget those that are gone; returns how many were read."""
        found = {run_id(self.root, folder): folder for folder in self._folders()}
        with self._lock:
            rows = self._connection.execute("SELECT id, signature, status FROM runs").fetchall()
        known = {identifier: (mark, status) for identifier, mark, status in rows}
        gone = [(identifier,) for identifier in known if identifier not in found]
        changed = []
        for identifier, folder in found.items():
            mark, (before, status) = signature(folder), known.get(identifier, ("", ""))
            # whether a process is still behind a running run is not written in any file
            if mark != before or status == "running":
                changed.append((folder, mark))
        self.done, self.total = 0, len(changed)
        with self._lock, self._connection as transaction:
            transaction.executemany("DELETE FROM runs WHERE id = ?", gone)
        for start in range(0, len(changed), BATCH):
            if stop is not None and stop.is_set():
                return start
            batch = [self._row(folder, mark) for folder, mark in changed[start : start + BATCH]]
            with self._lock, self._connection as transaction:
                transaction.executemany(
                    f"INSERT OR REPLACE INTO runs VALUES ({','.join('?' * len(COLUMNS))})",
                    [[row[name] for name in COLUMNS] for row in batch],
                )
            self.done += len(batch)
        self.scanned = True
        return len(changed)

    def _folders(self) -> list[Path]:
        try:
            return find_runs([self.root], self._told)
        except UsageError:  # an empty folder is not an error here: the first run may be started from the page
            return []

    def _row(self, folder: Path, mark: str) -> dict[str, Any]:
        try:
            return summarise(self.root, folder, mark)
        except Exception as error:  # one strange folder must not hide the others
            log.warning("%s could not be read: %s", folder, error)
            name = folder.name.encode("utf-8", "replace").decode()
            row: dict[str, Any] = dict.fromkeys(COLUMNS)
            return row | {"id": run_id(self.root, folder), "signature": mark, "name": name, "status": "unknown",
                          "folder": "", "words": name.lower(), "has_model": 0, "notes": 1}  # fmt: skip

    def page(self, query: Query) -> dict[str, Any]:
        """One page of the list: rows, how many there are in all, and what can be filtered by."""
        where, values = _conditions(query)
        sort = query.sort if query.sort in SORTS else "started"
        direction = "DESC" if query.descending else "ASC"
        order = f"{sort} IS NULL, {sort} {direction}, id"  # runs without the number come last either way
        limit, offset = max(1, min(query.limit, LARGEST_PAGE)), max(0, min(query.offset, 2**31))
        with self._lock:
            total = self._connection.execute(f"SELECT COUNT(*) FROM runs{where}", values).fetchone()[0]
            cursor = self._connection.execute(
                f"SELECT * FROM runs{where} ORDER BY {order} LIMIT ? OFFSET ?", [*values, limit, offset]
            )
            rows = [_public(row) for row in cursor.fetchall()]
            facets = {name: self._facet(name) for name in ("status", "surrogate", "data")}
        return {"total": total, "rows": rows, "facets": facets, "indexing": self._progress()}

    def get(self, identifier: str) -> dict[str, Any]:
        """The row of one run. The only way from an address to a folder: what is not in the index is not opened."""
        with self._lock:
            row = self._connection.execute("SELECT * FROM runs WHERE id = ?", [identifier]).fetchone()
        if row is None:
            raise RunFolderError("There is no such run in this folder.", "It may have been moved or deleted.")
        return _public(row)

    def path(self, identifier: str) -> Path:
        """The folder of a run."""
        self.get(identifier)
        return run_path(self.root, identifier)

    def _facet(self, name: str) -> list[str]:
        rows = self._connection.execute(f"SELECT DISTINCT {name} FROM runs WHERE {name} IS NOT NULL ORDER BY 1")
        return [value for (value,) in rows.fetchmany(200)]

    def _progress(self) -> dict[str, Any]:
        busy = not self.scanned or self.done < self.total
        return {"busy": busy, "done": self.done, "total": self.total}


def _public(row: tuple[Any, ...]) -> dict[str, Any]:
    named = dict(zip(COLUMNS, row, strict=True))
    return {key: value for key, value in named.items() if key not in {"signature", "words"}}


def _conditions(query: Query) -> tuple[str, list[str]]:
    parts, values = [], []
    for word in query.text.lower().split()[:8]:
        parts.append("words LIKE ? ESCAPE '\\'")
        escaped = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        values.append(f"%{escaped.encode('utf-8', 'replace').decode()}%")
    for name in ("status", "surrogate", "data"):
        if wanted := getattr(query, name):
            parts.append(f"{name} = ?")
            values.append(wanted)
    if query.with_model:
        parts.append("has_model = 1")
    return (" WHERE " + " AND ".join(parts) if parts else ""), values


def _open(root: Path) -> tuple[sqlite3.Connection, bool]:
    """The index file, made anew when it is damaged or of another version; in memory when it cannot be written."""
    path = root / FILE
    for _ in range(2):
        try:
            connection = sqlite3.connect(path, timeout=10, check_same_thread=False)
            _prepare(connection)
            return connection, False
        except sqlite3.OperationalError:  # the folder cannot be written, or is no place for a database
            break
        except sqlite3.DatabaseError as error:
            log.info("the index %s is damaged and is made anew: %s", path.name, error)
            with contextlib.suppress(OSError):
                path.unlink()
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    _prepare(connection)
    return connection, True


def _prepare(connection: sqlite3.Connection) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    with connection:
        if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            connection.execute("DROP TABLE IF EXISTS runs")
        connection.execute(f"CREATE TABLE IF NOT EXISTS runs ({columns})")
        connection.execute(f"PRAGMA user_version = {VERSION}")
