"""Kernels under the losses: a loss and its gradient in one pass over the logits, and nothing about methods.

`form` says what an element-wise loss is made of, `closed` has the curves with their derivatives written once, in words
that `torchwords` and `tritonwords` give a meaning. `blocked` evaluates them with torch on a CPU, `tiled` on a GPU with
the Triton kernels of `entries`, started by `launch`; `halves` has cheaper ways for half precision. What imports triton
(`tiled`, `entries`, `halves`, `tritonwords`, `placing`) is itself imported on first use.
"""
