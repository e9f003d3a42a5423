"""Mutated pictures, data URLs, embeddings and content parts against the intake: a result or an ApiError, nothing else.

    python -m tests.fuzz.fuzz_intake CORPUS -max_total_time=600 -max_len=65536 -rss_limit_mb=4096 -timeout=30

From the root, with `pip install atheris`. The folder CORPUS is made where it does not exist, and filled from
tests/cases; options are libFuzzer's. What it finds is written to a file, which belongs into tests/data/fuzz then.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["router", "PIL"]):
    from tests.fuzz.targets import TARGETS, one_input

CASES = Path(__file__).parents[1] / "cases"


def seed(corpus: Path) -> None:
    """One input of each kind (see targets.py) from every case."""
    corpus.mkdir(parents=True)
    for number, path in enumerate(sorted(CASES.rglob("*.*"))):
        for target in range(len(TARGETS)):
            (corpus / f"{number}-{target}").write_bytes(bytes([target]) + path.read_bytes())


def main() -> None:
    corpus = Path(sys.argv[1])
    if not corpus.exists():
        seed(corpus)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
