"""Trains the demo model: `python -m demo.train DIR`, on one GPU in minutes.

First the encoder learns alone, from crowded pictures and the auxiliary heads; then everything learns together from
conversations. With --start, a checkpoint made before learns on from conversations, its encoder as it is. It ends after
--minutes, whatever the machine: the learning rate follows the time. Random numbers come from --seed; how many steps fit
and the order of a GPU's additions do not, so two runs differ slightly.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from contextlib import AbstractContextManager
from copy import deepcopy
from itertools import count
from pathlib import Path
from random import Random
from time import monotonic

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch.utils.data import DataLoader
from transformers import Llama4ForConditionalGeneration

from demo.architecture import Size, build_config, build_processor
from demo.batches import Step, TrainingSteps, conversation_step, draw_tiles, first
from demo.curves import History
from demo.dialogue import DialogueEncoder
from demo.digits import digits
from demo.examples import TASKS, Load, held_out_example
from demo.learner import Learner
from demo.local_attention import localize_attention
from demo.muon import BatchedMuon
from demo.saving import save_checkpoint
from demo.sprites import Sprites, plain_sprites, varied_sprites
from demo.tokenizer import build_tokenizer

DEMO = Size(
    text_width=192,
    text_layers=6,
    text_kv_heads=2,
    expert_width=256,
    experts=2,
    nope_interval=3,
    # As Maverick: normalized heads of 32 numbers cannot pick one token among thousands (logits stay below sqrt(32)).
    qk_norm=False,
    vision_width=128,
    vision_layers=6,
    adapter_width=256,
)

# Conversations of a step by the tiles they hold, see `examples.training_example`.
CONVERSATIONS: dict[Load, int] = {"one": 96, "few": 40, "many": 16}
VISION_PICTURES = 384
MATRIX_LEARNING_RATE = 1e-2
LEARNING_RATE = 3e-3
# Of the learning rates, when a trained text model learns on: lower, so that it forgets less. Chosen, not measured.
CONTINUED_SHARE = 0.5
WARMUP_STEPS = 50
EVALUATE_EVERY = 600


def schedule(step: int, vision_steps: int, spent: float) -> float:
    """Factor of the learning rates: both stages warm up, and a cosine leads down to zero at the end.

    spent: the part of the time that has passed, 0 to 1.
    """
    since = step if step < vision_steps else step - vision_steps
    return min(1.0, (since + 1) / WARMUP_STEPS) * 0.5 * (1 + math.cos(math.pi * spent))


def optimizers(learner: Learner, share: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers and between encoder and text model, AdamW for all else that learns.

    share: of the usual learning rates.
    """
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, parameter in learner.named_parameters():
        if not parameter.requires_grad:
            continue
        inside = ".layers." in name or ".vision_adapter." in name or ".multi_modal_projector." in name
        (matrices if inside and parameter.ndim > 1 and ".router." not in name else others).append(parameter)
    return [
        BatchedMuon(matrices, share * MATRIX_LEARNING_RATE, weight_decay=0.05),
        torch.optim.AdamW(others, share * LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01),
    ]


def held_out_steps(encode: DialogueEncoder, sprites: Sprites, seed: int, each: int) -> list[Step]:
    """`each` held-out conversations of every task, in one step a task."""
    rng = Random(seed)
    choices = sprites.choices()
    return [
        conversation_step([held_out_example(rng, task) for _ in range(each)], encode, choices, rng) for task in TASKS
    ]


