"""What a demo picture shows, before it is drawn: things of a colour, placed in the cells of a grid.

A picture of several tiles has one cell a tile; a picture of one tile has one, four or nine cells. No thing crosses
the border of its cell, so that every tile matters by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from demo.architecture import TILE_SIZE

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (215, 35, 40),
    "green": (40, 160, 65),
    "blue": (35, 80, 215),
    "yellow": (235, 205, 30),
    "purple": (140, 45, 175),
    "orange": (245, 130, 20),
}
SHAPES = ("circle", "square", "triangle", "cross", "star", "ring")

# The pitch of the digits of a number, as a part of their size: they have empty margins left and right.
DIGIT_PITCH = 0.7


@dataclass(frozen=True)
class Sprite:
    """A square that is drawn: name is a shape or a digit, the rest is in pixels of the whole picture."""

    name: str
    left: float
    top: float
    size: float


@dataclass(frozen=True)
class Thing:
    """noun: a shape's name, or the digits of a number; cell: (row, column)."""

    noun: str
    colour: str
    cell: tuple[int, int]
    rgb: tuple[int, int, int]
    sprites: tuple[Sprite, ...]

    @property
    def is_number(self) -> bool:
        return self.noun.isdigit()


@dataclass(frozen=True)
class Picture:
    """rows, columns: of tiles; cells: (rows, columns) of cells; background: RGB."""

    rows: int
    columns: int
    cells: tuple[int, int]
    background: tuple[int, int, int]
    things: tuple[Thing, ...] = field(default=())

    @property
    def tiles(self) -> int:
        """Tiles that the model gets: the global one is added to several."""
        grid = self.rows * self.columns
        return grid + 1 if grid > 1 else 1

    def arrangement(self) -> str:
        """What is where, without sizes and exact places."""
        things = sorted(f"{thing.colour} {thing.noun} {thing.cell}" for thing in self.things)
        return f"{self.rows}x{self.columns} {self.cells} {things}"

    def is_held_out(self) -> bool:
        """True for a tenth of all arrangements: training skips them, evaluation uses nothing else."""
        return hashlib.blake2b(self.arrangement().encode(), digest_size=2).digest()[0] % 10 == 0


def draw_picture(
    rng: Random,
    grid: tuple[int, int],
    cells: tuple[int, int],
    nouns: list[str],
    colours: list[str] | None = None,
) -> Picture:
    """A picture of `grid` (rows, columns) tiles with one thing for each noun, in cells and colours chosen at random
    where `colours` does not say them. At most one thing a cell.

    Raises ValueError if there are more nouns than cells.
    """
    rows, columns = grid
    if len(nouns) > cells[0] * cells[1]:
        raise ValueError(f"{len(nouns)} things do not fit into {cells[0]}x{cells[1]} cells")
    places = rng.sample(range(cells[0] * cells[1]), len(nouns))
    cell_size = (rows * TILE_SIZE / cells[0], columns * TILE_SIZE / cells[1])
    chosen = colours or rng.choices(tuple(COLOURS), k=len(nouns))
    things = tuple(
        _place(rng, noun, colour, divmod(place, cells[1]), cell_size)
        for noun, colour, place in zip(nouns, chosen, places, strict=True)
    )
    return Picture(rows, columns, cells, _background(rng), things)


def random_number(rng: Random, length: int) -> str:
    return "".join(str(rng.randrange(10)) for _ in range(length))


def dense_picture(rng: Random) -> Picture:
    """One tile with a thing in every cell: much to learn from at once, but nothing to ask about."""
    while True:
        side = rng.randrange(1, 4)
        longest = (4, 2, 1)[side - 1]
        nouns = [
            random_number(rng, rng.randrange(1, longest + 1)) if rng.random() < 0.6 else rng.choice(SHAPES)
            for _ in range(side * side)
        ]
        picture = draw_picture(rng, (1, 1), (side, side), nouns)
        if not picture.is_held_out():
            return picture


def spelled_picture(rng: Random, grid: tuple[int, int]) -> Picture:
    """A picture with one digit in every tile, all of one colour."""
    rows, columns = grid
    colour = rng.choice(tuple(COLOURS))
    cells = [(row, column) for row in range(rows) for column in range(columns)]
    things = tuple(_place(rng, str(rng.randrange(10)), colour, cell, (TILE_SIZE, TILE_SIZE)) for cell in cells)
    return Picture(rows, columns, grid, _background(rng), things)


def reading_order(picture: Picture) -> Iterator[Thing]:
    """Its things row by row, from left to right."""
    yield from sorted(picture.things, key=lambda thing: thing.cell)


def _background(rng: Random) -> tuple[int, int, int]:
    shade = rng.randrange(225, 256) if rng.random() < 0.7 else rng.randrange(10, 50)
    return _near(rng, (shade, shade, shade), 8)


def _near(rng: Random, rgb: tuple[int, int, int], spread: int) -> tuple[int, int, int]:
    red, green, blue = (min(255, max(0, value + rng.randint(-spread, spread))) for value in rgb)
    return red, green, blue


def _place(rng: Random, noun: str, colour: str, cell: tuple[int, int], cell_size: tuple[float, float]) -> Thing:
    """A thing somewhere in its cell, 25% to 85% of the largest size that fits but at least 48 pixels high."""
    height, width = cell_size
    length = 1 + (len(noun) - 1) * DIGIT_PITCH if noun.isdigit() else 1
    largest = min(height, width / length) * 0.96
    size = min(220, max(rng.uniform(0.25, 0.85) * largest, min(48, largest)))
    top = cell[0] * height + rng.uniform(0.02 * height, 0.98 * height - size)
    left = cell[1] * width + rng.uniform(0.02 * width, 0.98 * width - size * length)
    names = list(noun) if noun.isdigit() else [noun]
    sprites = tuple(Sprite(name, left + i * size * DIGIT_PITCH, top, size) for i, name in enumerate(names))
    return Thing(noun, colour, cell, _near(rng, COLOURS[colour], 12), sprites)
