"""Llama 4's chat format without the losses of the checkpoints' own template.

That one takes the first part of a leading system message for all of it, writes the pictures of a tool's message as
JSON, drops a message whose list of calls is empty, and shows calls in another form than vLLM's parser for this model
reads.
"""

from __future__ import annotations

from pathlib import Path

# `llm.frontend_kwargs.chat_template` by this name means CHAT_TEMPLATE.
LOSSLESS = "lossless"
CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")
