"""Roll call's loss on a CPU: the nodes of its integral together, beside one at a time, and beside EM's loss.

    python benchmarks/draw.py

Forward and backward of a step's loss, milliseconds; a stack is so many probes at once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from _timing import race

import onelabel
from onelabel.labels import Labels
from onelabel.losses import draw

SHAPES = ((8, 20), (16, 53), (32, 159), (64, 1000), (30, 16, 20), (30, 32, 159))


def step(name: str, shape: tuple[int, ...], together: int) -> Callable[[], object]:
    stack = shape[0] if len(shape) == 3 else None
    observed = torch.nn.functional.one_hot(torch.randint(shape[-1], shape[-2:-1]), shape[-1]).to(torch.int8)
    criterion = onelabel.method(name, stack=stack).bind(Labels.from_matrix(observed.numpy()))
    logits = torch.randn(shape, requires_grad=True)

    def work() -> None:
        draw.TOGETHER = together
        logits.grad = None
        criterion(logits, observed).sum().backward()

    return work


def main() -> None:
    whole = draw.TOGETHER
    print(f"{'shape':14s} EM      a node at a time   together   ratio   ({torch.get_num_threads()} threads)")
    for shape in SHAPES:
        torch.manual_seed(0)
        asked = {"em": ("em", whole), "one": ("roll-call", 1), "all": ("roll-call", whole)}
        took = race({key: step(name, shape, limit) for key, (name, limit) in asked.items()}, "cpu")
        em, one, both = took["em"], took["one"], took["all"]
        print(f"{'×'.join(map(str, shape)):14s} {em:6.3f}  {one:10.3f}  {both:15.3f}  {one / both:8.2f}")


if __name__ == "__main__":
    main()
