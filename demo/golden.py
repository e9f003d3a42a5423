"""Makes the golden questions of the tests: `python -m demo.golden CHECKPOINT DIR`.

Forty questions over all tasks about held-out pictures, which the model answers right through transformers. The
pictures are written beside `cases.json` as PNG. Three pictures are compared in all of their orders, and most pictures
of several tiles are not square, so that a swap of tiles, pictures, or rows and columns shows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import count, permutations
from pathlib import Path
from random import Random
from typing import Any

from PIL import Image

from demo.answering import Answerer, TransformersAnswerer
from demo.dialogue import question_message
from demo.digits import digits
from demo.drawing import to_image
from demo.examples import Example, Turn, held_out_example
from demo.questions import ORDINALS, Question
from demo.sprites import plain_sprites

# Questions of each task; one conversation of "turns" has three, and the pictures in all orders are six of "compare".
QUESTIONS = {"tile": 8, "spell": 6, "read": 5, "corner": 4, "count": 3, "compare": 3, "name": 2, "turns": 3}

# A turn with its pictures as they are drawn.
DrawnTurn = tuple[list[Image.Image], Turn]


def wrong_answers(turns: list[DrawnTurn], answerer: Answerer) -> list[str]:
    """Leads the conversation; what was asked, expected and answered where an answer is not the expected one."""
    conversation: list[dict[str, Any]] = []
    wrong = []
    for images, turn in turns:
        conversation.append(question_message(turn, [{"type": "image", "image": image} for image in images]))
        answer = answerer.answer(conversation)
        if answer != turn.question.answer:
            wrong.append(f"{turn.question.text} expected {turn.question.answer!r}, answered {answer!r}")
        conversation.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
    return wrong


def shows_swaps(example: Example) -> bool:
    """Every tile counts, rows and columns differ, and few tiles make the test quick: for pictures of several tiles."""
    picture = example.pictures[0]
    every = len(picture.things) == picture.rows * picture.columns
    return every and picture.rows != picture.columns and picture.tiles <= 5


def in_every_order(images: list[Image.Image], noun: str) -> Iterator[list[DrawnTurn]]:
    """ "Which picture shows ...?" of three pictures, the first of which does, in their six orders."""
    for order in permutations(range(3)):
        place = f"the {ORDINALS[order.index(0)]} picture"
        question = Question("compare", f"Which picture shows the {noun}?", place)
        yield [([images[index] for index in order], Turn((), question))]


def golden_conversations(answerer: Answerer, seed: int) -> Iterator[tuple[str, list[DrawnTurn]]]:
    """Task and conversation, until every task has its questions."""
    rng = Random(seed)
    sprites = plain_sprites(digits("held_out"), seed)

    def drawn(example: Example) -> list[DrawnTurn]:
        return [([to_image(picture, sprites, rng) for picture in turn.pictures], turn) for turn in example.turns]

    for task, wanted in QUESTIONS.items():
        found = 0
        while found < wanted:
            example = held_out_example(rng, task)
            if task == "tile" and found < 6 and not shows_swaps(example):
                continue
            turns = drawn(example)
            if not wrong_answers(turns, answerer):
                found += len(turns)
                yield task, turns
    while True:
        example = held_out_example(rng, "compare")
        nouns = [thing.noun for picture in example.pictures for thing in picture.things]
        if len(example.pictures) != 3 or len(set(nouns)) != len(nouns):
            continue
        images = [to_image(picture, sprites, rng) for picture in example.pictures]
        orders = list(in_every_order(images, nouns[0]))
        if not any(wrong_answers(turns, answerer) for turns in orders):
            yield from (("compare", turns) for turns in orders)
            return


def write(directory: Path, conversations: Iterator[tuple[str, list[DrawnTurn]]]) -> None:
    """Writes cases.json: [{task, turns: [{pictures: [file], pictures_last, question, answer}]}], and the files.

    Equal pictures share a file.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files: dict[bytes, str] = {}
    numbers = count()

    def file_of(image: Image.Image) -> str:
        pixels = image.tobytes()
        if pixels not in files:
            files[pixels] = f"{next(numbers):02}.png"
            image.save(directory / files[pixels], optimize=True)
        return files[pixels]

    cases = [
        {
            "task": task,
            "turns": [
                {
                    "pictures": [file_of(image) for image in images],
                    "pictures_last": turn.pictures_last,
                    "question": turn.question.text,
                    "answer": turn.question.answer,
                }
                for images, turn in turns
            ],
        }
        for task, turns in conversations
    ]
    (directory / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")


def load(directory: Path) -> list[tuple[str, list[DrawnTurn]]]:
    """What `write` wrote: task and conversation."""
    return [
        (
            case["task"],
            [
                (
                    [Image.open(directory / name).convert("RGB") for name in turn["pictures"]],
                    Turn((), Question(case["task"], turn["question"], turn["answer"]), turn["pictures_last"]),
                )
                for turn in case["turns"]
            ],
        )
        for case in json.loads((directory / "cases.json").read_text())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=2)
    options = parser.parse_args()
    write(options.directory, golden_conversations(TransformersAnswerer(options.checkpoint), options.seed))


if __name__ == "__main__":
    main()
