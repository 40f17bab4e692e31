"""Starting a review: load what is new, say where the page is, open it, serve until interrupted."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

from onelabel.review.database import Database
from onelabel.review.export import export_file, import_answers, load_answers
from onelabel.review.load import load_audit, load_recovered
from onelabel.review.settings import Settings, is_loopback
from onelabel.review.source import read_audit, read_recovered


def read_token(path: Path | None) -> str | None:
    """The shared secret from a file or from ONELABEL_REVIEW_TOKEN."""
    if path is not None:
        return path.read_text(encoding="utf-8").strip()
    return os.environ.get("ONELABEL_REVIEW_TOKEN") or None


def default_database(recovered: Path) -> Path:
    """The SQLite file beside the recovered labels."""
    return recovered.with_suffix(".review.db")


def default_folder(recovered: Path) -> Path:
    """Where thumbnails, exports and training logs are kept."""
    return recovered.with_suffix(".review")


def default_retrain(run: Path | None) -> list[str]:
    """`onelabel train` of the run once more, into a folder beside it; nothing where it does not say on what data."""
    if run is None:
        return []
    from onelabel.training.again import is_run  # torch comes with it, which a page alone need not wait for

    if not is_run(run):
        return []
    program = [sys.executable, "-c", "from onelabel.cli import main; main()"]
    return [*program, "train", str(run), "--labels", "{labels}"]


def prepare(
    settings: Settings,
    recovered: Path,
    *,
    audit: Path | None = None,
    earlier: Path | str | None = None,
    say: Callable[[str], None] = print,
) -> Database:
    """Open the database and bring it up to date with the files."""
    source = read_recovered(recovered)
    db = Database(settings.db)
    count = load_recovered(db, source, min_probability=settings.min_probability, double_share=settings.double_share)
    if count:
        say(f"loaded {count:,} of {source.rows:,} entries of {source.path}")
    if audit is not None:
        say(f"audit: {load_audit(db, read_audit(audit), double_share=settings.double_share):,} pictures")
    if earlier is not None:
        result = import_answers(db, load_answers(earlier))
        stored, total = result["stored"], result["total"]
        say(f"imported {stored:,} of {total:,} decisions; {result['settled']:,} were settled already")
        if result["elsewhere"]:
            say(f"{earlier}: {result['elsewhere']:,} of them are about pictures that are not here, and are left out")
    return db


def export(db: Database, target: Path, say: Callable[[str], None] = print) -> None:
    """Write the answers and say so."""
    say(f"wrote {export_file(db, target):,} labels to {target}")


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; one line of error where that cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # named as TCP, or asyncio would not switch Nagle's delay off: 40 ms on every response
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        taken = error.errno == errno.EADDRINUSE
        reason = "is in use; pass another --port (0 for any)" if taken else f"cannot be used: {error.strerror}"
        raise OSError(f"{host}:{port} {reason}") from None
    return sock


def serve(settings: Settings, db: Database, *, browser: bool = True, say: Callable[[str], None] = print) -> None:
    """Serve the page until Ctrl-C."""
    import uvicorn

    from onelabel.review.app import create_app

    sock = listen(settings.host, settings.port)
    port = sock.getsockname()[1]
    shown = "localhost" if is_loopback(settings.host) else settings.host
    url = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"
    app = create_app(settings, db)
    config = uvicorn.Config(app, log_level="warning", server_header=False, proxy_headers=False, access_log=False)
    config.timeout_keep_alive = 75  # people think longer than the usual five seconds
    config.timeout_graceful_shutdown = 3  # a followed training log would keep the server from ending
    say(f"review at {url} (Ctrl-C ends it); answers in {db.url.render_as_string(hide_password=True)}")
    if browser and is_loopback(settings.host):
        threading.Timer(1.0, webbrowser.open, (url,)).start()
    uvicorn.Server(config).run(sockets=[sock])
