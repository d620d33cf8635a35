"""Inference: models that answer, from their folders. An ONNX export needs onnxruntime, tokenizers and numpy alone."""
