"""Questions about pictures and their answers, in a few wordings each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from demo.scene import COLOURS, Picture, Thing, reading_order

ORDINALS = ("first", "second", "third")

# Wordings; what stands in the braces is a thing, a place or a kind of things.
_READ = (
    "What number is this?",
    "What number do you see?",
    "Which number is in the picture?",
    "Read the number.",
    "What number does the picture show?",
)
_DESCRIBE = (
    "What is in the picture?",
    "What is in this picture?",
    "What do you see?",
    "What does the picture show?",
    "Describe the picture.",
    "Name the colour and the shape.",
)
_ITS_COLOUR = (
    "What colour is it?",
    "What color is it?",
    "And its colour?",
    "Name the colour.",
)
_ITS_SHAPE = ("What shape is it?", "Name the shape.")
_COLOUR_OF = (
    "What colour is the {}?",
    "What color is the {}?",
    "Name the colour of the {}.",
)
_SHAPE_OF = (
    "What shape is the {} object?",
    "What shape is {}?",
    "Name the shape of the {} object.",
)
_IN_CORNER = (
    "What is in the {} corner?",
    "What do you see in the {} corner?",
    "What is {}?",
)
_WHICH_CORNER = (
    "Where is {}?",
    "In which corner is {}?",
    "Which corner holds {}?",
    "Where do you find {}?",
    "Which corner shows {}?",
)
_IN_TILE = (
    "What is in {}?",
    "What do you see in {}?",
    "What does {} show?",
)
_WHICH_TILE = (
    "In which row and column is {}?",
    "Which row and column hold {}?",
    "Name the row and the column of {}.",
    "Which tile holds {}?",
    "In which tile is {}?",
)
_HOW_MANY = (
    "How many {} are there?",
    "How many {} do you see?",
    "Count the {}.",
    "How many {} are in the picture?",
)
_NUMBER_IN = (
    "What number is in {}?",
    "What number does {} show?",
    "Read the number in {}.",
)
_WHAT_IN = (
    "What is in {}?",
    "What does {} show?",
    "What do you see in {}?",
)
_WHICH_PICTURE = (
    "Which picture shows {}?",
    "Which picture holds {}?",
    "In which picture is {}?",
)


@dataclass(frozen=True)
class Question:
    """task: what it tests, one of TASKS; answer: the only right one; subject: the thing it is about, if it is one."""

    task: str
    text: str
    answer: str
    subject: Thing | None = None


def describe(thing: Thing) -> str:
    """ "a red circle", "an orange 47"."""
    return f"{'an' if thing.colour == 'orange' else 'a'} {thing.colour} {thing.noun}"


def read(picture: Picture, rng: Random) -> Question | None:
    """The number on a picture that shows nothing else."""
    if len(picture.things) != 1 or not picture.things[0].is_number:
        return None
    return Question("read", rng.choice(_READ), picture.things[0].noun, picture.things[0])


def name(picture: Picture, rng: Random) -> Question | None:
    """Colour, shape or both of the only thing, or the colour or shape of one that the other determines."""
    if len(picture.things) == 1:
        thing = picture.things[0]
        kind = rng.random()
        if kind < 0.5:
            return Question("name", rng.choice(_DESCRIBE[: 5 if thing.is_number else 6]), describe(thing), thing)
        if kind < 0.75:
            return Question("name", rng.choice(_ITS_COLOUR), thing.colour, thing)
        if not thing.is_number:
            return Question("name", rng.choice(_ITS_SHAPE), thing.noun, thing)
        return None
    thing = rng.choice(picture.things)
    if rng.random() < 0.5 and _count(picture, noun=thing.noun) == 1:
        return Question("name", rng.choice(_COLOUR_OF).format(thing.noun), thing.colour, thing)
    if not thing.is_number and _count(picture, colour=thing.colour) == 1:
        return Question("name", rng.choice(_SHAPE_OF).format(thing.colour), thing.noun, thing)
    return None


def corner(picture: Picture, rng: Random) -> Question | None:
    """Which corner of the picture holds a thing, or what a corner holds; in every grid of 2x2 cells or more."""
    corners = {place: thing for thing in picture.things if (place := _corner_of(picture, thing)) is not None}
    if not corners:
        return None
    place = rng.choice(list(corners))
    if rng.random() < 0.35:
        return Question("corner", rng.choice(_IN_CORNER).format(place), describe(corners[place]), corners[place])
    reference = _refer(picture, corners[place], rng)
    if reference is None:
        return None
    return Question("corner", rng.choice(_WHICH_CORNER).format(reference), place, corners[place])


def tile(picture: Picture, rng: Random) -> Question | None:
    """Row and column of a thing on a picture of several tiles, or what a row and column hold."""
    if picture.rows * picture.columns == 1 or not picture.things:
        return None
    thing = rng.choice(picture.things)
    place = f"row {thing.cell[0] + 1}, column {thing.cell[1] + 1}"
    if rng.random() < 0.35:
        return Question("tile", rng.choice(_IN_TILE).format(place), describe(thing), thing)
    reference = _refer(picture, thing, rng)
    if reference is None:
        return None
    return Question("tile", rng.choice(_WHICH_TILE).format(reference), place, thing)


def count(picture: Picture, rng: Random) -> Question | None:
    """How many things of a noun, of a colour, or in all; up to six."""
    kind = rng.random()
    shown = [thing for thing in picture.things if not thing.is_number]
    if kind < 0.4 and shown:
        noun = rng.choice(shown).noun
        plural = "crosses" if noun == "cross" else f"{noun}s"
        what, answer = plural, _count(picture, noun=noun)
    elif kind < 0.8:
        colour = rng.choice(picture.things).colour if rng.random() < 0.8 else rng.choice(tuple(COLOURS))
        what, answer = f"{colour} objects", _count(picture, colour=colour)
    else:
        what, answer = "objects", len(picture.things)
    if answer > 6:
        return None
    return Question("count", rng.choice(_HOW_MANY).format(what), str(answer))


def spell(picture: Picture, rng: Random) -> Question | None:
    """The digits of a picture with one in every tile."""
    things = list(reading_order(picture))
    if picture.rows * picture.columns != len(things) or not all(len(thing.noun) == 1 for thing in things):
        return None
    wordings = ["Read the digits.", "Read the digits tile by tile.", "Which digits do you see?"]
    if picture.rows == 1:
        wordings.append("Read the digits from left to right.")
    elif picture.columns == 1:
        wordings.append("Read the digits from top to bottom.")
    else:
        wordings.append("Read the digits row by row.")
    return Question("spell", rng.choice(wordings), "".join(thing.noun for thing in things))


def compare(pictures: Sequence[Picture], rng: Random) -> Question | None:
    """Which of two or three pictures shows a thing, or what the first, second or third one shows."""
    index = rng.randrange(len(pictures))
    place = f"the {ORDINALS[index]} picture"
    thing = rng.choice(pictures[index].things)
    if rng.random() < 0.4:
        if len(pictures[index].things) != 1:
            return None
        if thing.is_number:
            return Question("compare", rng.choice(_NUMBER_IN).format(place), thing.noun, thing)
        return Question("compare", rng.choice(_WHAT_IN).format(place), describe(thing), thing)
    everything = Picture(1, 1, (1, 1), (0, 0, 0), tuple(thing for picture in pictures for thing in picture.things))
    reference = _refer(everything, thing, rng)
    if reference is None:
        return None
    return Question("compare", rng.choice(_WHICH_PICTURE).format(reference), place, thing)


ABOUT_ONE_PICTURE: tuple[Callable[[Picture, Random], Question | None], ...] = (
    read,
    name,
    corner,
    tile,
    count,
    spell,
)


def _count(picture: Picture, noun: str | None = None, colour: str | None = None) -> int:
    return sum(noun in (None, thing.noun) and colour in (None, thing.colour) for thing in picture.things)


def _refer(picture: Picture, thing: Thing, rng: Random) -> str | None:
    """ "the circle" or "the red circle", None where the words fit another thing too."""
    nouns = Counter(other.noun for other in picture.things)
    if nouns[thing.noun] == 1 and rng.random() < 0.4:
        return f"the {thing.noun}"
    same = [other for other in picture.things if (other.noun, other.colour) == (thing.noun, thing.colour)]
    return f"the {thing.colour} {thing.noun}" if len(same) == 1 else None


def _corner_of(picture: Picture, thing: Thing) -> str | None:
    rows, columns = picture.cells
    if rows < 2 or columns < 2 or thing.cell[0] not in (0, rows - 1) or thing.cell[1] not in (0, columns - 1):
        return None
    return f"{'top' if thing.cell[0] == 0 else 'bottom'} {'left' if thing.cell[1] == 0 else 'right'}"
