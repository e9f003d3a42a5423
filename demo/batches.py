"""Batches of conversations: made by worker processes as small arrays, drawn on the device that trains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from torch.utils.data import Dataset

from demo.architecture import TILE_SIZE, TOKENS_PER_TILE
from demo.auxiliary import count_labels, embedding_labels, position_labels, subject_labels
from demo.dialogue import DialogueEncoder
from demo.drawing import cut_tiles, draw, sprite_table
from demo.examples import Example, Load, training_example
from demo.scene import Picture, dense_picture


@dataclass(frozen=True)
class Drawing:
    """Pictures of one grid: backgrounds float32 [n, 3], table as `sprite_table` gives it, slots int64 [n, tiles]:
    where their tiles stand among all tiles of the batch.
    """

    grid: tuple[int, int]
    backgrounds: np.ndarray
    table: np.ndarray
    slots: np.ndarray


@dataclass(frozen=True)
class PictureBatch:
    """All tiles of some pictures, in order; labels int8 [tiles, 144, 4], see `auxiliary.embedding_labels`."""

    tiles: int
    drawings: tuple[Drawing, ...]
    labels: np.ndarray


@dataclass(frozen=True)
class TextBatch:
    """Conversations of similar length, about the pictures of a PictureBatch.

    ids: int64 [n, length], padded; learned: bool [n, length]; positions: int8 [tiles, 3], see
    `auxiliary.position_labels`; counts: int8 [pictures, 13], see `auxiliary.count_labels`; tasks: of every answer, in
    the order in which they stand in `ids`; subjects: int8 [answers, 5] in the same order, see
    `auxiliary.subject_labels`.
    """

    ids: np.ndarray
    learned: np.ndarray
    positions: np.ndarray
    counts: np.ndarray
    tasks: tuple[str, ...]
    subjects: np.ndarray


@dataclass(frozen=True)
class Step:
    """What one optimizer step learns from; no text while the encoder learns alone."""

    pictures: PictureBatch
    text: TextBatch | None = None


def picture_batch(pictures: Sequence[Picture], choices: dict[str, list[int]], rng: Random) -> PictureBatch:
    """choices: masks by name, see `Sprites.choices`."""
    groups: dict[tuple[int, int], list[tuple[Picture, np.ndarray]]] = defaultdict(list)
    tiles = 0
    for picture in pictures:
        groups[picture.rows, picture.columns].append((picture, np.arange(tiles, tiles + picture.tiles)))
        tiles += picture.tiles
    drawings = []
    for grid, members in groups.items():
        of_grid = [picture for picture, _ in members]
        drawings.append(
            Drawing(
                grid,
                np.array([picture.background for picture in of_grid], dtype=np.float32),
                sprite_table(of_grid, choices, rng),
                np.stack([slots for _, slots in members]),
            )
        )
    labels = np.concatenate([embedding_labels(picture) for picture in pictures])
    return PictureBatch(tiles, tuple(drawings), labels.reshape(tiles, TOKENS_PER_TILE, -1))


def draw_tiles(batch: PictureBatch, masks: torch.Tensor) -> torch.Tensor:
    """uint8 [tiles, 3, 336, 336], on the device of `masks`."""
    device = masks.device
    tiles = torch.empty(batch.tiles, 3, TILE_SIZE, TILE_SIZE, dtype=torch.uint8, device=device)
    for drawing in batch.drawings:
        backgrounds, table = (torch.from_numpy(array).to(device) for array in (drawing.backgrounds, drawing.table))
        cut = cut_tiles(draw(drawing.grid, backgrounds, table, masks))
        tiles[torch.from_numpy(drawing.slots).to(device).flatten()] = cut.flatten(0, 1)
    return tiles


def text_batch(examples: Sequence[Example], encode: DialogueEncoder) -> TextBatch:
    """Pads on the right: attention is causal, so padding changes nothing before it."""
    tokens = [encode(example) for example in examples]
    length = max(len(item.ids) for item in tokens)
    ids = np.full((len(tokens), length), encode.pad_id, dtype=np.int64)
    learned = np.zeros((len(tokens), length), dtype=bool)
    for row, item in enumerate(tokens):
        ids[row, : len(item.ids)] = item.ids
        learned[row, : len(item.ids)] = item.learned
    positions = np.concatenate([position_labels(example.pictures) for example in examples])
    counts = np.concatenate([count_labels(example.pictures) for example in examples])
    tasks = tuple(turn.question.task for example in examples for turn in example.turns)
    subjects = np.concatenate([subject_labels(example) for example in examples])
    return TextBatch(ids, learned, positions, counts, tasks, subjects)


def conversation_step(
    examples: Sequence[Example], encode: DialogueEncoder, choices: dict[str, list[int]], rng: Random
) -> Step:
    """The conversations and their pictures."""
    pictures = [picture for example in examples for picture in example.pictures]
    return Step(picture_batch(pictures, choices, rng), text_batch(examples, encode))


class TrainingSteps(Dataset[Step]):
    """Step i is the same whoever makes it: its random numbers come from (seed, i).

    The first `vision_steps` steps hold `vision_pictures` crowded pictures without text, the others conversations of one
    load, of each in turn and as many as `conversations` says: a step takes about as long whatever it holds.
    """

    def __init__(
        self,
        seed: int,
        vision_steps: int,
        vision_pictures: int,
        conversations: dict[Load, int],
        encode: DialogueEncoder,
        choices: dict[str, list[int]],
    ) -> None:
        self._seed = seed
        self._vision_steps = vision_steps
        self._vision_pictures = vision_pictures
        self._conversations = conversations
        self._encode = encode
        self._choices = choices

    def __getitem__(self, index: int) -> Step:
        rng = Random(f"{self._seed} {index}")
        if index < self._vision_steps:
            pictures = [dense_picture(rng) for _ in range(self._vision_pictures)]
            return Step(picture_batch(pictures, self._choices, rng))
        load = list(self._conversations)[index % len(self._conversations)]
        examples = [training_example(rng, load) for _ in range(self._conversations[load])]
        return conversation_step(examples, self._encode, self._choices, rng)


def first(items: Sequence[Step]) -> Step:
    """The only step of a DataLoader's batch; keeps it as numpy arrays."""
    return items[0]
