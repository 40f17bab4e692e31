"""Label Studio: tasks with pre-annotations."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from onelabel.recovery.table import RecoveredFile
from onelabel.system import atomic_file, atomic_write, refuse_existing

URL = "/data/local-files/?d="


def write_label_studio(file: RecoveredFile, out: Path) -> Path:
    """A JSON list of tasks, and beside it the labelling config (.xml): choices, several per picture.

    Pictures are addressed through Label Studio's local storage, relative to the dataset's folder. What was observed
    and what is called is chosen; the score is the least probability among the called, so that sorting by it shows
    doubtful pictures first.
    """
    described = out.with_suffix(".xml")
    if described == out:
        raise ValueError(
            f"{out}: expected a name for the tasks such as {out.stem}.json; the .xml beside them is the config"
        )
    refuse_existing(described)
    with atomic_file(out) as stream:
        stream.write(b"[")
        for n, example in enumerate(file.examples()):
            chosen = [file.class_names[at] for at, *_ in example.entries]
            added = [p for _, p, seen, _ in example.entries if seen == 0]
            result = {"from_name": "labels", "to_name": "image", "type": "choices", "value": {"choices": chosen}}
            prediction = {"model_version": "onelabel", "score": round(min(added, default=1.0), 6), "result": [result]}
            given = [file.class_names[at] for at, _, seen, _ in example.entries if seen > 0]
            data = {"image": URL + quote(example.example), "row": example.row, "observed": given}
            task = {"data": data, "predictions": [prediction] if chosen else []}
            text = ("," if n else "") + "\n" + json.dumps(task, ensure_ascii=False)
            stream.write(text.encode(errors="backslashreplace"))
        stream.write(b"\n]\n")
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in file.class_names)
    config = f"""<View>
  <Image name="image" value="$image"/>
  <Choices name="labels" toName="image" choice="multiple">
{choices}
  </Choices>
</View>
"""
    atomic_write(described, config)
    return out
