"""The built wheel serves, in an environment that has never seen the checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import pytest

from tests.application import ROOT, default_config, free_port, serve_run
from tests.pictures import part, picture, user


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_wheel_serves_elsewhere(tiny_checkpoint, monkeypatch):
    elsewhere = Path(tempfile.mkdtemp(prefix="wheel-", dir="/tmp"))
    monkeypatch.setenv("RAY_TMPDIR", str(elsewhere / "ray"))
    try:
        build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(elsewhere / "dist"), str(ROOT)]
        subprocess.run([sys.executable, *build], check=True, capture_output=True)
        [wheel] = (elsewhere / "dist").glob("tessera_serve-*.whl")
        install = [str(elsewhere / "venv"), "--extra", "cpu", "--source", str(wheel)]
        subprocess.run([sys.executable, str(ROOT / ".ci" / "environment.py"), *install], check=True)
        python = elsewhere / "venv" / "bin" / "python"
        origin = subprocess.run(
            [python, "-c", "import router; print(router.__file__)"], cwd=elsewhere, capture_output=True, text=True
        )
        assert origin.stdout.startswith(str(elsewhere / "venv")), origin
        for package in ("encoder_pool", "llm_pool", "router"):
            assert list((elsewhere / "venv").glob(f"lib/*/site-packages/{package}/py.typed"))

        config = default_config(tiny_checkpoint, free_port())
        config["applications"][0]["args"]["llm"]["frontend_kwargs"]["chat_template"] = "lossless"
        with serve_run(config, "local", elsewhere, python=python, cwd=elsewhere) as running:
            body = {"model": running.model, "messages": [user(part(picture(1)), "What?")], "max_tokens": 4}
            answer = httpx.post(f"{running.url}/v1/chat/completions", json=body, timeout=60)
            assert answer.status_code == 200
            assert answer.json()["usage"]["completion_tokens"] > 0
    finally:
        shutil.rmtree(elsewhere, ignore_errors=True)
