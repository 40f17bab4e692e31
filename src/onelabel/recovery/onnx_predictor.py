"""`OnnxPredictor`: an exported classifier under ONNX Runtime; needs numpy, onnxruntime and Pillow, not torch."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.system import one_line, reading


class OnnxPredictor:
    """Probabilities of every class for pictures (or features), from a file that `onelabel export --to onnx` wrote.

        predictor = OnnxPredictor("model.onnx")
        p = predictor(["a.jpg", "b.jpg"])           # 2×L; columns as in predictor.class_names
        predictor.labels("a.jpg", threshold=0.5)    # [("dog", 0.93), …]

    Pictures are paths or uint8 arrays H×W×3; they are turned upright and squashed to the size of training.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, providers: Sequence[str] | None = None, threads: int = 0
    ) -> None:
        try:
            onnxruntime: Any = importlib.import_module("onnxruntime")
        except ImportError:
            raise ImportError("OnnxPredictor needs onnxruntime: pip install 'onelabel[export]'") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        chosen = list(providers) if providers is not None else onnxruntime.get_available_providers()
        self.path = os.fspath(path)
        with reading(path, "a model exported by onelabel"):
            self.session = onnxruntime.InferenceSession(os.fspath(path), options, providers=chosen)
            about = self.session.get_modelmeta().custom_metadata_map.get("onelabel")
            if about is None:
                raise ValueError("no 'onelabel' in its metadata")
            found = json.loads(about)
            self.class_names: tuple[str, ...] = tuple(found["class_names"])
            self.size: int | None = found["size"]  #: pixels of a side; None where the inputs are features
            self.input = self.session.get_inputs()[0].name

    def __call__(self, inputs: Any, *, batch_size: int = 32) -> NDArray[np.float32]:
        """N×L probabilities of pictures (paths or arrays), or of features N×D."""
        if self.size is None:
            X = np.ascontiguousarray(np.asarray(inputs, np.float32))
            return self._run([X[i : i + batch_size] for i in range(0, len(X), batch_size)])
        if isinstance(inputs, (str, os.PathLike)) or (isinstance(inputs, np.ndarray) and inputs.ndim == 3):
            inputs = [inputs]
        return self._run(self._batches(list(inputs), batch_size))

    def labels(self, picture: Any, *, threshold: float = 0.5) -> list[tuple[str, float]]:
        """The classes of one picture at or above a probability, likeliest first."""
        p = self([picture])[0]
        return [(self.class_names[i], float(p[i])) for i in np.argsort(-p) if p[i] >= threshold]

    def _batches(self, pictures: list[Any], size: int) -> Iterable[NDArray[Any]]:
        for start in range(0, len(pictures), size):
            yield np.stack([self._square(picture) for picture in pictures[start : start + size]])

    def _run(self, batches: Iterable[NDArray[Any]]) -> NDArray[np.float32]:
        parts = [self._one(batch) for batch in batches]
        if not parts:
            return np.zeros((0, len(self.class_names)), np.float32)
        out: NDArray[np.float32] = np.concatenate(parts)
        return out

    def _one(self, batch: NDArray[Any]) -> NDArray[np.float32]:
        try:
            found: NDArray[np.float32] = self.session.run(None, {self.input: batch})[0]
        except Exception as error:  # ONNX Runtime's have no class of their own in common
            raise ValueError(f"{self.path}: cannot score inputs {batch.shape} ({one_line(error)})") from None
        if found.shape != (len(batch), len(self.class_names)):
            raise ValueError(f"{self.path}: scores {found.shape}, expected {(len(batch), len(self.class_names))}")
        return found

    def _square(self, picture: Any) -> NDArray[np.uint8]:
        from onelabel.data.images import square_image

        assert self.size is not None
        raw = picture if isinstance(picture, (np.ndarray, bytes)) else os.fspath(picture)
        return square_image(raw, self.size)
