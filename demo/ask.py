"""Asks a running Tessera about a picture and prints the answer as it comes.

python -m demo.ask PICTURE "question" [--url http://localhost:8000/v1]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import openai
from PIL import Image, UnidentifiedImageError

from demo.answering import data_url


def stream(client: openai.OpenAI, model: str | None, picture: Image.Image, question: str) -> None:
    """Prints the streamed answer; model: None asks for the first one the server lists."""
    chunks = client.chat.completions.create(
        model=model or client.models.list().data[0].id,
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": data_url(picture)}},
                    {"type": "text", "text": question},
                ],
            }
        ],
        temperature=0,
        stream=True,
    )
    for chunk in chunks:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", type=Path)
    parser.add_argument("question")
    parser.add_argument("--url", default="http://localhost:8000/v1", help="base URL of the server")
    parser.add_argument("--model", help="default: the first that the server lists")
    parser.add_argument("--api-key", default="none")
    options = parser.parse_args()
    try:
        with Image.open(options.picture) as picture:
            image = picture.convert("RGB")
    except (OSError, UnidentifiedImageError) as error:
        sys.exit(f"cannot read the picture: {error}")
    client = openai.OpenAI(base_url=options.url, api_key=options.api_key, max_retries=0)
    try:
        stream(client, options.model, image, options.question)
    except openai.APIConnectionError:
        sys.exit(f"no server answers at {options.url}; `make serve` starts one")
    except openai.APIStatusError as error:
        sys.exit(f"the server answered {error.status_code}: {error.message}")


if __name__ == "__main__":
    main()
