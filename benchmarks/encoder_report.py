"""The encoder benchmark's figures as a Markdown table and as a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Encoders in the order of the table's columns; those that a run lacks are left out.
COLUMNS = (
    "floor",
    "tessera graph",
    "tessera fp8 graph",
    "tessera eager",
    "vllm eager",
    "vllm graph",
    "vllm graph, exact budgets",
    "transformers eager",
)


def markdown(result: dict[str, Any]) -> str:
    """Median / p99 milliseconds by number of tiles, then what else was measured."""
    counts: dict[Any, dict[str, dict[str, float]]] = result["counts"]
    columns = [name for name in COLUMNS if name in next(iter(counts.values()))]
    lines = [
        f"{result['date']}, {result['gpu']}, torch {result['torch']}, vLLM {result['vllm'] or 'not measured'}.",
        "",
        "Milliseconds, median / p99:",
        "",
        "| tiles | " + " | ".join(columns) + " | graph / floor | TFLOP/s |",
        "|---" * (len(columns) + 3) + "|",
    ]
    for count, cells in counts.items():
        times = [f"{cells[name]['ms']:.2f} / {cells[name]['p99_ms']:.2f}" for name in columns]
        ours = cells["tessera graph"]
        lines.append(
            f"| {count} | {' | '.join(times)} | {ours['ms'] / cells['floor']['ms']:.2f} | {ours['tflops']:.0f} |"
        )
    lines += ["", *_ratios(counts), "", "Relative error against transformers in float32:", ""]
    measured = [name for name in columns if name != "floor"]
    lines += ["| tiles | " + " | ".join(measured) + " |", "|---" * (len(measured) + 1) + "|"]
    for count, cells in counts.items():
        lines.append(f"| {count} | " + " | ".join(f"{cells[name]['error']:.4f}" for name in measured) + " |")
    mix = result["mix"]
    speeds = ", ".join(f"{name} {mix[name]:.0f}" for name in measured)
    host = ", ".join(f"{count} tiles {cell['ms']:.2f} ms" for count, cell in result["host to host"].items())
    lines += [
        "",
        f"Mixed queue of {mix['images']} images ({mix['tiles']} tiles) in batches, tiles a second: {speeds}. "
        f"Tessera's padding: {mix['padding']:.2%} of the computed tiles.",
        "",
        f"Tessera from host memory to host memory: {host}.",
        "",
    ]
    for name, capture in result["capture"].items():
        lines.append(
            f"Capture, {name}: {len(capture['budgets'])} graphs in {capture['seconds']:.1f} s, "
            f"{capture['graphs_gib']:.2f} GiB; {capture['gib']:.2f} GiB with weights and staging buffers."
        )
    return "\n".join([*lines, "", *_profile(result["profile"])])


def _ratios(counts: dict[Any, dict[str, dict[str, float]]]) -> list[str]:
    """How many times as long the others take as Tessera's bfloat16 graphs do."""
    others = [
        name for name in COLUMNS if name not in ("floor", "tessera graph") and name in next(iter(counts.values()))
    ]
    lines = ["Times as long as Tessera's bfloat16 graph:", ""]
    lines += ["| tiles | " + " | ".join(others) + " |", "|---" * (len(others) + 1) + "|"]
    for count, cells in counts.items():
        ours = cells["tessera graph"]["ms"]
        lines.append(f"| {count} | " + " | ".join(f"{cells[name]['ms'] / ours:.2f}" for name in others) + " |")
    return lines


def _profile(profile: dict[Any, dict[str, dict[str, Any]]]) -> list[str]:
    """One replay on an idle GPU by groups of kernels, and the clock with and without sustained load."""
    lines = ["One replay of Tessera's bfloat16 graph on an idle GPU, by PyTorch's profiler, ms (kernels):", ""]
    groups = sorted({group for cell in profile.values() for group in cell["kernels"]})
    lines += ["| tiles | " + " | ".join(groups) + " | sum |", "|---" * (len(groups) + 2) + "|"]
    for count, cell in profile.items():
        kernels = cell["kernels"]
        shown = [f"{kernels[g]['ms']:.2f} ({kernels[g]['kernels']})" if g in kernels else "" for g in groups]
        lines.append(f"| {count} | {' | '.join(shown)} | {sum(group['ms'] for group in kernels.values()):.2f} |")
    lines.append("")
    for count, cell in profile.items():
        clock = cell["clock"]
        lines.append(
            f"Clock of the multiprocessors, replays of {count} tiles back to back: {clock['first_mhz']} MHz at first, "
            f"{clock['sustained_mhz']} MHz and {clock['sustained_watts']:.0f} W after two seconds."
        )
    return lines


def plot(result: dict[str, Any], path: Path) -> None:
    """Milliseconds against tiles, one line for each encoder."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    counts = result["counts"]
    figure, axes = pyplot.subplots(figsize=(8, 5.5), dpi=150)
    for name in COLUMNS:
        if name in next(iter(counts.values())):
            style = "--" if name == "floor" else "-"
            axes.plot(
                [int(c) for c in counts],
                [cells[name]["ms"] for cells in counts.values()],
                style,
                marker=".",
                label=name,
            )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    ticks = [1, 2, 3, 5, 9, 17, 34, 64]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_yticks([2**i for i in range(1, 9)], [str(2**i) for i in range(1, 9)])
    axes.set_xlabel("tiles")
    axes.set_ylabel("milliseconds")
    axes.set_title(f"Llama 4 vision encoder, {result['gpu']}")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
