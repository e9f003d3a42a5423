"""Embeddings and a chat request in, an answer out: the pool of vLLM decoders."""
