"""What no test of behaviour can promise for code that is still to come: read by syntax tree, over all of src."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from source_calls import Call, calls, trees

FORBIDDEN = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml", "jsonpickle"}
RUNS_CODE = {"eval", "exec", "pd.read_pickle", "pandas.read_pickle", "torch.package.PackageImporter", "os.system"}


def _keyword(call: Call, name: str) -> object:
    found = [k.value.value for k in call.node.keywords if k.arg == name and isinstance(k.value, ast.Constant)]
    return found[0] if found else None


def test_nothing_imports_a_module_that_unpickles() -> None:
    for file, tree in trees():
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            bad = [name for name in names if name.split(".")[0] in FORBIDDEN]
            assert not bad, f"{file} imports {bad[0]}"


def test_no_loader_may_run_code() -> None:
    for call in calls():
        where = f"{call.file}:{call.node.lineno} {call.name}"
        assert call.name not in RUNS_CODE, where
        if call.name in ("np.load", "numpy.load", "np.lib.npyio.NpzFile"):
            assert _keyword(call, "allow_pickle") is False, f"{where}: say allow_pickle=False"
        if call.name in ("np.save", "numpy.save"):
            assert _keyword(call, "allow_pickle") is False, f"{where}: say allow_pickle=False"
        if call.name == "torch.load":
            assert _keyword(call, "weights_only") is True, f"{where}: say weights_only=True"
        if call.name.endswith(("load_dataset", "load_from_disk")):
            assert _keyword(call, "trust_remote_code") is not True, where


#: What parses the contents of a file.
PARSERS = {"np.load", "json.load", "json.loads", "read_json", "read_toml", "tomllib.loads", "safe_open", "load_file"}
PARSERS |= {
    ".load_file",
    "torch.load",
    "torch.jit.load",
    "onnx.load",
    "zipfile.ZipFile",
    "tarfile.open",
    "csv.read_csv",
}
PARSERS |= {"csv.reader", "csv.DictReader", "csv_reader.reader", "tree_parser.fromstring", "image_module.open"}
PARSERS |= {"Image.open", "onnxruntime.InferenceSession", "datasets.load_from_disk", "datasets.load_dataset"}
PARSER_ENDS = (
    ".read_table",
    ".ParquetFile",
    ".read_schema",
    ".read_text",
    ".read_bytes",
    ".read_parquet",
    ".safe_open",
)

#: File → the readers of tests/fuzz that go through it, or ("-", why it reads nothing that a stranger wrote).
READ_BY: dict[str, tuple[str, ...]] = {
    "data/archives.py": ("archive a.zip", "archive a.tar", "archive a.tar.gz"),
    "data/arff.py": ("matrix m.arff", "matrix sparse arff"),
    "data/cache.py": ("weights for features w.safetensors", "weights for features w.pth"),
    "data/coco.py": ("coco",),
    "data/cub.py": ("cub",),
    "data/download.py": ("download under way",),
    "data/hf.py": ("hf",),
    "data/images.py": ("pictures",),
    "data/journal.py": ("cache", "cache under way"),
    "data/kept.py": ("what the cache keeps",),
    "data/manifest.py": ("manifest",),
    "data/matrices.py": ("matrix m.npz", "matrix npy", "matrix m.parquet", "matrix lists"),
    "data/memory.py": ("-", "the kernel's files"),
    "data/nuswide.py": ("nuswide",),
    "data/own.py": ("class names",),
    "data/pictures.py": ("cache",),
    "data/tables.py": ("table.csv", "table.tsv", "table.jsonl", "table.parquet"),
    "data/voc.py": ("voc",),
    "data/webdataset.py": ("webdataset",),
    "labels/storage.py": ("labels.npz", "labels.parquet"),
    "models/weights.py": ("weights w.safetensors", "weights w.pth"),
    "probes/features.py": ("-", "the kernel's files"),
    "probes/role_table.py": ("packed features",),
    "recovery/answers.py": ("audit's answers.parquet", "audit's answers.csv", "audit's all.csv"),
    "recovery/audit.py": ("audit plan",),
    "training/carried.py": ("run's calibration",),
    "recovery/deploy.py": ("-", "what it has just written itself"),
    "recovery/inputs.py": ("packed features to recover",),
    "recovery/onnx_predictor.py": ("onnx",),
    "recovery/prediction.py": ("list of pictures",),
    "recovery/table.py": ("recovered labels",),
    "review/answers.py": ("-", "the body of a request, checked by pydantic; tests/review/test_openapi.py"),
    "review/apply.py": ("labels to train on",),
    "review/export.py": ("review's answers", "review database"),
    "review/load.py": ("review database",),
    "review/pictures.py": ("-", "bytes handed on as they are"),
    "review/routes_files.py": ("-", "what it has just written itself"),
    "review/serve.py": ("-", "a token of the server's owner"),
    "review/source.py": ("recovered labels in review", "audit plan"),
    "system.py": ("run folder",),
    "cli/options.py": ("-", "the command line"),
    "training/again.py": ("run's origin",),
    "training/checkpoint.py": ("checkpoint",),
    "training/config.py": ("run folder", "recipe"),
    "training/files.py": ("run folder", "checkpoint"),
    "training/recipes.py": ("recipe",),
    "training/recording.py": ("run folder",),
    "training/restore.py": ("run folder",),
    "training/run.py": ("run folder",),
}
#: Rooms whose files come from the program's own measurements and demo, not from strangers.
OWN = ("bench/", "report/", "demo/", "doctor/")


def test_every_file_that_parses_is_fuzzed() -> None:
    pytest.importorskip("sqlalchemy")
    sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))
    import fuzz_benchmarks  # noqa: F401 - they enter themselves
    import fuzz_outer  # noqa: F401
    import fuzz_runs  # noqa: F401
    from fuzz_readers import READERS

    parsing = {c.file for c in calls() if c.name in PARSERS or c.name.endswith(PARSER_ENDS)}
    parsing = {file for file in parsing if not file.startswith(OWN)}
    assert parsing <= set(READ_BY), f"{sorted(parsing - set(READ_BY))} read files: enter them in tests/fuzz and here"
    assert set(READ_BY) <= parsing, f"{sorted(set(READ_BY) - parsing)} read no files any more"
    named = {name for names in READ_BY.values() if names[0] != "-" for name in names}
    assert named <= set(READERS)


#: Entered by a writer that makes its target whole at the end.
ATOMIC = {"atomic_path", "atomic_file", "_building", "tempfile.TemporaryDirectory"}
WRITES = (".write_text", ".write_bytes", ".savefig", ".savez", ".savez_compressed", ".write_table", ".ParquetWriter")
WRITES += (".save_file", ".to_csv", ".to_parquet", ".copyfile", ".save_to_disk", "np.save", "torch.save", "onnx.save")
WRITES += ("jit.save", ".open_memmap", "json.dump")
#: (file, function) → why writing in place is right there.
IN_PLACE = {
    ("bench/store.py", "create"): "a claim: made exclusively, and a half-written one counts as taken",
    ("data/archives.py", "_copy"): "into a fresh folder that is moved at the end",
    ("data/journal.py", "locked"): "a lock",
    ("data/journal.py", "done"): "a journal: only appended to, half a line is ignored",
    ("data/journal.py", "__init__"): "NAME.partial.npy, renamed when whole",
    ("data/journal.py", "_reserve"): "the same, no byte of it written",
    ("labels/storage.py", "_write_npz"): "gets the temporary name from save",
    ("labels/storage.py", "_write_parquet"): "gets the temporary name from save",
    ("recovery/deploy.py", "_onnx"): "gets the temporary name from export_run",
    ("recovery/deploy.py", "_torchscript"): "gets the temporary name from export_run",
    ("report/style.py", "svg"): "into memory",
    ("review/pictures.py", "_store"): "a temporary name, replaced when whole",
    ("review/retrain.py", "start"): "a log",
    ("review/retrain.py", "_spawn"): "a log",
    ("system.py", "clear_stale"): "for its lock, then removed",
    ("training/run.py", "_take"): "a lock",
    ("training/run.py", "_note"): "a log, only appended to",
}


def _mode(call: Call) -> str:
    texts = [a.value for a in call.node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    texts += [str(_keyword(call, "mode") or "")]
    return next((text for text in texts if text and set(text) <= set("rwaxbt+")), "r")


def test_every_writer_is_atomic() -> None:
    found = set()
    for call in calls():
        opens = call.name.split(".")[-1] in ("open", "fdopen") and set(_mode(call)) & set("wax+")
        if not (opens or call.name.endswith(WRITES)) or ATOMIC & set(call.inside):
            continue
        where = (call.file, call.function)
        assert where in IN_PLACE, f"{call.file}:{call.node.lineno} {call.name}: write with onelabel.system.atomic_*"
        found.add(where)
