"""The comparison as Markdown tables and as a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

HEADINGS = (
    "configuration", "load", "requests/s", "tokens/s", "TTFT p50 / p99 ms", "TPOT p50 / p99 ms", "ITL p50 / p99 ms",
    "goodput/s", "CPU s/request", "GPU GiB", "failed",
)  # fmt: skip


def _by_workload(result: dict[str, Any]) -> dict[str, dict[tuple[str, str], dict[str, Any]]]:
    """Cells by workload, then by (load, configuration)."""
    workloads: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    for name, cell in result["cells"].items():
        configuration, workload, load = name.split("/")
        workloads.setdefault(workload, {})[load, configuration] = cell
    return workloads


def _row(load: str, configuration: str, cell: dict[str, Any]) -> list[str]:
    def pair(metric: str) -> str:
        return f"{cell[f'{metric}_p50_ms']:.1f} / {cell[f'{metric}_p99_ms']:.1f}"

    rate = load if cell["rate"] is None else f"{load}, {cell['rate']:.1f}/s"
    memory = "" if cell["gpu_gib"] is None else f"{cell['gpu_gib']:.1f}"
    return [
        configuration, f"{rate} ({cell['requests']})", f"{cell['requests_per_s']:.2f}",
        f"{cell['output_tokens_per_s']:.0f}", pair("ttft"), pair("tpot"), pair("itl"), f"{cell['goodput_per_s']:.2f}",
        f"{cell['cpu_s_per_request']:.3f}", memory, str(cell["failed"]),
    ]  # fmt: skip


def markdown(result: dict[str, Any]) -> str:
    """One table a workload: all configurations at one load, then at the next."""
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    slo = " and ".join(f"{name.upper()} at most {limit} ms" for name, limit in machine["slo_ms"].items())
    lines = [
        f"{machine['date']}, {machine['gpu']}; {versions}; {machine['model']}.",
        "",
        f"In brackets: number of requests. Burst: at most {machine['most_at_once']} at once. Goodput: requests "
        f"a second with {slo}.",
    ]
    if machine["together"]:
        lines += [
            "",
            "All servers were on the GPU at once, idle while another one was measured; memory is of all of them.",
        ]
    for workload, cells in _by_workload(result).items():
        lines += ["", f"### {workload}", "", "| " + " | ".join(HEADINGS) + " |", "|---" * len(HEADINGS) + "|"]
        for load in dict.fromkeys(load for load, _ in cells):
            for (at, configuration), cell in cells.items():
                if at == load:
                    lines.append("| " + " | ".join(_row(load, configuration, cell)) + " |")
    lines += ["", "Starts, until ready: "]
    lines += [f"- {name}: {server['start_s']:.0f} s" for name, server in result["servers"].items()]
    return "\n".join(lines)


def plot(result: dict[str, Any], path: Path) -> None:
    """Bars by configuration: requests a second in the burst, and the median TTFT at half of saturation."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    workloads = _by_workload(result)
    panels = (("burst", "requests_per_s", "requests/s in a burst"), ("half", "ttft_p50_ms", "median TTFT, ms, at half"))
    figure, grid = pyplot.subplots(
        len(panels), len(workloads), figsize=(4.2 * len(workloads), 6), dpi=150, squeeze=False
    )
    for row, (load, metric, label) in zip(grid, panels, strict=True):
        for axes, (workload, cells) in zip(row, workloads.items(), strict=True):
            bars = {name: cell[metric] for (at, name), cell in cells.items() if at == load}
            positions = range(len(bars))
            drawn = axes.barh(positions, list(bars.values()), color=[f"C{i}" for i in positions])
            axes.bar_label(drawn, fmt="%.1f", fontsize=7)
            axes.set_yticks(positions, list(bars), fontsize=7)
            axes.invert_yaxis()
            axes.margins(x=0.15)
            axes.set_title(f"{workload}: {label}", fontsize=8)
    figure.suptitle(f"{result['machine']['gpu']}; {result['machine']['model']}", fontsize=9)
    figure.tight_layout()
    figure.savefig(path)
