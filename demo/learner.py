"""The demo model as it learns: transformers' Llama 4 with auxiliary heads, its losses and its accuracy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy, pad
from transformers import Llama4ForConditionalGeneration

from demo.auxiliary import AuxiliaryHeads
from demo.batches import Step, TextBatch

# Weights of the auxiliary losses beside that of the answers.
EMBEDDING_WEIGHT = 0.3
POSITION_WEIGHT = 0.3
COUNT_WEIGHT = 1.0
SUBJECT_WEIGHT = 0.3


@dataclass(frozen=True)
class Result:
    """loss: a scalar to go back from; glyphs: share of covered image embeddings whose noun is right; right and asked:
    answers of which every token is the likeliest one (the right ones before it given), and all answers, by task.
    """

    loss: torch.Tensor
    glyphs: torch.Tensor
    right: Counter[str]
    asked: Counter[str]


class _Patches(nn.Module):
    """[n, channels, height, width] -> [n, channels * size * size, patches], as nn.Unfold(size, stride=size) does, which
    starts one kernel a tile.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        n, channels, height, width = pixels.shape
        rows, columns = height // self._size, width // self._size
        patches = pixels.view(n, channels, rows, self._size, columns, self._size).permute(0, 1, 3, 5, 2, 4)
        return patches.reshape(n, -1, rows * columns)


class Learner(nn.Module):
    def __init__(self, model: Llama4ForConditionalGeneration) -> None:
        super().__init__()
        self.model = model
        model.vision_model.patch_embedding.unfold = _Patches(model.config.vision_config.patch_size)
        self.heads = AuxiliaryHeads(model.config.text_config.hidden_size)

    def embed_tiles(self, tiles: torch.Tensor) -> torch.Tensor:
        """uint8 [tiles, 3, 336, 336] -> [tiles, 144, text width], as they enter the text model."""
        pixels = tiles.float() / 127.5 - 1
        if self.training:
            # Real pictures have noise, and a tile's numbers are rounded on their way into the engine.
            pixels = pixels + torch.randn_like(pixels) * (torch.rand(len(pixels), 1, 1, 1, device=pixels.device) * 0.06)
        features = self.model.vision_model(pixels).last_hidden_state
        return self.model.multi_modal_projector(features)

    def forward(self, step: Step, tiles: torch.Tensor) -> Result:
        device = tiles.device
        embeddings = self.embed_tiles(tiles)
        labels = torch.from_numpy(step.pictures.labels).to(device).long()
        loss, glyphs = self.heads.embedding_loss(embeddings, labels)
        right: Counter[str] = Counter()
        asked: Counter[str] = Counter()
        if step.text is not None:
            tasks = step.text.tasks
            answer_loss, position_loss, count_loss, subject_loss, correct = self._read(step.text, embeddings)
            loss = EMBEDDING_WEIGHT * loss + POSITION_WEIGHT * position_loss + COUNT_WEIGHT * count_loss
            loss = loss + answer_loss + SUBJECT_WEIGHT * subject_loss
            asked.update(tasks)
            right.update(task for task, ok in zip(tasks, correct.tolist(), strict=True) if ok)
        return Result(loss, glyphs, right, asked)

    def _read(
        self, text: TextBatch, embeddings: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Losses of the answers' tokens and of the position, count and subject heads, and whether each answer is right:
        bool [answers].
        """
        device = embeddings.device
        ids = torch.from_numpy(text.ids).to(device)
        learned = torch.from_numpy(text.learned).to(device)
        language_model = self.model.language_model
        words = language_model.model.embed_tokens(ids)
        is_patch = ids == self.model.config.image_token_id
        inputs = words.masked_scatter(is_patch[..., None], embeddings.flatten(0, 1).to(words.dtype))
        states = language_model.model(inputs_embeds=inputs, use_cache=False, output_hidden_states=True)

        # Every learned token is predicted from the position before it.
        targets = ids[learned]
        logits = language_model.lm_head(states.last_hidden_state[:, :-1][learned[:, 1:]]).float()
        answer_loss = cross_entropy(logits, targets)

        middle = states.hidden_states[len(language_model.model.layers) // 2]
        positions = torch.from_numpy(text.positions).to(device).long()
        position_loss = self.heads.position_loss(middle[is_patch], positions)

        counts = torch.from_numpy(text.counts).to(device).long()
        count_loss = self.heads.count_loss(middle[ids == self.model.config.eoi_token_index], counts)

        starts = learned & ~pad(learned, (1, 0))[:, :-1]
        answer = starts.flatten().cumsum(0)[learned.flatten()] - 1
        late = states.hidden_states[len(language_model.model.layers) - 1]
        subjects = torch.from_numpy(text.subjects).to(device).long()
        subject_loss = self.heads.subject_loss(late[:, :-1][learned[:, 1:]], subjects[answer])

        wrong = torch.zeros(len(text.tasks), device=device).index_add_(
            0, answer, (logits.argmax(-1) != targets).float()
        )
        return answer_loss, position_loss, count_loss, subject_loss, wrong == 0
