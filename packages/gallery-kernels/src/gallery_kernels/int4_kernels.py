"""The kernel of ``int4_mm``. The lesson 12-int4-weights explains it.

The bits of a weight are read as those of a float: in bfloat16, the bits of an integer below 256 are
that integer times 2**-133, without a conversion. So a weight takes an *and* and a fused
multiply-add, and is computed times 2**-32, since no number in bfloat16 is as large as 2**133.
"""

import triton
import triton.language as tl

#: Four weights of a word, in the four registers of the results, for two words at a time. The
#: constraint is "=&r": with "=r", the first result might get the register of an input that a later
#: instruction reads.
UNPACK = tl.constexpr("""{
.reg .b32 bits, high;
and.b32 bits, $4, 0x000F000F;
fma.rn.bf16x2 $0, bits, $5, $7;
and.b32 bits, $4, 0x00F000F0;
fma.rn.bf16x2 $1, bits, $6, $7;
shr.u32 high, $4, 8;
and.b32 bits, high, 0x000F000F;
fma.rn.bf16x2 $2, bits, $5, $7;
and.b32 bits, high, 0x00F000F0;
fma.rn.bf16x2 $3, bits, $6, $7;
}""")
REGISTERS = tl.constexpr("=&r,=&r,=&r,=&r,r,r,r,r")
BF16 = tl.constexpr((tl.bfloat16,) * 4)


@triton.jit
def weights_of(words, pairs, BY_BITS: tl.constexpr, dtype: tl.constexpr):
    """Return the weights of words [S, N, GROUP / 4], as [S, N, 4, GROUP / 4].

    *pairs* holds a scale and a zero in 32 bits, [S, N]. With BY_BITS, weights are times 2**-32.
    """
    s = (pairs << 16).to(tl.float32, bitcast=True)[:, :, None]
    z = (pairs & -65536).to(tl.float32, bitcast=True)[:, :, None]
    if BY_BITS:
        low = tl.broadcast_to((s * 2.0**101).to(dtype), words.shape)
        high = tl.broadcast_to((s * 2.0**97).to(dtype), words.shape)  # for bits four places up
        zero = tl.broadcast_to((z * 2.0**-32).to(dtype), words.shape)
        inputs = [words, low, high, zero]
        a, b, c, d = tl.inline_asm_elementwise(UNPACK, REGISTERS, inputs, BF16, True, pack=2)
    else:
        a = ((words & 15).to(tl.float32) * s + z).to(dtype)
        b = (((words >> 4) & 15).to(tl.float32) * s + z).to(dtype)
        c = (((words >> 8) & 15).to(tl.float32) * s + z).to(dtype)
        d = (((words >> 12) & 15).to(tl.float32) * s + z).to(dtype)
    joined = tl.permute(tl.join(tl.join(a, c), tl.join(b, d)), 0, 1, 3, 4, 2)
    return joined.reshape(words.shape[0], words.shape[1], 4, words.shape[2])


@triton.jit(do_not_specialize=["M"])
def int4_kernel(
    x_ptr, packed_ptr, pairs_ptr, out_ptr, M, N, groups,
    GROUP: tl.constexpr, S: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BY_BITS: tl.constexpr, FEW: tl.constexpr,
):  # fmt: skip
    """Compute a tile of x · wᵀ, with S groups of the sum at a time.

    With FEW rows, each warp adds up groups of its own. With many, w is the left factor, which comes
    from registers, and the tile is transposed at the end.
    """
    tiles_m = tl.cdiv(M, BLOCK_M)  # on one axis: axis 1 would allow 65,535 programs only
    row = tl.program_id(0) % tiles_m * BLOCK_M
    column = tl.program_id(0) // tiles_m * BLOCK_N
    K = groups * GROUP
    rows = row + tl.arange(0, BLOCK_M)
    columns = column + tl.arange(0, BLOCK_N)
    share = tl.arange(0, S)[:, None]
    j = tl.arange(0, GROUP // 4)
    k = tl.arange(0, GROUP)
    at = share * N + columns[None, :]  # [S, BLOCK_N]
    pairs_ptr = pairs_ptr.to(tl.pointer_type(tl.int32))
    if FEW:
        at_word = at[:, :, None] * (GROUP // 4) + j[None, None, :]
        at_x = rows[None, :, None] * K + share[:, :, None] * GROUP + k[None, None, :]
        acc = tl.zeros((S, BLOCK_N, BLOCK_M), tl.float32)
    else:
        x_tiles = tl.make_tensor_descriptor(x_ptr, [M, K], [K, 1], [BLOCK_M, S * GROUP])
        packed_tiles = tl.make_tensor_descriptor(
            packed_ptr, shape=[groups, N, GROUP // 4], strides=[N * (GROUP // 4), GROUP // 4, 1],
            block_shape=[S, BLOCK_N, GROUP // 4],
        )  # fmt: skip
        acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    tl.assume(groups > 0)  # so the assembler can overlap the products
    for first in range(0, groups, S):
        left = share < groups - first
        real = left & (columns < N)[None, :]
        pairs = tl.load(pairs_ptr + at, mask=real, other=0)
        if FEW:
            words = tl.load(packed_ptr + at_word, mask=real[:, :, None], other=0)
            real_x = left[:, :, None] & (rows < M)[None, :, None]
            x = tl.load(x_ptr + at_x, mask=real_x, other=0.0)
            w = weights_of(words, pairs, BY_BITS, x.dtype).reshape(S, BLOCK_N, GROUP)
            acc = tl.dot(w, tl.permute(x, 0, 2, 1), acc)
            packed_ptr += S * N * (GROUP // 4)
            x_ptr += S * GROUP
        else:
            words = packed_tiles.load([first, column, 0])
            x = x_tiles.load([row, first * GROUP])
            w = tl.permute(weights_of(words, pairs, BY_BITS, x.dtype), 1, 0, 2, 3)
            acc = tl.dot(w.reshape(BLOCK_N, S * GROUP), tl.trans(x), acc)
        pairs_ptr += S * N
    total = tl.sum(acc, axis=0) if FEW else acc
    out = tl.trans(total * (2.0**32 if BY_BITS else 1.0)).to(out_ptr.dtype.element_ty)
    at_out = tl.arange(0, BLOCK_M)[:, None] * N + columns[None, :]
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(out_ptr + row.to(tl.int64) * N + at_out, out, mask=mask)
