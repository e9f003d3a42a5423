"""What training also asks for, so that a small model learns to look quickly: linear heads that are thrown away.

Of every image embedding as it leaves the encoder: what covers its 28x28 pixels, in which colour, where in a number,
where in the tile. Half way through the text model: of every image position, in which tile of which picture it lies;
of every picture's end, how many of each kind the picture shows.
Before each token of an answer, and before the last layer: the thing that the question is about and where it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, rms_norm

from demo.architecture import TILE_SIZE, TOKENS_PER_SIDE, TOKENS_PER_TILE
from demo.examples import Example
from demo.scene import COLOURS, SHAPES, Picture

NOUNS = (*(str(digit) for digit in range(10)), *SHAPES)
_COLOURS = tuple(COLOURS)
_CELL = TILE_SIZE / TOKENS_PER_SIDE

# Classes of each label: noun, colour and place in a number (0: nothing there), whether it is a thing's centre.
EMBEDDING_CLASSES = (1 + len(NOUNS), 1 + len(_COLOURS), 5, 2)
# Row and column of the tile (0: the only or the global one), index of the picture.
POSITION_CLASSES = (17, 17, 3)
# Noun (a number's first digit) and colour of the subject, row and column of its cell, index of its picture.
SUBJECT_CLASSES = (len(NOUNS), len(_COLOURS), 6, 6, 3)
# Things of every shape, of every colour and in all: 0 to 5, and more.
COUNTED = len(SHAPES) + len(COLOURS) + 1
COUNT_CLASSES = 7
IGNORED = -1


def embedding_labels(picture: Picture) -> np.ndarray:
    """int8 [tiles, 12, 12, 4], in the classes of EMBEDDING_CLASSES; IGNORED in the global tile."""
    labels = np.zeros((picture.rows * TOKENS_PER_SIDE, picture.columns * TOKENS_PER_SIDE, 4), dtype=np.int8)
    centres_y, centres_x = ((np.arange(side) + 0.5) * _CELL for side in labels.shape[:2])
    for thing in picture.things:
        colour = 1 + _COLOURS.index(thing.colour)
        for order, sprite in enumerate(thing.sprites):
            # The drawn part of a sprite leaves a margin of about a tenth on each side, for digits a bit more.
            reach = sprite.size * (0.42 if not thing.is_number else 0.38)
            x, y = sprite.left + sprite.size / 2, sprite.top + sprite.size / 2
            covered = np.ix_(np.abs(centres_y - y) < reach, np.abs(centres_x - x) < reach)
            place = 1 + order if thing.is_number else 0
            labels[covered] = (1 + NOUNS.index(sprite.name), colour, place, 0)
        first = thing.sprites[0]
        row, column = int((first.top + first.size / 2) / _CELL), int((first.left + first.size / 2) / _CELL)
        labels[row, column, 3] = 1
    tiles = labels.reshape(picture.rows, TOKENS_PER_SIDE, picture.columns, TOKENS_PER_SIDE, 4)
    tiles = tiles.transpose(0, 2, 1, 3, 4).reshape(-1, TOKENS_PER_SIDE, TOKENS_PER_SIDE, 4)
    if len(tiles) == 1:
        return tiles
    return np.concatenate([tiles, np.full_like(tiles[:1], IGNORED)])


def position_labels(pictures: Sequence[Picture]) -> np.ndarray:
    """int8 [tiles, 3], in the classes of POSITION_CLASSES, for the pictures of one conversation."""
    labels = []
    for index, picture in enumerate(pictures):
        if picture.tiles > 1:
            labels += [(1 + row, 1 + column, index) for row in range(picture.rows) for column in range(picture.columns)]
        labels.append((0, 0, index))
    return np.array(labels, dtype=np.int8).reshape(-1, len(POSITION_CLASSES))


def count_labels(pictures: Sequence[Picture]) -> np.ndarray:
    """int8 [pictures, COUNTED], each of COUNT_CLASSES."""
    kinds = (*SHAPES, *_COLOURS)
    labels = [
        [sum(kind in (thing.noun, thing.colour) for thing in picture.things) for kind in kinds] + [len(picture.things)]
        for picture in pictures
    ]
    return np.minimum(np.array(labels, dtype=np.int8).reshape(-1, COUNTED), COUNT_CLASSES - 1)


def subject_labels(example: Example) -> np.ndarray:
    """int8 [answers, 5], in the classes of SUBJECT_CLASSES; IGNORED where a question is not about one thing."""
    labels = np.full((len(example.turns), len(SUBJECT_CLASSES)), IGNORED, dtype=np.int8)
    for row, turn in enumerate(example.turns):
        subject = turn.question.subject
        if subject is not None:
            picture = next(i for i, picture in enumerate(example.pictures) if subject in picture.things)
            noun = NOUNS.index(subject.sprites[0].name)
            labels[row] = (noun, _COLOURS.index(subject.colour), *subject.cell, picture)
    return labels


class AuxiliaryHeads(nn.Module):
    """Linear classifiers of normalized states; see the module's docstring.

    Normalized as the text model's layers do, lest embeddings grow so large that what attention adds to them drowns.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        # The last two classifiers say where in its tile an embedding lies.
        self.of_embedding = nn.ModuleList(
            nn.Linear(width, classes) for classes in (*EMBEDDING_CLASSES, TOKENS_PER_SIDE, TOKENS_PER_SIDE)
        )
        self.of_position = nn.ModuleList(nn.Linear(width, classes) for classes in POSITION_CLASSES)
        self.of_count = nn.Linear(width, COUNTED * COUNT_CLASSES)
        self.of_subject = nn.ModuleList(nn.Linear(width, classes) for classes in SUBJECT_CLASSES)

    def embedding_loss(self, embeddings: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """embeddings: [tiles, 144, width]; labels: int64 [tiles, 144, 4].

        Returns the loss and the share of covered embeddings whose noun is right.
        """
        known = labels[:, 0, 0] != IGNORED
        embeddings, labels = _normalized(embeddings[known]), labels[known]
        side = torch.arange(TOKENS_PER_SIDE, device=labels.device)
        rows, columns = side.repeat_interleave(TOKENS_PER_SIDE), side.repeat(TOKENS_PER_SIDE)
        places = torch.stack([rows, columns], dim=-1).expand(len(labels), -1, -1)
        targets = torch.cat([labels, places], dim=-1)
        covered = labels[..., 0] > 0
        # Most of a picture is background.
        weights = torch.where(covered, 1.0, 0.1)
        weights = (weights / weights.sum()).flatten()
        losses = []
        for index, head in enumerate(self.of_embedding):
            each = cross_entropy(
                head(embeddings).flatten(0, 1).float(), targets[..., index].flatten(), reduction="none"
            )
            losses.append((each * weights).sum())
        of_things, of_places = losses[: len(EMBEDDING_CLASSES)], losses[len(EMBEDDING_CLASSES) :]
        loss = torch.stack(of_things).sum() + 0.2 * torch.stack(of_places).sum()
        with torch.no_grad():
            right = self.of_embedding[0](embeddings).argmax(-1) == labels[..., 0]
            accuracy = right[covered].float().mean()
        return loss, accuracy

    def position_loss(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """hidden: [tiles * 144, width], the text model's states at image positions; labels: int64 [tiles, 3]."""
        hidden, targets = _normalized(hidden), labels.repeat_interleave(TOKENS_PER_TILE, dim=0)
        losses = [cross_entropy(head(hidden).float(), targets[:, index]) for index, head in enumerate(self.of_position)]
        return torch.stack(losses).mean()

    def count_loss(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """hidden: [pictures, width], where the pictures end; labels: int64 [pictures, COUNTED]."""
        logits = self.of_count(_normalized(hidden)).float().view(-1, COUNT_CLASSES)
        return cross_entropy(logits, labels.flatten(), reduction="sum") / max(1, labels.numel())

    def subject_loss(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """hidden: [tokens, width], before each token of an answer; labels: int64 [tokens, 5], of its answer."""
        known = labels[:, 0] != IGNORED
        hidden, labels = _normalized(hidden[known]), labels[known]
        losses = [
            cross_entropy(head(hidden).float(), labels[:, index], reduction="sum")
            for index, head in enumerate(self.of_subject)
        ]
        return torch.stack(losses).sum() / max(1, len(labels))


def _normalized(states: torch.Tensor) -> torch.Tensor:
    return rms_norm(states, states.shape[-1:])
