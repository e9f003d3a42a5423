import asyncio
import base64

import pytest
from aiohttp import web

from router.errors import ApiError
from router.image_source import ImageSource, _PublicAddresses

LOOPBACK = ("127.0.0.0/8", "::1/128")
PATH = "messages[0].content[0]"


@pytest.fixture
async def host():
    """A small web host on loopback: its base URL, and the paths that were asked for."""
    asked = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        match request.path:
            case "/picture":
                return web.Response(body=b"picture")
            case "/redirect":
                raise web.HTTPFound("/picture")
            case "/loop":
                raise web.HTTPFound("/loop")
            case "/inside":
                raise web.HTTPFound("http://169.254.169.254/latest")
            case "/empty":
                return web.Response(body=b"")
            case "/large":
                return web.Response(body=b"x" * 5000)
            case "/endless":
                response = web.StreamResponse()
                await response.prepare(request)
                while True:
                    await response.write(b"x" * 512)
            case "/slow":
                await asyncio.sleep(30)
            case "/short":
                response = web.StreamResponse(headers={"Content-Length": "100"})
                await response.prepare(request)
                await response.write(b"x")
                request.transport.close()
                return response
            case "/broken":
                raise web.HTTPInternalServerError
        raise web.HTTPNotFound

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}", asked
    await runner.cleanup()


@pytest.fixture
async def source():
    async with ImageSource(max_bytes=4000, timeout_s=0.5, private_networks=LOOPBACK) as made:
        yield made


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


async def test_fetching_and_redirects(source, host):
    base, _ = host
    assert await source.read(f"{base}/picture", PATH) == b"picture"
    assert await source.read(f"{base}/redirect", PATH) == b"picture"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/missing", "image_fetch_failed"),
        ("/broken", "image_fetch_failed"),
        ("/empty", "image_fetch_failed"),
        ("/short", "image_fetch_failed"),
        ("/loop", "image_fetch_failed"),
        ("/inside", "image_fetch_failed"),
        ("/large", "image_too_large"),
        ("/endless", "image_too_large"),
        ("/slow", "image_fetch_timeout"),
    ],
)
async def test_hosts_that_fail(source, host, path, code):
    assert (await refusal(source, host[0] + path)).code == code


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "127.1", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_inside_hosts_are_never_contacted_and_sound_like_absent_ones(host, name):
    base, asked = host
    port = base.rpartition(":")[2]
    async with ImageSource(max_bytes=4000, timeout_s=5) as source:
        refused = await refusal(source, f"http://{name}:{port}/picture")
        absent = await refusal(source, "http://no-such-host.invalid/picture")
    assert asked == []
    assert (refused.message, refused.code) == (absent.message, absent.code)


@pytest.mark.parametrize(
    "address",
    """10.0.0.1 172.16.0.1 192.168.1.1 127.0.0.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255 ::1 ::
    fe80::1 fe80::1%eth0 fc00::1 ff02::1 ::ffff:10.0.0.1 64:ff9b::a00:1 2002:7f00:1::""".split(),
)
def test_addresses_that_are_not_public(address):
    assert not _PublicAddresses(()).permits(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses(address):
    assert _PublicAddresses(()).permits(address)


def test_a_named_network_is_permitted():
    addresses = _PublicAddresses(["10.1.0.0/16"])
    assert addresses.permits("10.1.2.3")
    assert addresses.permits("::ffff:10.1.2.3")
    assert not addresses.permits("10.2.0.1")
