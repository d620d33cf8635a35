"""The runtime: exported models that answer, with onnxruntime, tokenizers and numpy alone."""
