"""The order of things and the retries, with the pools replaced behind router.handoff."""

from __future__ import annotations

import asyncio
import base64

import numpy as np
import pytest
from ray.exceptions import ActorDiedError, RayTaskError

from encoder_pool.errors import QueueFullError
from encoder_pool.wire import EmbeddingMeta
from llm_pool.reply import Reply
from router import client_embeddings, encoders, handoff
from router.config import AppConfig
from router.errors import ApiError
from router.image_source import ImageSource
from router.metrics import RouterMetrics
from router.pipeline import Pipeline
from router.tiling import Tiler
from tests.pictures import npy, part, picture, user

OK = Reply(200, False, "{}")
LOST = Reply(503, False, "lost", lost=True)


class Ref(str):
    """Stands for a reference; no two calls make the same."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        return self is other if isinstance(other, Ref) else str(self) == other


class Pools:
    """Stands for both pools: plays a script of results and failures, and remembers what it was called with."""

    def __init__(self) -> None:
        self.encodes: list[tuple] = []
        self.decodes: list[tuple] = []
        self.encode_script: list = []
        self.decode_script: list = []
        self.fingerprint = "f"
        self.replicas = 1
        self.left = 0

    async def encode(self, handle, tiles, shards, timeout_s, promise):
        self.encodes.append((tiles, list(shards)))
        refs = [Ref(f"{shard.hash[:8]}/{shard.tiles}") for shard in shards]
        promise(refs)
        step = self.encode_script.pop(0) if self.encode_script else None
        if isinstance(step, tuple):
            event, step = step
            await event.wait()
        if isinstance(step, BaseException):
            raise step
        if step is not None:
            await asyncio.sleep(step)
        meta = EmbeddingMeta(len(shards), "bfloat16", self.fingerprint, 1000, tuple(shards))
        return handoff.Encoded(meta, refs)

    async def decode(self, handle, endpoint, body, hand_off, request_id, refs):
        self.decodes.append((body, hand_off, refs))
        for item in self.decode_script.pop(0) if self.decode_script else [OK]:
            if isinstance(item, BaseException):
                raise item
            if not isinstance(item, asyncio.Event):
                yield item
                continue
            try:
                await item.wait()
            except asyncio.CancelledError:
                self.left += 1
                raise


@pytest.fixture
def pools(monkeypatch):
    made = Pools()
    monkeypatch.setattr(handoff, "encode", made.encode)
    monkeypatch.setattr(handoff, "decode", made.decode)
    monkeypatch.setattr(handoff, "by_reference", lambda handle: handle)
    monkeypatch.setattr(handoff, "replica_count", lambda handle: made.replicas)
    return made


@pytest.fixture
def make_pipe(pools, model):
    def make(**settings) -> Pipeline:
        config = AppConfig.model_validate({"model": model, "router": {"encode_timeout_s": 0.5} | settings})
        return Pipeline(config, None, None, ImageSource(config.router), Tiler(model), RouterMetrics())

    return make


@pytest.fixture
def pipe(make_pipe):
    return make_pipe()


def chat(*content, **more):
    return {"model": "demo", "messages": [user(*content)]} | more


async def refusal(pipe, body) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await pipe.answer("chat", body, "id")
    return caught.value


async def test_text_never_sees_the_encoder(pipe, pools):
    assert (await pipe.answer("chat", chat("hi"), "id")).head == OK
    assert pools.encodes == []
    assert pools.decodes[0][1:] == (None, [])


async def test_images_keep_their_order_tiles_and_aspects(pipe, pools, model):
    images = [picture(0, (336, 336)), picture(1, (700, 300)), picture(2, (300, 900))]
    await pipe.answer("chat", chat(*map(part, images)), "id")
    tiles, shards = pools.encodes[0]
    assert [(s.tiles, s.aspect) for s in shards] == [(1, (1, 1)), (4, (1, 3)), (4, (3, 1))]
    assert (tiles == np.concatenate([Tiler(model).tile(image).pixels for image in images])).all()
    body, hand_off, refs = pools.decodes[0]
    assert hand_off.images == tuple(shards)
    assert refs == [f"{shard.hash[:8]}/{shard.tiles}" for shard in shards]
    assert body["messages"][0]["content"] == [{"type": "image_embeds", "image_embeds": i} for i in range(3)]


async def test_equal_pictures_are_encoded_once_and_other_limits_apart(pipe, pools):
    image = part(picture(3, (672, 672)))
    low = {"type": "image_url", "image_url": image["image_url"] | {"detail": "low"}}
    await pipe.answer("chat", chat("warm-up", part(picture(0))), "id")
    await pipe.answer("chat", chat(image, low, image), "id")
    assert [shard.tiles for shard in pools.encodes[1][1]] == [5, 1]
    images = pools.decodes[1][1].images
    assert [shard.tiles for shard in images] == [5, 1, 5]
    assert images[0].hash == images[2].hash != images[1].hash
    await pipe.answer("chat", chat(low, image), "id")
    assert len(pools.encodes) == 2, "both are kept"
    assert pools.decodes[2][1].images == (images[1], images[0])


async def test_tenants_share_nothing(pipe, pools):
    await pipe.answer("chat", chat(part(picture(0))), "id")
    body = chat(part(picture(3)), cache_salt="mine")
    for tenant in ("a", "b", "a", ""):
        await pipe.answer("chat", body, "id", tenant)
    assert len(pools.encodes) == 4, "only the second request of `a` finds its picture"
    found = [(call[0].get("cache_salt"), call[1].images[0].hash) for call in pools.decodes[1:]]
    assert [salt for salt, _ in found] == ["a:mine", "b:mine", "a:mine", "mine"]
    assert len({name for _, name in found}) == 3


async def test_other_weights_make_other_hashes(pipe, pools):
    image = part(picture(3))
    for fingerprint in ("one", "two"):
        pools.fingerprint = fingerprint
        await pipe.answer("chat", chat(part(picture(hash(fingerprint) % 100))), "id")
        await pipe.answer("chat", chat(image), "id")
    assert pools.decodes[1][1].images[0].hash != pools.decodes[3][1].images[0].hash


async def test_a_large_request_is_split_over_the_replicas_and_put_together_again(pipe, pools, model):
    pools.replicas = 3
    images = [picture(1, (1344, 1344)), picture(2, (700, 300))]
    await pipe.answer("chat", chat(*map(part, images)), "id")
    assert [[s.tiles for s in shards] for _, shards in pools.encodes] == [[7], [7], [3, 4]]
    sent = np.concatenate([tiles for tiles, _ in pools.encodes])
    assert (sent == np.concatenate([Tiler(model).tile(image).pixels for image in images])).all()
    _, hand_off, refs = pools.decodes[0]
    assert [(i.tiles, i.aspect) for i in hand_off.images] == [(17, (4, 4)), (4, (1, 3))]
    square, wide = (image.hash[:8] for image in hand_off.images)
    assert refs == [f"{square}/7", f"{square}/7", f"{square}/3", f"{wide}/4"]


async def test_fifty_requests_for_a_new_image_cost_one_encode(pipe, pools):
    pools.encode_script = [0.2]
    body = chat(part(picture(6)))
    answers = await asyncio.gather(*(pipe.answer("chat", body, str(i)) for i in range(50)))
    assert [answer.head for answer in answers] == [OK] * 50
    assert len(pools.encodes) == 1


TILE = 3 * 336 * 336


async def test_pictures_that_do_not_fit_beside_others_are_refused_until_those_are_done(make_pipe, pools):
    pipe = make_pipe(in_flight_bytes=4 * TILE)
    pools.encode_script = [0.2]
    first = asyncio.create_task(pipe.answer("chat", chat(part(picture(0, (672, 336)))), "id"))
    await asyncio.sleep(0.1)
    error = await refusal(pipe, chat(part(picture(1, (672, 336)))))
    assert (error.status, error.code, error.retry_after_s) == (429, "memory_full", 1)
    await first
    assert (await pipe.answer("chat", chat(part(picture(1, (672, 336)))), "id")).head == OK
    assert (await refusal(pipe, chat(part(picture(2, (1344, 1344)))))).status == 413


async def test_an_embedding_takes_room_until_its_answer_ends(pipe, pools):
    await pipe.answer("chat", chat("warm-up", part(picture(0))), "id")
    pools.decode_script = [[Reply(200, True, "data: 1\n\n"), "data: 2\n\n"]]
    answer = await pipe.answer("chat", chat(part(picture(1)), stream=True), "id")
    assert pipe._budget.bytes == 1000
    assert [chunk async for chunk in answer.rest] == ["data: 2\n\n"]
    assert pipe._budget.bytes == 0


async def test_a_stream_that_nobody_reads_gives_its_room_back(pipe, pools):
    await pipe.answer("chat", chat("warm-up", part(picture(0))), "id")
    pools.decode_script = [[Reply(200, True, "data: 1\n\n"), "data: 2\n\n"]]
    answer = await pipe.answer("chat", chat(part(picture(1)), stream=True), "id")
    del answer
    await asyncio.sleep(0.01)
    assert pipe._budget.bytes == 0


async def test_a_limit_on_tiles(pipe, pools):
    await pipe.answer("chat", chat(part(picture(0, (1344, 1344))), mm_processor_kwargs={"max_patches": 4}), "id")
    assert len(pools.encodes[0][0]) == 5
    assert "mm_processor_kwargs" not in pools.decodes[0][0]
    for kwargs in ({"size": 5}, {"max_patches": 0}, {"max_patches": 17}, {"max_patches": "4"}, {"max_patches": True}):
        error = await refusal(pipe, chat("x", mm_processor_kwargs=kwargs))
        assert error.status == 400
        assert error.param.startswith("mm_processor_kwargs")


async def test_one_bad_image_ends_the_request_before_any_encode(pipe, pools):
    bad = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    error = await refusal(pipe, chat(part(picture(0)), bad))
    assert error.param == "messages[0].content[1]"
    assert pools.encodes == []


async def test_a_dead_encoder_is_retried_but_not_for_ever(pipe, pools):
    pools.encode_script = [ActorDiedError(), ActorDiedError()]
    assert (await pipe.answer("chat", chat(part(picture(0))), "id")).head == OK
    assert len(pools.encodes) == 3
    pools.encode_script = [ActorDiedError()] * encoders.ATTEMPTS
    assert (await refusal(pipe, chat(part(picture(1))))).code == "encoder_unavailable"


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (handoff.PoolGoneError(), 503, "encoder_unavailable"),
        (QueueFullError(), 429, None),
        (5.0, 503, "encoder_timeout"),
        (RayTaskError("encode", "", TimeoutError()).as_instanceof_cause(), 503, "encoder_timeout"),
    ],
)
async def test_what_an_encoder_cannot_do(pipe, pools, failure, status, code):
    pools.encode_script = [failure]
    error = await refusal(pipe, chat(part(picture(0))))
    assert (error.status, error.code) == (status, code)
    assert error.retry_after_s is not None


@pytest.mark.parametrize(("failure", "encodes"), [(ActorDiedError(), 1), (LOST, 2)], ids=["decoder", "embedding"])
async def test_a_dead_decoder_is_retried_and_a_lost_embedding_encoded_once_more(pipe, pools, failure, encodes):
    await pipe.answer("chat", chat("warm-up", part(picture(1))), "id")
    pools.encodes.clear()
    pools.decodes.clear()
    pools.decode_script = [[failure]]
    assert (await pipe.answer("chat", chat(part(picture(0))), "id")).head == OK
    assert (len(pools.encodes), len(pools.decodes)) == (encodes, 2)
    pools.decode_script = [[failure], [failure]]
    assert (await refusal(pipe, chat(part(picture(0))))).code == "decoder_unavailable"


async def begun(pipe, pools, *pictures, **more):
    """(a request whose encode waits for the event, the event); another one has been answered before."""
    await pipe.answer("chat", chat("warm-up", part(picture(0))), "id")
    pools.encodes.clear()
    pools.decodes.clear()
    encoded = asyncio.Event()
    pools.encode_script = [(encoded, more.get("outcome"))]
    pools.decode_script = [more.get("decode", [encoded, OK])]
    task = asyncio.create_task(pipe.answer("chat", chat(*map(part, pictures)), "id"))
    for _ in range(200):
        await asyncio.sleep(0.005)
        if pools.decodes:
            break
    return task, encoded


async def test_a_decoder_is_called_while_the_encoders_are_at_work(pipe, pools):
    task, encoded = await begun(pipe, pools, picture(0), picture(1, (700, 300)))
    [(_, hand_off, refs)] = pools.decodes
    assert [image.tiles for image in hand_off.images] == [1, 4]
    assert hand_off.fingerprint == "f"
    assert not task.done()
    encoded.set()
    assert (await task).head == OK
    assert len(pools.decodes) == 1
    # The same as a request gets that finds them kept.
    await pipe.answer("chat", chat(part(picture(0)), part(picture(1, (700, 300)))), "id")
    assert pools.decodes[1][1:] == (hand_off, refs)


async def test_the_first_picture_of_all_is_encoded_first(pipe, pools):
    encoded = asyncio.Event()
    pools.encode_script = [(encoded, None)]
    task = asyncio.create_task(pipe.answer("chat", chat(part(picture(0))), "id"))
    await asyncio.sleep(0.05)
    assert pools.decodes == [], "the weights of the encoders are not known"
    encoded.set()
    assert (await task).head == OK


@pytest.mark.parametrize("told", [asyncio.Event, lambda: LOST], ids=["waits", "was told"])
async def test_a_decoder_is_called_again_with_what_a_second_encoder_made(pipe, pools, told):
    task, encoded = await begun(pipe, pools, picture(1), outcome=ActorDiedError(), decode=[told()])
    encoded.set()
    assert (await task).head == OK
    first, second = pools.decodes
    assert first[2] != second[2]
    assert len(pools.encodes) == 2


async def test_weights_that_changed_meanwhile_are_told_to_the_decoder(pipe, pools):
    mismatch = Reply(503, False, "mismatch")
    task, encoded = await begun(pipe, pools, picture(1), decode=[mismatch])
    pools.fingerprint = "g"
    encoded.set()
    assert (await task).head == OK
    assert [hand_off.fingerprint for _, hand_off, _ in pools.decodes] == ["f", "g"]


async def test_what_a_decoder_refuses_does_not_wait_for_the_encoders(pipe, pools):
    refused = Reply(400, False, "no")
    task, _ = await begun(pipe, pools, picture(1), decode=[refused])
    assert (await task).head == refused
    del task
    await asyncio.sleep(0.01)
    assert pipe._budget.bytes == 0


async def test_a_failed_encode_ends_the_call_of_the_decoder(pipe, pools):
    task, encoded = await begun(pipe, pools, picture(1), outcome=QueueFullError(), decode=[asyncio.Event()])
    encoded.set()
    with pytest.raises(ApiError) as caught:
        await task
    assert caught.value.status == 429
    assert pools.left == 1
    assert pipe._budget.bytes == 0


async def test_a_client_that_leaves_ends_both(pipe, pools):
    task, _ = await begun(pipe, pools, picture(1))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert pools.left == 1
    assert pipe._budget.bytes == 0
    assert pipe._early == 0


async def test_a_decoders_time_does_not_count_while_the_encoders_are_at_work(make_pipe, pools):
    pipe = make_pipe(first_chunk_timeout_s=0.2, encode_timeout_s=5)
    task, encoded = await begun(pipe, pools, picture(1), decode=[asyncio.Event()])
    await asyncio.sleep(0.4)
    assert not task.done()
    encoded.set()
    with pytest.raises(ApiError) as caught:
        await task
    assert caught.value.code == "decoder_timeout"


async def test_only_some_wait_in_decoders(pipe, pools, monkeypatch):
    monkeypatch.setattr("router.pipeline.MAX_EARLY", 1)
    task, encoded = await begun(pipe, pools, picture(1))
    pools.encode_script = [(encoded, None)]
    other = asyncio.create_task(pipe.answer("chat", chat(part(picture(2))), "id"))
    await asyncio.sleep(0.05)
    assert len(pools.encodes) == 2
    assert len(pools.decodes) == 1
    encoded.set()
    assert [(await one).head for one in (task, other)] == [OK, OK]
    assert pipe._early == 0


async def test_a_decoder_without_an_engine_is_passed_by(pipe, pools):
    dead = Reply(503, False, "dead", retryable=True)
    pools.decode_script = [[dead], [OK], [dead], [dead]]
    assert (await pipe.answer("chat", chat("x"), "id")).head == OK
    assert (await pipe.answer("chat", chat("x"), "id")).head == dead


async def test_no_decoder(pipe, pools):
    pools.decode_script = [[handoff.PoolGoneError()]]
    assert (await refusal(pipe, chat("x"))).code == "decoder_unavailable"


async def test_a_decoder_that_dies_within_a_stream_ends_it_with_an_error(pipe, pools):
    pools.decode_script = [[Reply(200, True, "data: 1\n\n"), "data: 2\n\n", ActorDiedError()]]
    answer = await pipe.answer("chat", chat("x", stream=True), "id")
    rest = [chunk async for chunk in answer.rest]
    assert rest[0] == "data: 2\n\n"
    assert rest[1].startswith('data: {"error": ')
    assert len(rest) == 2, "no [DONE] follows"
    assert len(pools.decodes) == 1, "what a client has seen is not answered again"


async def test_the_tiles_of_a_request_are_limited_before_anything_is_decoded(make_pipe, pools, monkeypatch):
    pipe = make_pipe(max_tiles=20)
    large = part(picture(1, (1344, 1344)))
    await pipe.answer("chat", chat(large, part(picture(0))), "id")
    monkeypatch.setattr(pipe._cutter, "cut", None)
    error = await refusal(pipe, chat(part(picture(9, (400, 700))), large))
    assert (error.code, error.param) == ("too_many_tiles", "messages[0].content[1]")
    # What is kept counts as well.
    assert (await refusal(pipe, chat(large, large))).code == "too_many_tiles"


async def test_a_decoder_that_falls_silent_within_a_stream(make_pipe, pools, monkeypatch):
    async def decode(*_):
        yield Reply(200, True, "data: 1\n\n")
        await asyncio.sleep(60)

    monkeypatch.setattr(handoff, "decode", decode)
    answer = await make_pipe(chunk_timeout_s=0.05).answer("chat", chat("x", stream=True), "id")
    (event,) = [chunk async for chunk in answer.rest]
    assert event.startswith('data: {"error": ')


async def test_a_clients_embedding_goes_to_the_decoder_as_an_encoders_would(make_pipe, pools, monkeypatch):
    put = []
    monkeypatch.setattr(client_embeddings.ray, "put", lambda rows: put.append(rows) or f"ref {len(put)}")
    pipe = make_pipe(accept_image_embeds=True)
    width = pipe._client_embeddings._spec.width
    data = base64.b64encode(npy(np.ones((5 * 144, width), np.float32))).decode()
    given = {"type": "image_embeds", "image_embeds": {"data": data, "aspect_ratio": [1, 4]}}
    assert (await refusal(pipe, chat(given))).code == "starting"
    await pipe.answer("chat", chat(part(picture(0))), "id")
    await pipe.answer("chat", chat(given, part(picture(0))), "id")
    body, hand_off, refs = pools.decodes[-1]
    assert [(image.tiles, image.aspect) for image in hand_off.images] == [(5, (1, 4)), (1, (1, 1))]
    assert hand_off.fingerprint == "f"
    assert refs[0] == "ref 1"
    assert put[0].shape == (720, width)
    assert body["messages"][0]["content"][0] == {"type": "image_embeds", "image_embeds": 0}
    assert [len(shards) for _, shards in pools.encodes] == [1, 1], "it was never encoded"
