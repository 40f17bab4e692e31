"""Screenshots of a report: python tests/report/screenshots.py REPORT.html OUT (-desktop.png light, -phone.png dark)."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright


def main(report: Path, out: str) -> None:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        for name, width, scheme in (("desktop", 1440, "light"), ("phone", 390, "dark")):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto(report.resolve().as_uri())
            page.wait_for_selector("html[data-ready]")
            shot = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
            shot.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
                f"{out}-{name}.png", optimize=True
            )
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
