"""MkDocs hooks: the catalogue and the notebooks are made while the site is built, never committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import catalogue
import notebooks
from mkdocs.structure.files import File


def on_config(config: Any) -> Any:
    """Fill the two sections of the navigation that are generated; leave out rooms whose page is not there yet."""
    docs = Path(config.docs_dir)
    generated = {"Methods": catalogue.names(), "Notebooks": sorted(notebooks.pages())}
    for section in config.nav:
        for title in section:
            if title in generated:
                section[title] = generated[title]
            elif title == "Rooms":
                section[title] = [page for page in section[title] if (docs / page).is_file()]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    for path, text in {**catalogue.pages(), **notebooks.pages()}.items():
        files.append(File.generated(config, path, content=text))
    return files