class Training:
    """Model, optimizers and what they have seen; spent: the part of the time that has passed, 0 to 1.

    start: a checkpoint to learn on from, its encoder as it is.
    """

    def __init__(
        self, seed: int, vision_steps: int, device: torch.device, evaluation_size: int, start: Path | None
    ) -> None:
        torch.manual_seed(seed)
        self.tokenizer = build_tokenizer()
        config = build_config(DEMO, self.tokenizer, "bfloat16")
        # The default suits models some thirty times as wide.
        config.text_config.initializer_range = config.vision_config.initializer_range = 0.05
        model = Llama4ForConditionalGeneration(config)
        if start is None:
            localize_attention(model.vision_model)
        else:
            model.load_state_dict(Llama4ForConditionalGeneration.from_pretrained(start).state_dict())
            model.vision_model.requires_grad_(False)
        self.learner = Learner(model).to(device)
        self.optimizers = optimizers(self.learner, 1.0 if start is None else CONTINUED_SHARE)
        self.spent = 0.0
        self.schedulers = [
            torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule(step, vision_steps, self.spent))
            for optimizer in self.optimizers
        ]
        self.encode = DialogueEncoder(self.tokenizer, build_processor(self.tokenizer).chat_template)
        plain = plain_sprites(digits("held_out"), seed)
        self.evaluation = held_out_steps(self.encode, plain, seed, evaluation_size)
        self.plain_masks = plain.masks.to(device)
        self.device = device
        self.history = History()

    def _autocast(self) -> AbstractContextManager[None]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def learn(self, index: int, step: Step, masks: torch.Tensor) -> None:
        """One optimizer step."""
        self.learner.train()
        tiles = draw_tiles(step.pictures, masks)
        if step.text is not None:
            _mix_up_global_tiles(step, tiles)
        with self._autocast():
            result = self.learner(step, tiles)
        self.learner.zero_grad(set_to_none=True)
        result.loss.backward()
        torch.nn.utils.clip_grad_norm_(self.learner.parameters(), 1.0)
        for optimizer, scheduler in zip(self.optimizers, self.schedulers, strict=True):
            optimizer.step()
            scheduler.step()
        if index % 10 == 0:
            self.history.losses.append((index, result.loss.item()))
            self.history.glyphs.append((index, result.glyphs.item()))

    @torch.inference_mode()
    def evaluate(self, index: int) -> float:
        """Accuracy over all held-out answers, recorded by task; every task may hold questions of another's kind."""
        self.learner.eval()
        right: Counter[str] = Counter()
        asked: Counter[str] = Counter()
        for task, step in zip(TASKS, self.evaluation, strict=True):
            with self._autocast():
                result = self.learner(step, draw_tiles(step.pictures, self.plain_masks))
            right[task] += result.right.total()
            asked[task] += result.asked.total()
        return self.history.add_tasks(index, right, asked)

    def save(self, directory: Path) -> None:
        """Checkpoint, curves and their numbers."""
        save_checkpoint(deepcopy(self.learner.model), self.tokenizer, directory, shard_bytes=5_000_000)
        self.history.plot(directory / "curves.png")
        (directory / "history.json").write_text(json.dumps(vars(self.history)))


def _mix_up_global_tiles(step: Step, tiles: torch.Tensor) -> None:
    """Gives some pictures another one's global tile, so that the model learns to trust the tiles themselves: it sees
    more in them, and a tile in the wrong place shows in its answers.
    """
    for drawing in step.pictures.drawings:
        if drawing.slots.shape[1] > 1:
            ends = torch.from_numpy(drawing.slots[:, -1]).to(tiles.device)
            chosen = ends[torch.rand(len(ends), device=tiles.device) < 0.3]
            tiles[chosen] = tiles[chosen.roll(1)]


def train(
    directory: Path,
    seed: int,
    vision_steps: int,
    minutes: float,
    workers: int,
    conversations: dict[Load, int],
    vision_pictures: int,
    variants: int,
    evaluation_size: int,
    start: Path | None = None,
) -> History:
    """Trains and writes the checkpoint, `curves.png` and `history.json` to `directory`, at every evaluation anew.

    start: a checkpoint to learn on from, see `Training`; `vision_steps` is then 0.

    minutes: of both stages together; after them, the step in hand is the last one, but at least one step learns from
    conversations. variants: of every training digit, see `sprites.varied_sprites`.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    training = Training(seed, vision_steps, device, evaluation_size, start)
    sprites = varied_sprites(digits("train"), seed, variants, device)
    source = TrainingSteps(seed, vision_steps, vision_pictures, conversations, training.encode, sprites.choices())
    loader = DataLoader(source, batch_size=1, sampler=count(), num_workers=workers, collate_fn=first)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    seconds = 60 * minutes
    started = monotonic()
    with Progress(*columns, TextColumn("{task.fields[news]}")) as progress:
        bar = progress.add_task("encoder", total=seconds, news="")
        for index, step in enumerate(loader):
            training.learn(index, step, sprites.masks)
            elapsed = monotonic() - started
            over = elapsed >= seconds and step.text is not None
            training.spent = min(1.0, elapsed / seconds) if seconds else 1.0
            stage = "encoder" if step.text is None else "all"
            loss, glyphs = training.history.losses[-1][1], training.history.glyphs[-1][1]
            news = f"step {index + 1}, loss {loss:.3f}, glyphs {glyphs:.3f}"
            progress.update(bar, completed=elapsed, description=stage, news=news)
            if over or (step.text is not None and (index + 1) % EVALUATE_EVERY == 0):
                accuracy = training.evaluate(index + 1)
                training.save(directory)
                tasks = ", ".join(f"{task} {points[-1][1]:.3f}" for task, points in training.history.tasks.items())
                progress.console.print(f"{elapsed:5.0f} s, {news}, held out {accuracy:.3f} ({tasks})")
            if over:
                break
    return training.history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=Path, help="checkpoint to learn on from, its encoder as it is")
    parser.add_argument("--vision-steps", type=int, default=250, help="steps in which the encoder learns alone")
    parser.add_argument("--minutes", type=float, default=9.0, help="length of the training")
    parser.add_argument("--workers", type=int, default=14, help="processes that make conversations")
    options = parser.parse_args()
    train(
        options.directory,
        options.seed,
        0 if options.start else options.vision_steps,
        options.minutes,
        options.workers,
        conversations=CONVERSATIONS,
        vision_pictures=VISION_PICTURES,
        variants=12,
        evaluation_size=64,
        start=options.start,
    )


if __name__ == "__main__":
    main()
