"""Watches an application that is starting, and says when it is ready and how to ask it about a picture.

python -m demo.announce --config config.yaml   # beside `serve run config.yaml`; ends with it, or when it has spoken
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import httpx
import yaml

PICTURE = "demo/pictures/example.png"
QUESTION = "What do you see?"
LOOK_S = 3.0

CURL = """curl -s {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{{
  "model": "{model}", "max_tokens": 32, "temperature": 0,
  "messages": [{{"role": "user", "content": [
    {{"type": "image_url", "image_url": {{"url": "data:image/png;base64,'"$(base64 < {picture} | tr -d '\\n')"'"}}}},
    {{"type": "text", "text": "{question}"}}]}}]}}'"""


def curl(url: str, model: str) -> str:
    """The command that asks about the demo picture, ready to paste into a shell at the project's root."""
    return CURL.format(url=url, model=model, picture=PICTURE, question=QUESTION)


def address(config: dict[str, object]) -> tuple[str, str]:
    """(base URL, first served model name) of a Serve configuration."""
    http = config.get("http_options") or {}
    assert isinstance(http, dict)
    host = str(http.get("host", "127.0.0.1")).replace("0.0.0.0", "127.0.0.1")
    application = config["applications"][0]  # type: ignore[index]
    model = application["args"]["model"]
    names = model.get("served_names") or [model["source"]]
    return f"http://{host}:{http.get('port', 8000)}{application.get('route_prefix', '/').rstrip('/')}", names[0]


def say(message: str) -> None:
    print(f"[tessera] {message}", flush=True)


def watch(url: str, parent: int) -> bool:
    """Waits until `/health` answers 200, saying what is waited for; False where the parent process ended first."""
    said = ""
    started = time.monotonic()
    while os.getppid() == parent:
        try:
            answer = httpx.get(f"{url}/health", timeout=60)
            if answer.status_code == 200:
                return True
            waiting = answer.json()["error"]["message"] if answer.status_code == 503 else ""
        except (httpx.HTTPError, ValueError, KeyError):
            waiting = ""
        waiting = waiting or "starting: waiting for Ray Serve"
        if waiting != said:
            said = waiting
            say(f"{waiting} ({time.monotonic() - started:.0f} s)")
        time.sleep(LOOK_S)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo.announce", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", type=Path, required=True, help="the Serve configuration that is being started")
    options = parser.parse_args()
    url, model = address(yaml.safe_load(options.config.read_text()))
    if watch(url, os.getppid()):
        say(f"ready at {url}. Ask about a picture, from another terminal in this folder:\n\n{curl(url, model)}\n")


if __name__ == "__main__":
    main()
