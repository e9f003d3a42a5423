"""Memory-bound steps of the vision encoder, each in one pass over its data.

Every kernel runs one program for each row. Shape letters as in ops.py: N tiles, T positions a tile, G patches along a
side, R = N * T rows, W width, H heads, D width of a head. Arithmetic is in float32 whatever the tensors hold.

fp8 outputs are quantized by row: values are divided by scale = max |row| / 448, the largest finite e4m3 number.
"""

# ruff: noqa: N803  (compile-time constants are upper case)
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

_F8_MAX = tl.constexpr(448.0)
_SMALLEST_ROW = tl.constexpr(1e-6)
_EPSILON = tl.constexpr(1e-5)


@triton.jit
def _store_row(x, y, scales, row, columns, inside, WIDTH: tl.constexpr, QUANTIZE: tl.constexpr):
    """Writes the row x to y[row], quantized with its scale to scales[row] or as it is."""
    if QUANTIZE:
        scale = tl.maximum(tl.max(tl.abs(x), 0), _SMALLEST_ROW) / _F8_MAX
        tl.store(scales + row, scale)
        x = x * (1.0 / scale)
    tl.store(y + row * WIDTH + columns, x.to(y.dtype.element_ty), inside)


@triton.jit
def _normalize(x, gain, bias, columns, inside, WIDTH: tl.constexpr):
    """LayerNorm of a row whose values outside of `inside` are 0."""
    mean = tl.sum(x, 0) / WIDTH
    centred = tl.where(inside, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / WIDTH + _EPSILON)
    gain_w = tl.load(gain + columns, inside, 0.0).to(tl.float32)
    return centred * scale * gain_w + tl.load(bias + columns, inside, 0.0).to(tl.float32)


@triton.jit
def patches(
    tiles, out, CHANNELS: tl.constexpr, SIZE: tl.constexpr, PATCH: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr
):
    """uint8 tiles [N, C, SIZE, SIZE] -> out [N * G * G, K], normalized and rounded as ops.py says; columns behind
    C * PATCH ** 2 are 0.
    """
    row = tl.program_id(0).to(tl.int64)
    side: tl.constexpr = SIZE // PATCH
    tile, patch = row // (side * side), row % (side * side)
    k = tl.arange(0, BLOCK)
    channel, y, x = k // (PATCH * PATCH), k // PATCH % PATCH, k % PATCH
    pixel = ((tile * CHANNELS + channel) * SIZE + patch // side * PATCH + y) * SIZE + patch % side * PATCH + x
    used = k < CHANNELS * PATCH * PATCH
    u = tl.load(tiles + pixel, used, 0).to(tl.float32)
    rescaled = (u * (1 / 255)).to(tl.bfloat16).to(tl.float32)
    centred = (rescaled - 0.5).to(tl.bfloat16).to(tl.float32)
    tl.store(out + row * K + k, tl.where(used, 2 * centred, 0.0).to(out.dtype.element_ty), k < K)


@triton.jit
def embed(
    patches_w, positions, residual, y, scales, gain0, bias0, gain1, bias1,
    T: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, QUANTIZE: tl.constexpr,
):  # fmt: skip
    """residual [R, W] = LayerNorm0(patches_w + positions), where the class token, the last position of
    each tile, has no patch; y [R, W] = LayerNorm1(residual).

    patches_w: [N * (T - 1), W]; positions: [T, W].
    """
    row = tl.program_id(0).to(tl.int64)
    tile, position = row // T, row % T
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    x = tl.load(positions + position * WIDTH + columns, inside, 0.0)
    patch = tile * (T - 1) + position
    of_patch = columns < tl.where(position < T - 1, WIDTH, 0)
    x += tl.load(patches_w + patch * WIDTH + columns, of_patch, 0.0).to(tl.float32)
    x = _normalize(x, gain0, bias0, columns, inside, WIDTH)
    tl.store(residual + row * WIDTH + columns, x.to(residual.dtype.element_ty), inside)
    x = _normalize(x, gain1, bias1, columns, inside, WIDTH)
    _store_row(x, y, scales, row, columns, inside, WIDTH, QUANTIZE)


@triton.jit
def add_norm(
    residual, delta, delta_bias, y, scales, gain, bias,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr, QUANTIZE: tl.constexpr,
):  # fmt: skip
    """x = residual + delta + delta_bias; y = LayerNorm(x); residual = x if KEEP. All [R, W]."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    x = tl.load(residual + row * WIDTH + columns, inside, 0.0).to(tl.float32)
    x += tl.load(delta + row * WIDTH + columns, inside, 0.0).to(tl.float32)
    x += tl.load(delta_bias + columns, inside, 0.0).to(tl.float32)
    if KEEP:
        tl.store(residual + row * WIDTH + columns, x.to(residual.dtype.element_ty), inside)
    x = _normalize(x, gain, bias, columns, inside, WIDTH)
    _store_row(x, y, scales, row, columns, inside, WIDTH, QUANTIZE)


@triton.jit
def rotate(qkv, cos, sin, T: tl.constexpr, WIDTH: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr):
    """Turns the pairs of neighbouring values of queries and keys in place; a second grid axis of 2 tells them apart.

    qkv: [R, 3 * W]; cos, sin: [T, HALF], HALF = D / 2 pairs of a head; BLOCK: power of two, at least W / 2.
    """
    row = tl.program_id(0).to(tl.int64)
    base = qkv + row * (3 * WIDTH) + tl.program_id(1) * WIDTH
    # Pairs are read as one contiguous block and parted in registers.
    values = tl.arange(0, 2 * BLOCK)
    x = tl.load(base + values, values < WIDTH, 0.0).to(tl.float32)
    a, b = tl.split(tl.reshape(x, (BLOCK, 2)))
    pairs = tl.arange(0, BLOCK)
    angle = row % T * HALF + pairs % HALF
    c = tl.load(cos + angle, pairs < WIDTH // 2, 1.0)
    s = tl.load(sin + angle, pairs < WIDTH // 2, 0.0)
    x = tl.reshape(tl.join(a * c - b * s, a * s + b * c), (2 * BLOCK,))
    tl.store(base + values, x.to(qkv.dtype.element_ty), values < WIDTH)


@triton.jit
def quantize(x, y, scales, WIDTH: tl.constexpr, BLOCK: tl.constexpr, GELU: tl.constexpr):
    """x [R, W] -> y [R, W] in e4m3 with scales [R]; through the tanh form of GELU first if GELU."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    v = tl.load(x + row * WIDTH + columns, inside, 0.0).to(tl.float32)
    if GELU:
        # 0.5 v (1 + tanh(u)) = v sigmoid(2 u), u = sqrt(2 / pi) (v + 0.044715 v ** 3)
        v = v * tl.sigmoid(1.5957691216057308 * (v + 0.044715 * v * v * v))
    _store_row(v, y, scales, row, columns, inside, WIDTH, True)
