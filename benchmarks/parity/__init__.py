"""Tessera against monolithic vLLM on one GPU: the same checkpoint, requests, order and load generator."""
