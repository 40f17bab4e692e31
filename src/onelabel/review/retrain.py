"""Retraining from the page: one command at a time, its output kept and followed live."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select, update

from onelabel.review.database import Database
from onelabel.review.export import export_file
from onelabel.review.models import Reviewer, Training
from onelabel.review.settings import Settings

CHUNK = 16_384


class Busy(RuntimeError):
    """A training runs already, or none is configured."""


class Trainer:
    """Starts, watches and stops the configured command."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self.db, self.settings = db, settings
        self.folder = settings.folder / "retrain"
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: threading.Thread | None = None
        self._cancelled = False
        with db.write() as connection:
            running = update(Training).where(Training.status == "running")
            connection.execute(running.values(status="interrupted", ended_at=time.time()))

    def start(self, reviewer: int) -> dict[str, Any]:
        """Export the answers and run the command on them; raises `Busy` while one runs."""
        if not self.settings.retrain:
            raise Busy("no training command was given; start the server with a run, or with --retrain")
        with self._lock:
            if self._process is not None:
                raise Busy("a training runs already")
            self.folder.mkdir(parents=True, exist_ok=True)
            new = insert(Training).values(
                reviewer_id=reviewer, command="", status="running", started_at=time.time(), log=""
            )
            with self.db.write() as connection:
                number = connection.execute(new.returning(Training.id)).scalar_one()
            log, labels = self.folder / f"{number}.log", self.folder / f"{number}.parquet"
            try:
                export_file(self.db, labels)
                command = self._command(labels)
                self._set(number, command=shlex.join(command), log=str(log))
                self._process = self._spawn(command, log)
            except OSError as error:
                log.write_text(f"{error}\n", encoding="utf-8")
                self._set(number, status="failed", ended_at=time.time())
                return self.latest() or {}
            self._cancelled = False
            self._watcher = threading.Thread(target=self._watch, args=(number, self._process), daemon=True)
            self._watcher.start()
        return self.latest() or {}

    def _command(self, labels: Path) -> list[str]:
        fill = {"labels": str(labels), "run": str(self.settings.run or "")}
        words = []
        for word in self.settings.retrain:
            for name, value in fill.items():
                word = word.replace("{" + name + "}", value)
            words.append(word)
        return words

    def _spawn(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        environment = {k: v for k, v in os.environ.items() if k != "ONELABEL_REVIEW_TOKEN"}
        environment["PYTHONUNBUFFERED"] = "1"
        with open(log, "wb") as out:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that a cancellation reaches its workers too
                env=environment,
            )

    def _watch(self, number: int, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        status = "cancelled" if self._cancelled else "succeeded" if code == 0 else "failed"
        self._set(number, status=status, exit_code=code, ended_at=time.time())
        with self._lock:
            self._process = None

    def _set(self, number: int, **values: Any) -> None:
        with self.db.write() as connection:
            connection.execute(update(Training).where(Training.id == number).values(values))

    def cancel(self, patience: float = 10.0) -> bool:
        """End the running training and everything it started; whether there was one."""
        with self._lock:
            process, watcher = self._process, self._watcher
            if process is None or watcher is None:
                return False
            self._cancelled = True
        for sign, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, patience)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
            watcher.join(wait)
            if not watcher.is_alive():
                break
        return True

    def latest(self) -> dict[str, Any] | None:
        """The newest training, for the page."""
        query = select(Training, Reviewer.name).join(Reviewer, Reviewer.id == Training.reviewer_id)
        with self.db.read() as connection:
            row = connection.execute(query.order_by(Training.id.desc()).limit(1)).first()
        if row is None:
            return None
        names = ("id", "status", "exit_code", "started_at", "ended_at", "command")
        return {**{name: getattr(row, name) for name in names}, "reviewer": row.name}

    async def follow(self, offset: int) -> AsyncIterator[str]:
        """Server-sent events: pieces of the newest training's log from `offset` on, its status, and the end.

        An event's id is the offset after it, so that a browser that reconnects misses nothing.
        """
        latest = await asyncio.to_thread(self.latest)
        while latest is not None:
            path = self.folder / f"{latest['id']}.log"
            text, offset = await asyncio.to_thread(_read, path, offset)
            if text:
                yield f"id: {offset}\nevent: log\ndata: {json.dumps({'text': text, 'training': latest['id']})}\n\n"
                continue
            yield f"event: status\ndata: {json.dumps(latest)}\n\n"
            if latest["status"] != "running":
                break
            await asyncio.sleep(0.25)
            latest = await asyncio.to_thread(self.latest)
        yield "event: end\ndata: {}\n\n"


def _read(path: Path, offset: int) -> tuple[str, int]:
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(CHUNK)
    except OSError:
        return "", offset
    # a character cut in two waits for its other half
    for cut in range(len(data), max(len(data) - 4, 0), -1):
        with contextlib.suppress(UnicodeDecodeError):
            return data[:cut].decode("utf-8"), offset + cut
    return data.decode("utf-8", "replace"), offset + len(data)
