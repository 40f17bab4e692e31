"""Element-wise and batch losses: pure functions of (logits, observed), and the modules around them."""

from onelabel.losses.baselines import ANLS, BCE, IU, WAN, PseudoNegative, an, bce
from onelabel.losses.batch import EPR, PairwiseRanking, Penalised, pairwise_ranking
from onelabel.losses.draw import RollCall, draw_log_likelihood
from onelabel.losses.entropy import EM, EntMin, em
from onelabel.losses.focal import ASL, SPLC, Focal, Hill, asl, focal, hill, splc
from onelabel.losses.lasd import LASD, consistency, lasd
from onelabel.losses.robust import GR, gr

__all__ = [
    "ANLS",
    "ASL",
    "BCE",
    "EM",
    "EPR",
    "GR",
    "IU",
    "LASD",
    "SPLC",
    "WAN",
    "EntMin",
    "Focal",
    "Hill",
    "PairwiseRanking",
    "Penalised",
    "PseudoNegative",
    "RollCall",
    "an",
    "asl",
    "bce",
    "consistency",
    "draw_log_likelihood",
    "em",
    "focal",
    "gr",
    "hill",
    "lasd",
    "pairwise_ranking",
    "splc",
]
