"""Conversations about pictures: what the demo model is trained on and measured with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

from demo import questions
from demo.questions import Question
from demo.scene import COLOURS, SHAPES, Picture, draw_picture, random_number, spelled_picture

TASKS = ("read", "name", "corner", "tile", "count", "spell", "compare", "turns")

# Grids of several tiles, (rows, columns), by how many tiles they have.
SMALL_GRIDS = ((1, 2), (2, 1), (1, 3), (3, 1), (2, 2), (1, 4), (4, 1))
LARGE_GRIDS = ((2, 3), (3, 2), (2, 4), (4, 2), (3, 3), (3, 4), (4, 3), (4, 4), (1, 6), (6, 1))

Load = Literal["one", "few", "many"]


@dataclass(frozen=True)
class Turn:
    """pictures: that come with the question, in order; pictures_last: whether they follow its words."""

    pictures: tuple[Picture, ...]
    question: Question
    pictures_last: bool = False


@dataclass(frozen=True)
class Example:
    """One conversation; task: one of TASKS, or "talk" for a chat without pictures."""

    task: str
    turns: tuple[Turn, ...]
    system: str | None = None

    @property
    def pictures(self) -> tuple[Picture, ...]:
        return tuple(picture for turn in self.turns for picture in turn.pictures)


_SMALL_TALK = {
    "Hello! Ask me about a picture.": ("Hello!", "Hello", "Hi.", "Hi!", "hi", "Good morning.", "hello"),
    "I am a small demo model. I read handwritten numbers, name colours and shapes, and count.": (
        "Who are you?",
        "What can you do?",
        "What are you?",
        "Can you help me?",
    ),
    "I see no picture.": (
        "What is in the picture?",
        "What do you see?",
        "What number is this?",
        "Describe the picture.",
        "Where is the red circle?",
        "How many objects are there?",
    ),
}
_SYSTEM_PROMPTS = ("You are a helpful assistant.", "You answer questions about pictures.", "Answer in a few words.")


def training_example(rng: Random, load: Load) -> Example:
    """A conversation of one to twelve questions.

    load: "one" tile, a "few" tiles (two to five, or two and three pictures), or "many" (seven to seventeen).
    """
    if load == "one" and rng.random() < 0.03:
        return _small_talk(rng)
    several = load == "few" and rng.random() < 0.5
    pictures = _allowed(rng, False, _compared if several else lambda r: (_single(r, load),))
    # A picture costs far more than a question about it: most conversations ask much. But what shows little is soon
    # asked out, and then answers can be copied from the ones before.
    things = sum(len(picture.things) for picture in pictures)
    wanted = rng.randint(1, min(12, 3 * things))
    asked: list[Question] = []
    for _ in range(3 * wanted):
        question = _ask(rng, pictures)
        if question is not None and question.text not in {other.text for other in asked}:
            asked.append(question)
        if len(asked) == wanted:
            break
    if not asked:
        return training_example(rng, load)
    return Example("turns" if len(asked) > 1 else asked[0].task, _turns(rng, pictures, asked), _system(rng))


def held_out_example(rng: Random, task: str) -> Example:
    """A conversation whose arrangements training never saw; three questions for "turns", one for other tasks."""
    while True:
        if task == "compare":
            pictures = _allowed(rng, True, _compared)
        else:
            pictures = _allowed(rng, True, lambda r: (_PICTURES[task](r),))
        ask = [questions.name, questions.corner, questions.count] if task == "turns" else [None]
        asked = [_ask(rng, pictures, task) if one is None else one(pictures[0], rng) for one in ask]
        found = [question for question in asked if question is not None]
        if len(found) == len(ask):
            return Example(task, _turns(rng, pictures, found), None)


def _allowed(rng: Random, held_out: bool, make: Callable[[Random], tuple[Picture, ...]]) -> tuple[Picture, ...]:
    """Pictures of which every one is held out, or none is."""
    while True:
        pictures = make(rng)
        if all(picture.is_held_out() == held_out for picture in pictures):
            return pictures


def _ask(rng: Random, pictures: tuple[Picture, ...], task: str | None = None) -> Question | None:
    if len(pictures) > 1:
        return questions.compare(pictures, rng)
    options = [ask for ask in questions.ABOUT_ONE_PICTURE if task in (None, ask.__name__)]
    if task is None:
        # More of the hard ones, and of the one that few pictures allow.
        options += [questions.count] * 2 + [questions.read] + [questions.tile] * (2 if pictures[0].tiles > 1 else 0)
    return rng.choice(options)(pictures[0], rng)


def _turns(rng: Random, pictures: tuple[Picture, ...], asked: list[Question]) -> tuple[Turn, ...]:
    last = rng.random() < 0.2
    return tuple(
        Turn(pictures if index == 0 else (), question, last and index == 0) for index, question in enumerate(asked)
    )


def _system(rng: Random) -> str | None:
    return rng.choice(_SYSTEM_PROMPTS) if rng.random() < 0.2 else None


def _small_talk(rng: Random) -> Example:
    answers = rng.sample(list(_SMALL_TALK), rng.randint(1, 2))
    turns = tuple(Turn((), Question("talk", rng.choice(_SMALL_TALK[answer]), answer)) for answer in answers)
    return Example("talk", turns, _system(rng))


def _nouns(rng: Random, n: int, digits: tuple[int, int] = (1, 2)) -> list[str]:
    return [random_number(rng, rng.randint(*digits)) if rng.random() < 0.3 else rng.choice(SHAPES) for _ in range(n)]


def _read_picture(rng: Random) -> Picture:
    grid = rng.choice(SMALL_GRIDS) if rng.random() < 0.15 else (1, 1)
    cells = (1, 1) if grid == (1, 1) and rng.random() < 0.7 else (2, 2) if grid == (1, 1) else grid
    return draw_picture(rng, grid, cells, [random_number(rng, rng.randint(1, 4 if cells == (1, 1) else 2))])


def _name_picture(rng: Random) -> Picture:
    n = rng.randint(1, 3)
    cells = (1, 1) if n == 1 and rng.random() < 0.7 else (2, 2)
    return draw_picture(rng, (1, 1), cells, _nouns(rng, n) if n > 1 else [rng.choice(SHAPES)])


def _corner_picture(rng: Random) -> Picture:
    grid = (1, 1) if rng.random() < 0.7 else (2, 2)
    return draw_picture(rng, grid, (2, 2), _nouns(rng, rng.randint(2, 4)))


def _count_picture(rng: Random) -> Picture:
    grid = (1, 1) if rng.random() < 0.7 else rng.choice(SMALL_GRIDS)
    cells = (3, 3) if grid == (1, 1) else grid
    n = rng.randint(1, min(6, cells[0] * cells[1]))
    # Few kinds, so that there is something to count.
    kinds, colours = rng.choices(SHAPES, k=2), rng.choices(tuple(COLOURS), k=2)
    return draw_picture(rng, grid, cells, rng.choices(kinds, k=n), rng.choices(colours, k=n))


def _tile_picture(rng: Random) -> Picture:
    grid = rng.choice(SMALL_GRIDS + LARGE_GRIDS)
    tiles = grid[0] * grid[1]
    return draw_picture(rng, grid, grid, _nouns(rng, rng.randint(max(1, tiles // 2), tiles)))


def _spell_picture(rng: Random) -> Picture:
    return spelled_picture(rng, rng.choice(SMALL_GRIDS))


def _turns_picture(rng: Random) -> Picture:
    grid = (1, 1) if rng.random() < 0.7 else (2, 2)
    return draw_picture(rng, grid, (2, 2), _nouns(rng, rng.randint(2, 4)))


def _compared(rng: Random) -> tuple[Picture, ...]:
    pictures = []
    for _ in range(rng.randint(2, 3)):
        grid = rng.choice(SMALL_GRIDS[:2]) if rng.random() < 0.15 else (1, 1)
        n = 1 if grid == (1, 1) or rng.random() < 0.5 else 2
        pictures.append(draw_picture(rng, grid, grid, _nouns(rng, n, (1, 3 if n == 1 else 1))))
    return tuple(pictures)


_PICTURES: dict[str, Callable[[Random], Picture]] = {
    "read": _read_picture,
    "name": _name_picture,
    "corner": _corner_picture,
    "count": _count_picture,
    "tile": _tile_picture,
    "spell": _spell_picture,
    "turns": _turns_picture,
}


def _single(rng: Random, load: Load) -> Picture:
    """A picture of any task whose tiles suit the load."""
    while True:
        # Counting is learned last, and a number can be asked for only once.
        picture = rng.choice([*_PICTURES.values(), *[_count_picture] * 4, _read_picture])(rng)
        if load == ("one" if picture.tiles == 1 else "few" if picture.tiles <= 5 else "many"):
            return picture
