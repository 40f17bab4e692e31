"""From teacher to student within a run: where the network began, and what the teacher says of the training set."""

from __future__ import annotations

from typing import Any

from onelabel.contract import Method
from onelabel.labels import Labels
from onelabel.models import Classifier
from onelabel.system import say
from onelabel.training.config import TrainConfig
from onelabel.training.evaluate import draws
from onelabel.training.feeds import Feed
from onelabel.training.files import explaining, read_tensors, write_tensors
from onelabel.training.looking import Belief, Looks, believe
from onelabel.training.machine import TrainingError
from onelabel.training.run import RunFolder
from onelabel.training.session import Session
from onelabel.training.sharding import fill_state, full_state
from onelabel.training.stopping import Best
from onelabel.training.student import Student, targets

HEAD = "start-head.safetensors"


def wants_student(config: TrainConfig, criterion: Method, feeds: dict[str, Feed]) -> bool:
    """Whether a student follows: where told to, or where the method asks for one and held-out rows allow it."""
    told = config.student == "on"
    if not told and not (config.student == "auto" and criterion.student):
        return False
    missing = student_lacks(config, feeds.get("validation"))
    if missing and told:
        raise ValueError(f"student: 'on' needs {missing}")
    if missing:
        say(f"no student follows, which needs {missing}")
    return not missing


def student_lacks(config: TrainConfig, feed: Feed | None) -> str:
    """What a student needs and has not, of the held-out rows `feed` before all."""
    if config.strategy == "fsdp":  # whose split weights cannot be put back to where they began
        return "whole weights in each process: strategy 'auto' or 'ddp'"
    if feed is None:
        return "a validation part, whose rows tell how sure the teacher may be"
    if feed.true is None and not draws(feed):
        return "validation rows with true labels, or with exactly one observed positive"
    return ""


def told_of(belief: Belief, closer: bool) -> str:
    """What they made of the teacher's closer look, where it took one, and of the other classes."""
    looked = f"; a closer look counts {belief.weight:g} times" if closer else ""
    if belief.context is None:
        return f"{looked}; each class by itself"
    return f"{looked}; each class also by what the others say (learned from these rows, whose mAP it flatters)"


class Start:
    """Where a teacher begins, so that its student can begin there too.

    The backbone is what the run was given, the head after a linear phase the linear one, which is kept in the run
    folder for a run that is resumed. The head stays on the method's own scale: put on that of probabilities first, the
    student had little left to learn from, and stayed below its teacher (docs/roll-call-tried.md).
    """

    def __init__(self, classifier: Classifier, folder: RunFolder, *, resumed: bool = False) -> None:
        """`resumed`: after a linear phase that another process trained."""
        self.classifier, self.folder = classifier, folder
        self.weights = {name: value.detach().cpu().clone() for name, value in full_state(classifier).items()}
        self.path = None if folder.path is None else folder.path / HEAD
        if self.path is not None and resumed:
            if not self.path.is_file():
                raise TrainingError(f"{self.path}: is missing, from which the student would start; begin a new run")
            self.weights |= read_tensors(self.path)

    def keep_head(self, best: Best) -> None:
        """After the linear phase: its best head."""
        head = {name: value.detach().cpu().clone() for name, value in best.weights.items() if name.startswith("head.")}
        self.weights |= head
        if self.path is not None and self.folder.writes:
            with explaining(self.path.parent):
                write_tensors(self.path, head)

    def teach(self, session: Session, feeds: dict[str, Feed], best: Best, splits: Any) -> Student:
        """After the teacher: its probabilities of the training set, and the network back where it began."""
        fill_state(session.classifier, best.weights)
        config, held = session.config, feeds["validation"]
        closer = config.student_looks == "closer" and not session.phase.head_only  # features have no parts
        observed: Labels = splits.train.observed
        context, show = config.student_context == "auto", session.fabric.is_global_zero
        belief = believe(Looks.take(session, held, closer=closer), held, observed, context=context, show=show)
        looks = Looks.take(session, feeds["train"], closer=closer and belief.weight > 0).combined(belief.weight)
        q = targets(belief, looks, session.train.observed, smoothing=config.student_smoothing or 0.0)
        say(f"student: {belief.line.k:.2f} labels a row by the held-out rows{told_of(belief, closer)}")
        fill_state(self.classifier, self.weights, strict=False)  # what probes chose of the head (`naming`) stays
        made = Student()
        made.bind(observed)
        return made.to(q.device).teach(q)
