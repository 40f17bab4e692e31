"""Kernels under the losses: a loss and its gradient in one pass over the logits, and nothing about methods.

`form` says what an element-wise loss is made of, `closed` has the curves with their derivatives written once, `blocked`
evaluates them with torch on a CPU, `tiled` with Triton on a GPU (it imports triton; nothing else here does).
"""
