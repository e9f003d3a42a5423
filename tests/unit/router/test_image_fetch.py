import asyncio
import socket
import time
import zlib

import pytest
from aiohttp import web

from router import image_fetch
from router.image_fetch import MAX_REDIRECTS, FetchError, ImageFetcher

# 100 MB of one byte in 97 kB.
PACKED = zlib.compress(b"x" * 10**8)
LOOPBACK = ("127.0.0.0/8", "::1/128")


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
            case "/once":
                await asyncio.sleep(0.1)
                return web.Response(body=b"picture")
            case path if path.startswith("/hop/"):
                left = int(path.removeprefix("/hop/"))
                raise web.HTTPFound(f"/hop/{left - 1}" if left else "/picture")
            case "/to":
                raise web.HTTPTemporaryRedirect(request.query["url"])
            case "/echo":
                return web.Response(body=repr(sorted(request.headers)).encode())
            case "/page":
                return web.Response(body=b"picture", content_type="text/html")
            case "/packed":
                return web.Response(body=PACKED, headers={"Content-Encoding": "deflate"})
            case "/drip":
                response = web.StreamResponse()
                await response.prepare(request)
                while True:
                    await response.write(b"x")
                    await asyncio.sleep(0.1)
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
async def make():
    made = []

    def make(**more) -> ImageFetcher:
        options = {"max_bytes": 4000, "timeout_s": 10, "private_networks": LOOPBACK} | more
        made.append(ImageFetcher(**options))
        return made[-1]

    yield make
    for fetcher in made:
        await fetcher.close()


async def refusal(fetcher, url) -> tuple[str, str | None]:
    with pytest.raises(FetchError) as caught:
        await fetcher.fetch(url, "")
    return caught.value.message, caught.value.code


async def test_a_picture_whatever_its_host_calls_it(make, host):
    base, _ = host
    assert await make().fetch(f"{base}/picture", "") == b"picture"
    assert await make().fetch(f"{base}/page", "") == b"picture"


async def test_redirects_are_followed_and_counted(make, host):
    base, _ = host
    assert await make().fetch(f"{base}/redirect", "") == b"picture"
    # "/hop/3" redirects to 2, 1, 0 and the picture.
    assert await make().fetch(f"{base}/hop/{MAX_REDIRECTS - 1}", "") == b"picture"
    assert (await refusal(make(), f"{base}/hop/{MAX_REDIRECTS}"))[1] == "image_fetch_failed"


@pytest.mark.parametrize(
    "target",
    """http://169.254.169.254/latest http://[::1]:1/ http://[::ffff:7f00:1]/ file:///etc/passwd ftp://127.0.0.1/
    gopher://127.0.0.1:1/ http://user:pw@127.0.0.1/picture javascript:1""".split(),
)
async def test_every_hop_is_checked_like_the_first(make, host, target):
    base, asked = host
    only = base.removeprefix("http://").partition(":")[0]
    with pytest.raises(FetchError):
        await make(private_networks=[f"{only}/32"]).fetch(f"{base}/to?url={target}", "")
    assert asked == ["/to"]


async def test_no_credentials_and_no_cookies_leave(make, host):
    base, _ = host
    sent = await make().fetch(f"{base}/echo", "")
    assert sent == repr(["Accept", "Accept-Encoding", "Host", "User-Agent"]).encode()


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
        ("/drip", "image_fetch_timeout"),
    ],
)
async def test_hosts_that_fail(make, host, path, code):
    fetcher = make(timeout_s=0.5) if code == "image_fetch_timeout" else make()
    assert (await refusal(fetcher, host[0] + path))[1] == code


async def test_nothing_is_unpacked(make, host):
    assert (await refusal(make(), host[0] + "/packed"))[1] == "image_too_large"
    packed = await make(max_bytes=200_000).fetch(host[0] + "/packed", "")
    assert len(packed) < 200_000


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "127.1", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_inside_hosts_are_never_contacted_and_sound_like_absent_ones(make, host, name):
    base, asked = host
    port = base.rpartition(":")[2]
    fetcher = make(private_networks=())
    refused = await refusal(fetcher, f"http://{name}:{port}/picture")
    assert asked == []
    assert refused == await refusal(fetcher, "http://no-such-host.invalid/picture")
    assert refused == await refusal(make(), "http://127.0.0.1:1/nothing-listens")


