"""Review at scale: a million suggestions, twenty people at once, on one machine.

    python benchmarks/review.py --suggestions 1000000 --reviewers 20 --seconds 30

Measures loading (rows a second, peak memory), opening the page in Chromium, and the time from sending an answer to
having the server's word that it is stored. Every reviewer does what the page does: lease a page of 24 items, answer
one by one after thinking, ask for the running numbers after each. `--think 0` measures the closed loop instead.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np

CHROMIUM = "/usr/bin/chromium"


def write_data(folder: Path, suggestions: int, classes: int) -> Path:
    """A recovered.parquet of `suggestions` distinct entries over 200 drawn pictures."""
    from PIL import Image

    from onelabel.review import write_recovered

    rng = np.random.default_rng(0)
    (folder / "pictures").mkdir()
    for i in range(200):
        noise = rng.integers(0, 255, (15, 20, 3), np.uint8)
        Image.fromarray(noise).resize((640, 480)).save(folder / "pictures" / f"{i}.jpg", quality=85)
    rows = np.arange(suggestions) // 10
    columns = {
        "row": rows,
        "example": [f"pictures/{row % 200}.jpg" for row in rows],
        "class_index": (np.arange(suggestions) % 10 + rows * 7) % classes,
        "probability": rng.beta(1.2, 2.5, suggestions).clip(0.051, 0.999),
        "observed": np.zeros(suggestions, np.int8),
        "rank": np.arange(suggestions),
    }
    names = [f"class {i}" for i in range(classes)]
    write_recovered(folder / "recovered.parquet", columns, root=".", class_names=names)
    return folder / "recovered.parquet"


def load(recovered: Path, db: str) -> dict[str, float]:
    """Load in a process of its own, so that its peak memory is its own."""
    code = (
        "import re, sys, time, json\n"
        "from onelabel.review import read_recovered\n"
        "from onelabel.review.database import Database\n"
        "from onelabel.review.load import load_recovered\n"
        "peak = lambda: int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1]) / 1024\n"
        "before = peak()\n"
        "start = time.perf_counter()\n"
        "count = load_recovered(Database(sys.argv[2]), read_recovered(sys.argv[1]))\n"
        "print(json.dumps({'items': count, 's': time.perf_counter() - start, 'cpu_s': time.process_time(),"
        " 'peak_mib': peak(), 'before_mib': before}))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(recovered), db], capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def start(recovered: Path, db: str, port: int) -> subprocess.Popen[bytes]:
    code = "from onelabel.cli.review import app; app()"
    command = [sys.executable, "-c", code, str(recovered), "--db", db, "--port", str(port), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while True:
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return process
        if process.poll() is not None:
            raise SystemExit("the server did not start")
        time.sleep(0.05)


class Reviewer(threading.Thread):
    """One person with a browser: leases, thinks, answers, looks at the numbers."""

    def __init__(self, port: int, number: int, stop: float, think: float, classes: int) -> None:
        super().__init__(daemon=True)
        self.port, self.number, self.stop, self.think, self.classes = port, number, stop, think, classes
        self.random = random.Random(number)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.cookie = ""
        self.times: dict[str, list[float]] = {"answers": [], "queue": [], "progress": []}
        self.refused = 0

    def call(self, method: str, path: str, body: Any = None) -> tuple[float, Any]:
        headers = {"X-Onelabel-Client": "benchmark", "X-Onelabel-Tab": f"tab{self.number}", "Cookie": self.cookie}
        data = None if body is None else json.dumps(body)
        if data is not None:
            headers["Content-Type"] = "application/json"
        begin = time.perf_counter()
        self.connection.request(method, f"/api{path}", data, headers)
        response = self.connection.getresponse()
        payload = response.read()
        took = time.perf_counter() - begin
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {payload[:200]!r}")
        if cookie := response.getheader("set-cookie"):
            self.cookie = cookie.split(";")[0]
        return took, json.loads(payload)

    def run(self) -> None:
        self.call("POST", "/session", {"name": f"reviewer {self.number}"})
        time.sleep(self.random.random() * max(self.think, 0.01))
        at = self.random.randrange(self.classes)
        while time.perf_counter() < self.stop:
            took, page = self.call("POST", "/queue", {"class_index": at, "count": 24})
            self.times["queue"].append(took)
            for item in page["items"]:
                if self.think:
                    time.sleep(self.random.expovariate(1 / self.think))
                if time.perf_counter() >= self.stop:
                    return
                said = {"item": item["id"], "answer": self.random.choice(["yes", "no"])}
                took, stored = self.call("POST", "/answers", {"request_id": uuid.uuid4().hex, "answers": [said]})
                self.times["answers"].append(took)
                self.refused += stored["results"][0]["status"] != "stored"
                self.times["progress"].append(self.call("GET", f"/progress?class_index={at}")[0])


def open_page(port: int) -> list[float]:
    """Seconds from navigation to a page with its 24 tiles, in new browsers; the first is cold."""
    if not Path(CHROMIUM).exists():
        return []
    from playwright.sync_api import sync_playwright

    times = []
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"]
        )
        for _ in range(5):
            context = browser.new_context(viewport={"width": 1280, "height": 800})
            page = context.new_page()
            begin = time.perf_counter()
            page.goto(f"http://localhost:{port}/", wait_until="commit")
            page.wait_for_selector(".tile")
            times.append(time.perf_counter() - begin)
            context.close()
        browser.close()
    return times


def page_requests(port: int) -> float:
    """Seconds for everything the page asks for before it shows its tiles, one request after another."""
    person = Reviewer(port, 999, 0.0, 0.0, 1)
    static = ["app.css", "app.js", "ui.js", "api.js", "sidebar.js", "grid.js", "picture.js", "progress.js"]
    begin = time.perf_counter()
    for path in ["/", *(f"/static/{name}" for name in static)]:
        person.connection.request("GET", path)
        person.connection.getresponse().read()
    person.call("GET", "/me")
    person.call("GET", "/classes?limit=200")
    person.call("POST", "/queue", {"class_index": 0, "count": 24})
    return time.perf_counter() - begin


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def take_priority(nice: int) -> None:
    """Run this process and its children before others; Linux groups processes by session, so it takes its own."""
    with contextlib.suppress(PermissionError):  # already the leader of one
        os.setsid()
    os.nice(nice)
    group = Path("/proc/self/autogroup")
    if group.exists():
        group.write_text(str(nice))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suggestions", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=80)
    parser.add_argument("--reviewers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--think", type=float, default=0.7, help="mean seconds before an answer; 0: closed loop")
    parser.add_argument("--db", default=None, help="PostgreSQL URL of an empty database; default SQLite")
    parser.add_argument("--nice", type=int, default=0, help="priority on a machine that others use too, as -15")
    args = parser.parse_args()
    if args.nice:
        take_priority(args.nice)
    folder = Path(tempfile.mkdtemp(prefix="review-bench-"))
    process = None
    try:
        recovered = write_data(folder, args.suggestions, args.classes)
        db = args.db or str(folder / "reviewed.db")
        result: dict[str, Any] = {"load": load(recovered, db), "load_average": os.getloadavg(), "cores": os.cpu_count()}
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        process = start(recovered, db, port)
        time.sleep(8)  # the picture reader is imported in the background
        result["page_s"] = [round(t, 3) for t in open_page(port)]
        result["page_requests_ms"] = round(1000 * page_requests(port), 1)
        used, begin = cpu_seconds(process.pid), time.perf_counter()
        people = [Reviewer(port, i, begin + args.seconds, args.think, args.classes) for i in range(args.reviewers)]
        for person in people:
            person.start()
        for person in people:
            person.join()
        wall = time.perf_counter() - begin
        for name in ("answers", "queue", "progress"):
            times = np.concatenate([person.times[name] for person in people]) * 1000
            quantiles = {f"p{q:g}": round(float(np.percentile(times, q)), 2) for q in (50, 95, 99, 100)}
            result[f"{name}_ms"] = {"count": len(times), **quantiles}
        result["refused"] = sum(person.refused for person in people)
        result["answers_per_s"] = round(result["answers_ms"]["count"] / wall, 1)
        requests = sum(len(times) for person in people for times in person.times.values())
        result["server_cpu_ms_per_request"] = round(1000 * (cpu_seconds(process.pid) - used) / requests, 2)
        result["load_average_after"] = os.getloadavg()
        print(json.dumps(result, indent=2))
    finally:
        if process is not None:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
