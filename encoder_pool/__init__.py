"""Tiles of pictures in, embeddings out: the pool of Llama 4 vision encoders."""