@pytest.fixture
def names(monkeypatch):
    """Name -> the addresses that its look-ups give, one look-up after the other."""
    table: dict[str, list[str]] = {}
    honest = socket.getaddrinfo

    def getaddrinfo(host, port, *args, **kwargs):
        if host not in table:
            return honest(host, port, *args, **kwargs)
        answers = table[host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers.pop(0), port))]

    monkeypatch.setattr(image_fetch.socket, "getaddrinfo", getaddrinfo)
    return table


async def test_a_name_that_leads_inside(make, host, names):
    base, asked = host
    names["inside.example"] = ["127.0.0.1"]
    port = base.rpartition(":")[2]
    await refusal(make(private_networks=()), f"http://inside.example:{port}/picture")
    assert asked == []


async def test_the_address_that_was_checked_is_dialled(make, host, names):
    """A name that resolves to a permitted address first and to an inside one ever after."""
    base, asked = host
    port = base.rpartition(":")[2]
    names["rebind.example"] = ["127.0.0.1", "127.0.0.2", "127.0.0.2"]
    fetcher = make(private_networks=["127.0.0.1/32"])
    assert await fetcher.fetch(f"http://rebind.example:{port}/picture", "") == b"picture"
    assert len(names["rebind.example"]) == 2, "one look-up for the check and the dialling"
    fresh = make(private_networks=["127.0.0.1/32"])
    await refusal(fresh, f"http://rebind.example:{port}/picture")
    assert asked == ["/picture"]


@pytest.mark.parametrize(
    ("allowed", "host", "permitted"),
    [
        ("a.example", "http://a.example/x", True),
        ("a.example", "https://a.example/x", True),
        ("a.example", "https://A.Example./x", True),
        ("a.example", "http://a.example:8080/x", False),
        ("a.example", "http://b.a.example/x", False),
        ("a.example", "http://a.example.evil/x", False),
        ("a.example", "http://a.example@evil/x", False),
        ("a.example:8080", "http://a.example:8080/x", True),
        ("a.example:8080", "http://a.example/x", False),
        ("*.a.example", "http://b.a.example/x", True),
        ("*.a.example", "http://a.example/x", False),
        ("*.a.example", "http://xa.example/x", False),
    ],
)
def test_the_list_of_hosts(make, allowed, host, permitted):
    fetcher = make(allowed_hosts=[allowed])
    if permitted:
        fetcher._check(host)
    else:
        with pytest.raises(FetchError):
            fetcher._check(host)


async def test_a_host_that_is_not_on_the_list_sounds_absent_and_a_redirect_to_one_too(make, host):
    base, asked = host
    port = int(base.rpartition(":")[2])
    fetcher = make(allowed_hosts=[f"127.0.0.1:{port}"])
    absent = await refusal(make(), "http://no-such-host.invalid/")
    assert await refusal(fetcher, f"http://127.0.0.2:{port}/picture") == absent
    assert await refusal(fetcher, f"{base}/to?url=http://127.0.0.2:{port}/picture") == absent
    assert asked == ["/to"]
    assert await fetcher.fetch(f"{base}/picture", "") == b"picture"


async def test_one_fetch_for_all_who_want_it_now_and_one_a_tenant(make, host):
    base, asked = host
    fetcher = make()
    found = await asyncio.gather(*(fetcher.fetch(f"{base}/once", tenant) for tenant in "aaaaab"))
    assert found == [b"picture"] * 6
    assert asked == ["/once"] * 2


async def test_slow_hosts_delay_nobody(make, host):
    base, _ = host
    fetcher = make()
    slow = [asyncio.create_task(fetcher.fetch(f"{base}/slow?{i}", "")) for i in range(200)]
    await asyncio.sleep(0.5)
    started = time.monotonic()
    assert await fetcher.fetch(f"{base}/picture", "") == b"picture"
    assert time.monotonic() - started < 2
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_names_that_resolve_slowly_delay_nobody(make, host, monkeypatch):
    base, _ = host
    honest = socket.getaddrinfo

    def getaddrinfo(name, *args, **kwargs):
        if name.endswith(".slow.example"):
            time.sleep(1)
            raise socket.gaierror
        return honest(name, *args, **kwargs)

    monkeypatch.setattr(image_fetch.socket, "getaddrinfo", getaddrinfo)
    fetcher = make()
    slow = [asyncio.create_task(fetcher.fetch(f"http://{i}.slow.example/", "")) for i in range(50)]
    await asyncio.sleep(0.2)
    started = time.monotonic()
    port = base.rpartition(":")[2]
    assert await fetcher.fetch(f"http://localhost:{port}/picture", "") == b"picture"
    assert await asyncio.to_thread(lambda: True)
    assert time.monotonic() - started < 0.7
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
