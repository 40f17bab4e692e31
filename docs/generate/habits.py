"""A griffe extension for this project's habits: ``#:`` remarks document attributes, reST roles are plain code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from griffe import Attribute, Docstring, Extension, Object

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):(`[^`]+`)")
REMARK = re.compile(r"#: (.+)$")


class Habits(Extension):
    """Seen by mkdocstrings while it reads the sources."""

    def on_attribute_instance(self, *, attr: Attribute, **kwargs: Any) -> None:
        """``seeds: int  #: repetitions`` has "repetitions" as its docstring; a line of its own above counts too."""
        if attr.docstring is not None or attr.lineno is None or not isinstance(attr.filepath, Path):
            return
        lines = attr.filepath.read_text(encoding="utf-8").splitlines()
        found = REMARK.search(lines[(attr.endlineno or attr.lineno) - 1])
        above = lines[attr.lineno - 2].strip() if attr.lineno > 1 else ""
        said = found.group(1) if found else above.removeprefix("#: ") if above.startswith("#: ") else ""
        if said:
            attr.docstring = Docstring(said, lineno=attr.lineno, parent=attr)

    def on_instance(self, *, obj: Object, **kwargs: Any) -> None:
        """``:class:`Labels``` is shown as code."""
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub(r"\1", obj.docstring.value)
