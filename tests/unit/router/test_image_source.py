import base64
import os

import pytest

from router.config import RouterSettings
from router.errors import ApiError
from router.image_source import ImageSource

PATH = "messages[0].content[0]"


@pytest.fixture
async def make():
    made = []

    def make(**settings) -> ImageSource:
        made.append(ImageSource(RouterSettings(max_image_bytes=4000, **settings)))
        return made[-1]

    yield make
    for source in made:
        await source.__aexit__(None, None, None)


@pytest.fixture
def source(make):
    return make()


async def refusal(source, url):
    with pytest.raises(ApiError) as caught:
        await source.read(url, PATH)
    assert caught.value.status == 400
    assert caught.value.param == PATH
    return caught.value


async def test_data_urls(source):
    data = bytes(range(256))
    assert await source.read("data:image/png;base64," + base64.b64encode(data).decode(), PATH) == data
    assert await source.read("DATA:;BASE64," + base64.b64encode(data).decode(), PATH) == data


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("data:image/png;base64", "comma"),
        ("data:image/png,%89PNG", "base64"),
        ("data:image/png;base64,!!!!", "malformed"),
        ("data:image/png;base64,AAA", "malformed"),
        ("data:image/png;base64,", "empty"),
        ("file:///etc/passwd", "http:, https: or data:"),
        ("ftp://127.0.0.1/x", "http:, https: or data:"),
        ("picture.png", "http:, https: or data:"),
        ("http://", "malformed"),
        ("http://user:pw@127.0.0.1/", "credentials"),
        ("http://[::1", "malformed"),
        ("http://127.0.0.1:99999/", "malformed"),
    ],
)
async def test_malformed_urls(source, url, words):
    assert words in (await refusal(source, url)).message


async def test_a_data_url_over_the_limit(source):
    error = await refusal(source, "data:;base64," + base64.b64encode(bytes(4001)).decode())
    assert error.code == "image_too_large"


@pytest.fixture
def folder(tmp_path):
    for path in ("open/deep/picture.png", "shut/secret.png", "open-too/secret.png"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(path.encode())
    (tmp_path / "open" / "large.png").write_bytes(bytes(4001))
    (tmp_path / "open" / "empty.png").touch()
    (tmp_path / "open" / "link.png").symlink_to(tmp_path / "shut" / "secret.png")
    (tmp_path / "open" / "inner.png").symlink_to(tmp_path / "open" / "deep" / "picture.png")
    os.mkfifo(tmp_path / "open" / "pipe.png")
    return tmp_path


async def test_files_below_the_allowed_folder(make, folder):
    source = make(allowed_local_media_path=str(folder / "open"))
    for url in (f"file://{folder}/open/deep/picture.png", f"FILE://localhost{folder}/open/de%65p/picture.png"):
        assert await source.read(url, PATH) == b"open/deep/picture.png"
    assert await source.read(f"file://{folder}/open/inner.png", PATH) == b"open/deep/picture.png"
    assert (await refusal(source, f"file://{folder}/open/large.png")).code == "image_too_large"


@pytest.mark.parametrize(
    "path",
    """/shut/secret.png /open/../shut/secret.png /open/%2e%2e/shut/secret.png /open-too/secret.png /open/link.png
    /open/pipe.png /open/empty.png /open /open/ /open/nothing.png /open/deep/picture.png%00.png""".split(),
)
async def test_other_files_sound_like_absent_ones(make, folder, path):
    source = make(allowed_local_media_path=str(folder / "open"))
    error = await refusal(source, f"file://{folder}{path}")
    assert (error.message, error.code) == (f"{PATH}: the file could not be read", "image_fetch_failed")


async def test_files_of_other_hosts_and_devices(make):
    source = make(allowed_local_media_path="/dev")
    for url in ("file://other.example/dev/null", "file:///dev/zero", "file:dev/zero", "file:"):
        assert (await refusal(source, url)).code == "image_fetch_failed"


async def test_a_failed_fetch_names_the_part(source):
    error = await refusal(source, "http://127.0.0.1:1/a.png")
    assert error.code == "image_fetch_failed"
    assert error.message.startswith(PATH)
