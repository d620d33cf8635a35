"""Training: the loop, its CUDA graphs, optimisers, checkpoints and several models on one GPU."""
