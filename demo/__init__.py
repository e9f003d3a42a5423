"""The small Llama 4 checkpoint that the embedded default serves, and how it is made."""
