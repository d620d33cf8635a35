"""Triton kernels: the few operations that torch has no fast form of. Imported on CUDA machines only."""
