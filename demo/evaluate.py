"""Measures a model on held-out pictures: `python -m demo.evaluate http://localhost:8000/v1`, or a checkpoint's folder.

Prints a table by task. Every answer of a conversation counts, and is compared with the right one word for word; the
model's own answers stay in the conversation. With --blind, grey pictures of the same size are sent instead.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from PIL import Image
from rich.console import Console
from rich.progress import track
from rich.table import Table

from demo.answering import Answerer, EndpointAnswerer, Message, TransformersAnswerer
from demo.dialogue import question_message
from demo.digits import digits
from demo.drawing import to_image
from demo.examples import TASKS, Example, held_out_example
from demo.sprites import Sprites, plain_sprites


@dataclass(frozen=True)
class Result:
    """One question and what came back."""

    task: str
    question: str
    expected: str
    answer: str

    @property
    def right(self) -> bool:
        return self.answer == self.expected


def held_out_examples(pictures: int, seed: int) -> list[Example]:
    """Conversations over all tasks in turn, until they hold at least so many pictures."""
    rng = Random(seed)
    examples: list[Example] = []
    while sum(len(example.pictures) for example in examples) < pictures:
        examples.append(held_out_example(rng, TASKS[len(examples) % len(TASKS)]))
    return examples


def ask(example: Example, answerer: Answerer, sprites: Sprites, rng: Random, blind: bool = False) -> Iterator[Result]:
    """Leads one conversation; blind: with grey pictures."""
    conversation: list[Message] = []
    for turn in example.turns:
        images = [to_image(picture, sprites, rng) for picture in turn.pictures]
        if blind:
            images = [Image.new("RGB", image.size, (128, 128, 128)) for image in images]
        conversation.append(question_message(turn, [{"type": "image", "image": image} for image in images]))
        answer = answerer.answer(conversation)
        conversation.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
        yield Result(example.task, turn.question.text, turn.question.answer, answer)


def table(results: list[Result]) -> Table:
    """Accuracy by task and over all questions."""
    result = Table("task", "questions", "right")
    for name in (*TASKS, "all"):
        of_task = [item for item in results if name in ("all", item.task)]
        right = sum(item.right for item in of_task)
        result.add_row(name, str(len(of_task)), f"{right / max(1, len(of_task)):.1%}")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", help="base URL of an OpenAI endpoint, or a folder with a checkpoint")
    parser.add_argument("--model", help="name to ask for; default: the first that the endpoint lists")
    parser.add_argument("--pictures", type=int, default=500, help="about so many, over all tasks together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--blind", action="store_true", help="send grey pictures: what guessing is worth")
    parser.add_argument("--save", type=Path, help="write every question and answer as JSON")
    options = parser.parse_args()

    answerer: Answerer = (
        EndpointAnswerer(options.target, options.model)
        if options.target.startswith(("http://", "https://"))
        else TransformersAnswerer(Path(options.target))
    )
    console = Console()
    sprites = plain_sprites(digits("held_out"), options.seed)
    rng = Random(options.seed)
    results: list[Result] = []
    for example in track(held_out_examples(options.pictures, options.seed), "asking", console=console):
        results += ask(example, answerer, sprites, rng, options.blind)
    console.print(table(results))
    if options.save:
        options.save.write_text(json.dumps([asdict(result) for result in results], indent=1))


if __name__ == "__main__":
    main()
