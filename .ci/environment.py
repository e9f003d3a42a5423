"""Creates the virtual environment that the Makefile works in; run by a bare Python 3.11, so standard library only.

    python3.11 .ci/environment.py VENV [--extra cpu|gpu|auto] [--with test] [--source PATH]

Idempotent and quiet when nothing changed: a stamp in the environment holds what was installed. Says what it does
otherwise. Everything goes into VENV; nothing else on the machine is touched.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# vLLM names them, Llama 4 needs neither, and a build that cannot load takes the engine down with it.
OPTIONAL_MEDIA = ("torchcodec", "torchaudio")


def say(message: str) -> None:
    print(f"[environment] {message}", flush=True)


def pick_extra(wanted: str) -> str:
    """`auto` is `gpu` where the NVIDIA driver answers, else `cpu`."""
    if wanted != "auto":
        return wanted
    smi = shutil.which("nvidia-smi")
    found = smi and subprocess.run([smi, "-L"], capture_output=True).stdout.startswith(b"GPU")
    return "gpu" if found else "cpu"


class Environment:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.python = path / "bin" / "python"

    def run(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(self.python), *args], text=True, capture_output=True, check=check)

    def imports(self, module: str) -> bool:
        """False where importing the module raises; a module that is not installed raises nothing here."""
        code = f"import importlib.util as u; u.find_spec({module!r}) and __import__({module!r})"
        return self.run("-W", "ignore", "-c", code, check=False).returncode == 0

    def site_packages(self) -> Path:
        return Path(self.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())

    def pip(self, *args: str) -> int:
        """pip's exit status; its log goes to a file beside the environment's stamp."""
        with (self.path / "install.log").open("a") as log:
            log.write(f"\n$ pip {' '.join(args)}\n")
            log.flush()
            command = [str(self.python), "-m", "pip", "--disable-pip-version-check", *args]
            return subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode

    def install(self, requirement: list[str], extra: str) -> None:
        if self.pip("install", "--progress-bar", "off", *requirement) == 0:
            return
        if extra == "cpu":
            say("pip's own sources lack the CPU build of torch; trying PyTorch's CPU wheel index too")
            if self.pip("install", "--progress-bar", "off", *requirement, "--extra-index-url", PYTORCH_CPU_INDEX) == 0:
                return
        log = self.path / "install.log"
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise SystemExit(f"{tail}\n[environment] installation failed; the whole log is {log}")

    def repair(self) -> None:
        """Removes or mends companions of torch that were built against another torch."""
        for module in OPTIONAL_MEDIA:
            if not self.imports(module):
                say(f"{module} does not match this torch and is not needed: removed")
                if self.pip("uninstall", "--yes", module) != 0:
                    raise SystemExit(f"[environment] {module} could not be removed; see {self.path / 'install.log'}")
        if not self.imports("torchvision"):
            say("torchvision's compiled operators do not match this torch: declaring them without code")
            site = self.site_packages()
            shutil.copy(HERE / "torchvision_operators.py", site / "torchvision_operators.py")
            (site / "torchvision_operators.pth").write_text("import torchvision_operators\n")
            if not self.imports("torchvision"):
                raise SystemExit("[environment] torchvision cannot be imported; install a build that matches torch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("venv", type=Path)
    parser.add_argument("--extra", choices=["auto", "cpu", "gpu"], default="auto", help="which build of vLLM")
    parser.add_argument("--with", dest="more", default="", help="further extras, comma separated")
    parser.add_argument("--source", type=Path, default=HERE.parent, help="a checkout (installed editable) or a wheel")
    options = parser.parse_args()

    extra = pick_extra(options.extra)
    extras = ",".join(filter(None, [extra, options.more]))
    target = f"{options.source.resolve()}[{extras}]"
    requirement = ["--editable", target] if options.source.is_dir() else [target]

    wanted = hashlib.sha256(repr((sys.version, requirement)).encode())
    for path in (HERE.parent / "pyproject.toml", Path(__file__), HERE / "torchvision_operators.py"):
        wanted.update(path.read_bytes())
    stamp = options.venv / "installed"
    if stamp.exists() and stamp.read_text() == wanted.hexdigest():
        return

    started = time.monotonic()
    environment = Environment(options.venv.resolve())
    if not environment.python.exists():
        say(f"creating {options.venv}")
        venv.create(options.venv, with_pip=True, symlinks=True)
    (environment.path / "install.log").write_text("")
    say(f"installing Tessera with [{extras}]: vLLM, Ray and torch are about 5 GB (cpu), this takes a few minutes")
    environment.pip("install", "--upgrade", "pip>=25")
    environment.install(requirement, extra)
    environment.repair()
    stamp.write_text(wanted.hexdigest())
    say(f"ready after {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
