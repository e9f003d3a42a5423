"""demo.ask against a real HTTP server that streams like an OpenAI endpoint, and against none."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from PIL import Image

from demo import ask


class Endpoint(BaseHTTPRequestHandler):
    def do_GET(self):
        self._send("application/json", json.dumps({"object": "list", "data": [{"id": "tiny", "object": "model"}]}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        chunks = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("a red ", "circle")]
        events = [f"data: {json.dumps(chunk)}\n\n" for chunk in [*chunks, {"choices": []}]]
        self._send("text/event-stream", "".join(events) + "data: [DONE]\n\n")

    def _send(self, kind, text):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "picture.png"
    Image.new("RGB", (8, 8), "red").save(path)
    return path


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["ask", *map(str, arguments)])
    ask.main()


def test_it_sends_the_picture_and_prints_the_answer(monkeypatch, capsys, picture):
    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    server.bodies = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        run(monkeypatch, picture, "What is it?", "--url", f"http://127.0.0.1:{server.server_port}/v1")
    finally:
        server.shutdown()
        server.server_close()
    assert capsys.readouterr().out == "a red circle\n"
    image, text = server.bodies[0]["messages"][0]["content"]
    assert image["image_url"]["url"].startswith("data:image/png;base64,")
    assert text["text"] == "What is it?"
    assert server.bodies[0]["model"] == "tiny"


def test_without_a_server_it_says_how_to_start_one(monkeypatch, picture):
    with pytest.raises(SystemExit, match="no server answers at .*make serve"):
        run(monkeypatch, picture, "What is it?", "--url", "http://127.0.0.1:9/v1")


def test_what_is_not_a_picture_is_said_to_be_none(monkeypatch, tmp_path):
    path = tmp_path / "text.png"
    path.write_text("no picture")
    with pytest.raises(SystemExit, match="cannot read the picture"):
        run(monkeypatch, path, "What is it?")
