"""Arguments that a kernel cannot work with: the error names the argument and what it must be.

Also after a right call of the same shapes: what was kept for it must not answer a wrong one.
"""

import math

import pytest
import torch


class Derived(torch.Tensor):
    """A tensor of a class that its program has derived."""


ONE, TWO = torch.ones(3), torch.ones(2, 3)
GRADIENT = torch.ones(3, requires_grad=True)
SQUARE = torch.ones(2, 2)
HUGE = 10**400  # larger than any float
KEEP = torch.ones(4) > 0
Q = torch.randn(1, 2, 5, 16)
ROWS, EXPERTS = torch.ones(8, 16).half(), torch.ones(2, 16, 24).half()
FP8, SCALES = torch.ones(4, 256).to(torch.float8_e4m3fn), torch.ones(4, 1)
LOGITS, TARGETS = torch.randn(4, 6), torch.tensor([0, 1, 2, -100])
LAYER = torch.randn(9, 6)
PAGED = [torch.ones(2, 8, 16), *torch.ones(2, 3, 4, 2, 16)]  # q, k_pages, v_pages
TABLE, LENGTHS = torch.zeros(2, 3, dtype=torch.int32), torch.tensor([0, 12], dtype=torch.int32)
INT4 = [torch.ones(2, 8, 32, dtype=torch.int16), *2 * [torch.ones(8, 2).bfloat16()]]
WIDE = torch.ones(3, 256).half()
TEXT, GATES = torch.ones(1, 5, 2, 16), torch.zeros(1, 5, 2)
LONG, STEADY = torch.ones(1, 2048, 1, 16), torch.zeros(1, 2048, 1)
HALVES = 2 * [torch.ones(8, 8).half()]
#: a [64, 256], b [256, 48], and their scales by blocks of 128.
BLOCKS = [
    *(torch.ones(64, 256).to(FP8.dtype), torch.ones(48, 256).to(FP8.dtype).T),
    *(torch.ones(64, 2), torch.ones(2, 1)),
]
A, B, SCALE_A, SCALE_B = BLOCKS


def ends(*offsets):
    return torch.tensor(offsets, dtype=torch.int32)


CASES = {
    ("01-vector-add", "add"): [
        ((1.0, ONE), TypeError, "x must be a torch.Tensor, but is a float"),
        ((ONE, ONE.half()), TypeError, "torch.float32 and torch.float16"),
        ((ONE, ONE.to("meta")), ValueError, "y must .* is on meta"),
        ((torch.ones(6)[::2], ONE), ValueError, r"x must be contiguous.*strides \(2,\)"),
        ((ONE.to_sparse(), ONE), ValueError, "x must be contiguous.*sparse"),
        ((ONE, GRADIENT), ValueError, "y requires a gradient.*torch.add"),
        ((FP8, FP8), TypeError, "dtype of x .*float8_e4m3fn"),
        ((ONE.bfloat16(), ONE.bfloat16()), TypeError, "dtype of x .*bfloat16"),
    ],
    ("02-fused-softmax", "softmax"): [
        ((TWO.double(),), TypeError, "dtype of x must be .* is torch.float64"),
        ((torch.ones(2, 3, requires_grad=True),), ValueError, "x requires a gradient"),
        ((TWO[None],), ValueError, r"a matrix, but has shape \(1, 2, 3\)"),
        ((TWO.to("meta"),), ValueError, "x must be"),
    ],
    ("03-matrix-multiplication", "matmul"): [
        ((SQUARE, SQUARE.double()), TypeError, "dtype of b must be .*float64"),
        ((TWO, TWO), ValueError, r"\(2, 3\) × \(2, 3\)"),
        ((SQUARE, SQUARE, "relu"), ValueError, "activation must be one of"),
        ((SQUARE, SQUARE, ["leaky_relu"]), ValueError, "activation must be one of"),
        ((SQUARE, None), TypeError, "b must be"),
        ((SQUARE, SQUARE.bfloat16()), TypeError, "b must|dtype of b"),
        ((SQUARE, SQUARE.to("meta")), ValueError, "b must"),
        ((SQUARE, SQUARE.to_sparse()), ValueError, "b must"),
    ],
    ("03b-full-waves", "matmul"): [
        ((HALVES[0], HALVES[1].float()), TypeError, ""),
        ((HALVES[0], HALVES[0].to_sparse()), ValueError, "b must be a matrix.*sparse"),
        ((HALVES[0].to_sparse(), HALVES[0]), ValueError, "a must be a matrix.*sparse"),
        ((HALVES[0], HALVES[0][0]), ValueError, ""),
        ((*HALVES, "gelu"), ValueError, ""),
        ((HALVES[0], None), TypeError, ""),
        ((HALVES[0], HALVES[0].bfloat16()), TypeError, ""),
        ((*HALVES, ["leaky_relu"]), ValueError, ""),
    ],
    ("04-low-memory-dropout", "seeded_dropout"): [
        ((ONE.to("meta"), 0.5, 0), ValueError, "x must be on .* meta"),
        ((TWO.T, 0.5, 0), ValueError, r"x must be contiguous.*\(3, 2\).*\(1, 3\)"),
        ((ONE, math.nan, 0), ValueError, "p must be from 0 to 1, but is nan"),
        ((ONE, 0.5, 2**64), ValueError, "seed must be .* 18446744073709551616"),
        ((ONE.bfloat16(), 0.5, 3), TypeError, "the dtype of x"),  # in the interpreter
        *(
            ((ONE, 0.5, wrong), ValueError, "seed, if a tensor, must be one int64 on cpu, but is")
            for wrong in (
                *(torch.tensor([1, 2]), torch.tensor(1.0), torch.tensor(1, device="meta")),
                torch.tensor([1]).to_sparse(),
            )
        ),
    ],
    ("04-low-memory-dropout", "dropout"): [
        ((ONE, KEEP, 0.5), ValueError, r"x_keep .*\(3,\).*\(4,\)"),
    ],
    ("05-layer-norm", "layer_norm"): [
        ((TWO.double(), ONE, ONE), TypeError, "its dtype is torch.float64"),
        ((TWO, torch.ones(4), ONE), ValueError, r"weight must have shape \(3,\), but has \(4,\)"),
        ((TWO, ONE, ONE, True), TypeError, "eps must be a number, but is a bool"),
        ((TWO, ONE, ONE, [1.0]), TypeError, "eps must be a number, but is a list"),
        ((TWO, ONE, ONE, torch.nan), ValueError, "eps must be finite"),
        ((TWO, ONE, ONE, HUGE), ValueError, "eps must be finite"),
        ((TWO, ONE, None), TypeError, "bias must be a torch.Tensor, but is a NoneType"),
        ((TWO[0, 0], ONE, ONE), ValueError, "x must have a dimension"),
    ],
    ("05-layer-norm", "rms_norm"): [
        ((TWO, ONE, -1e-5), ValueError, "not negative, but is -1e-05"),
        ((TWO.bfloat16(), ONE), TypeError, "the dtype of x"),  # in the interpreter
        ((TWO.to_sparse(), ONE), ValueError, "x must be strided"),
    ],
    ("05b-reductions", "long_layer_norm"): [
        ((TWO.double(), ONE, ONE), TypeError, "dtype of x must be in .*float64"),
        ((TWO.bfloat16(), ONE, ONE), TypeError, "dtype of x must be in .*bfloat16"),
        ((TWO, torch.ones(4), ONE), ValueError, r"weight must have shape \(3,\)"),
        ((TWO.T, ONE[:2], ONE[:2]), ValueError, r"pass x.contiguous\(\)"),
        ((ONE, ONE, ONE), ValueError, "x must be a matrix"),
        ((TWO, ONE, ONE, "a"), TypeError, "eps must be a number, but is a str"),
        ((TWO, ONE, ONE, -1.0), ValueError, "eps must be finite and not negative"),
        ((TWO, ONE, ONE, HUGE), ValueError, "eps must be finite and not negative"),
    ],
    ("06-fused-attention", "attention"): [
        ((Q, Q, Q, 0.1), TypeError, "causal must be True or False, but is 0.1; scale is the next"),
        ((Q, Q, Q, 1.0), TypeError, "causal must be True or False, but is 1.0"),
        ((Q.half(), Q, Q), TypeError, "k must be .* as q, but its dtype"),
        ((Q[..., :8], Q, Q), ValueError, "q must have a head_dim of 16, 32"),
        ((torch.randn(1, 3, 5, 16), Q, Q), ValueError, "q must have a multiple of the heads of k"),
        ((Q, Q, Q, False, 0.0), ValueError, "scale must be positive"),
        (
            (Q, Q, Q, False, "a"),
            ValueError,
            "scale must be positive and finite in fp32, but is 'a'",
        ),
        ((Q, Q[..., :8], Q), ValueError, "k must have a head_dim of 16 as q, but has 8"),
        ((Q, None, Q), TypeError, "k must be a torch.Tensor, but is a NoneType"),
        ((Q, Q, Q[:, :, :3]), ValueError, "k and v must have one shape"),
        ((*3 * [Q.bfloat16()],), TypeError, "q must be one of .*, but its dtype is torch.bfloat16"),
        ((Q, Q, Q.clone().requires_grad_()), ValueError, "v requires a gradient.*06b-attention"),
        ((Q, Q.to_sparse(), Q), ValueError, "k must be strided, .*sparse_coo"),
        ((Q, Q, Q, True, 1e-46), ValueError, "scale must be positive and finite in fp32"),
        ((Q, Q, Q, True, 1e39), ValueError, "scale must be positive and finite in fp32"),
        ((Q, Q, Q, True, HUGE), ValueError, "scale must be positive and finite in fp32"),
    ],
    ("06c-attention-gluon", "attention"): [
        ((Q, Q, Q, 0.1), TypeError, "causal must be True or False, but is 0.1; scale is the next"),
        ((Q, Q, Q, 1.0), TypeError, "causal must be True or False, but is 1.0"),
        ((Q.half(), Q, Q), TypeError, "k must be .* as q, but its dtype"),
        ((Q, Q, Q, False, 0.0), ValueError, "scale must be positive"),
        ((Q, Q, Q.clone().requires_grad_()), ValueError, "v requires a gradient.*06b-attention"),
        ((Q, Q.to_sparse(), Q), ValueError, "k must be strided, .*sparse_coo"),
        ((Q, Q, Q, True, 1e-46), ValueError, "scale must be positive and finite in fp32"),
        ((Q, Q, Q, True, 1e39), ValueError, "scale must be positive and finite in fp32"),
        ((Q, Q, Q, True, HUGE), ValueError, "scale must be positive and finite in fp32"),
    ],
    ("06b-attention-backward", "attention"): [
        ((Q, Q, Q, 0.1), TypeError, "causal must be True or False, but is 0.1; scale is the next"),
        ((Q, Q, Q, 1.0), TypeError, "causal must be True or False, but is 1.0"),
        ((Q.half(), Q, Q), TypeError, "k must be .* as q, but its dtype"),
        ((Q[..., :8], Q, Q), ValueError, "q must have a head_dim of 16, 32"),
        ((torch.randn(1, 3, 5, 16), Q, Q), ValueError, "q must have a multiple of the heads of k"),
        ((Q, Q, Q, False, 0.0), ValueError, "scale must be positive"),
        ((*3 * [Q.bfloat16()],), TypeError, "q must be one of .*, but its dtype is torch.bfloat16"),
        ((Q, Q.to_sparse(), Q), ValueError, "k must be strided, .*sparse_coo"),
        ((Q, Q, Q, True, 1e-46), ValueError, "scale must be positive and finite in fp32"),
        ((Q, Q, Q, True, 1e39), ValueError, "scale must be positive and finite in fp32"),
        ((Q, Q, Q, True, HUGE), ValueError, "scale must be positive and finite in fp32"),
    ],
    ("07-math-functions", "gelu"): [
        ((ONE.double(),), TypeError, "its dtype is torch.float64"),
        ((TWO.T,), ValueError, r"pass x.contiguous\(\)"),
        ((ONE.bfloat16(),), TypeError, "the dtype of x must be in"),  # in the interpreter
        ((ONE.to_sparse(),), ValueError, r"x must be contiguous, but is torch\.sparse_coo"),
        ((GRADIENT,), ValueError, "x requires a gradient, .*07-gelu-backward"),
    ],
    ("08-grouped-gemm", "grouped_mm"): [
        ((ROWS[:, 1:], EXPERTS, ends(3, 8)), ValueError, r"\(8, 15\), \(2, 16, 24\)"),
        ((ROWS, EXPERTS, ends(3, 8).long()), TypeError, "offsets must be int32"),
        ((ROWS, EXPERTS, ends(8)), ValueError, "offsets must have one number for each expert, 2"),
        ((ROWS, EXPERTS, ends(3, 3, 8, 8)[::2]), ValueError, "offsets must be contiguous.*2"),
        *(
            ((ROWS, EXPERTS, ends(*wrong)), ValueError, "offsets must not decrease")
            for wrong in ((8, 3), (-1, 8), (3, 9), (9, 9))
        ),
    ],
    ("09-fp8-matmul", "scaled_mm"): [
        ((FP8, FP8.T, SCALES.half(), SCALES.T), TypeError, "scale_a must be float32"),
        ((FP8, FP8.T[1:], SCALES, SCALES.T), ValueError, r"\(4, 256\) × \(255, 4\)"),
        ((FP8, FP8.T, SCALES.T, SCALES.T), ValueError, r"scale_a must have shape \(4, 1\)"),
        ((FP8, FP8.T, SCALES, torch.ones(2, 1)), ValueError, "must be of the same kind"),
    ],
    ("09b-fp8-gluon", "scaled_mm_by_blocks"): [
        ((A, None, SCALE_A, SCALE_B), TypeError, "b must be a torch.Tensor"),
        ((A.float(), B, SCALE_A, SCALE_B), TypeError, "a must have a dtype"),
        ((A, B, SCALE_A.double(), SCALE_B), TypeError, "scale_a must have a dtype"),
        ((A, B.contiguous(), SCALE_A, SCALE_B), ValueError, "b.T must have contiguous rows"),
        ((A, B[:128], SCALE_A, SCALE_B), ValueError, r"16 divides K.*\(64, 256\) and \(128, 48\)"),
        ((A, B, SCALE_A, SCALE_B.T), ValueError, r"shapes \(\(64, 2\), \(2, 1\)\).*\(1, 2\)"),
        ((A[None], B, SCALE_A, SCALE_B), ValueError, "a must be a matrix"),
    ],
    ("10-cross-entropy", "cross_entropy"): [
        (([1.0], TARGETS), TypeError, "logits must be a torch.Tensor, but is a list"),
        ((LOGITS.double(), TARGETS), TypeError, "logits must be .* its dtype is torch.float64"),
        ((LOGITS.T.contiguous().T, TARGETS), ValueError, "rows of logits must be contiguous"),
        ((LOGITS.to("meta"), TARGETS), ValueError, "logits must be on cpu, but is on meta"),
        ((LOGITS, TARGETS + 4), ValueError, r"from 0 to 5, .* but targets\[2\] is 6"),
        ((LOGITS.clone().requires_grad_(), TARGETS, -100, True), ValueError, "result of a layer"),
        ((LOGITS.bfloat16(), TARGETS), TypeError, "logits must be .* its dtype is torch.bfloat16"),
        ((LOGITS, TARGETS, True), TypeError, "ignore_index must be an int, but is a bool"),
        ((LOGITS, TARGETS, 1.0), TypeError, "ignore_index must be an int, but is a float"),
        ((LOGITS, TARGETS, [1]), TypeError, "ignore_index must be an int, but is a list"),
        ((LOGITS, TARGETS.int(), 2**32 - 100), ValueError, "ignore_index must be of torch.int32"),
        ((LOGITS, TARGETS, 2**63), ValueError, "ignore_index must be of torch.int64"),
        ((LOGITS, TARGETS.tolist()), TypeError, "targets must be a torch.Tensor"),
        ((LOGITS, TARGETS.float()), TypeError, "targets must be int64 or int32"),
        ((LOGITS, TARGETS[:3]), ValueError, r"shape \(4,\), but has shape \(3,\)"),
        ((LOGITS, TARGETS.repeat(2)[::2]), ValueError, r"contiguous .* strides \(2,\)"),
        ((LOGITS[0], TARGETS), ValueError, r"a matrix with .* shape \(6,\)"),
        ((LOGITS[:, :0], TARGETS), ValueError, r"a matrix with .* shape \(4, 0\)"),
        ((LOGITS[:, :5], TARGETS, -100, True), ValueError, "with inplace=True, logits must be c"),
    ],
    ("11-paged-attention", "paged_attention"): [
        (([1.0], *PAGED[1:], TABLE, LENGTHS), TypeError, "q must be a torch.Tensor, but is a list"),
        ((*PAGED[:2], PAGED[2].half(), TABLE, LENGTHS), TypeError, "v_pages must be as q, torch"),
        ((*PAGED, TABLE.long(), LENGTHS), TypeError, "page_table must be int32"),
        ((*PAGED, TABLE, LENGTHS.to("meta")), ValueError, "lengths must be .* is on meta"),
        ((*PAGED, TABLE.T.contiguous().T, LENGTHS), ValueError, "page_table must have a last"),
        ((*PAGED[:2], PAGED[2][1:], TABLE, LENGTHS), ValueError, "v_pages must have one shape"),
        ((PAGED[0][:, 1:], *PAGED[1:], TABLE, LENGTHS), ValueError, "a multiple of the heads"),
        ((*PAGED, TABLE, LENGTHS[1:]), ValueError, "lengths must have one batch"),
        ((*PAGED, TABLE, LENGTHS + 1), ValueError, r"from 0 to 12, but are \[1, 13\]"),
        ((*PAGED, TABLE - 1, LENGTHS), ValueError, "page_table must be from 0 to 2"),
        ((*PAGED, TABLE, LENGTHS, 0.0), ValueError, "scale must be positive"),
        ((*PAGED, TABLE, LENGTHS, 2.0**127), ValueError, r"less than 2\*\*127, but is 1.7"),
        ((*PAGED, TABLE, LENGTHS, 10**400), ValueError, r"less than 2\*\*127"),
    ],
    ("10b-linear-cross-entropy", "linear_cross_entropy"): [
        ((LOGITS.bfloat16(), LAYER, TARGETS), TypeError, "x must be float32, but its dtype is"),
        ((LOGITS, LAYER.bfloat16(), TARGETS), TypeError, "weight must be torch.float32 as x is"),
        ((LOGITS, LAYER[:, :5], TARGETS), ValueError, "weight must have as many columns as x, 6"),
        ((LOGITS, LAYER, TARGETS, -100, 0), ValueError, "piece must be 1 or more, but is 0"),
        ((LOGITS.as_subclass(Derived), LAYER, TARGETS), TypeError, "x must hold numbers"),
    ],
    ("12-int4-weights", "int4_mm"): [
        (([1.0], *INT4), TypeError, "x must be a torch.Tensor, but is a list"),
        ((WIDE.double(), *INT4), TypeError, "x must be .* its dtype is torch.float64"),
        ((WIDE, INT4[0].int(), *INT4[1:]), TypeError, "packed must be int16"),
        (
            (WIDE, *INT4[:2], INT4[2].to("meta")),
            ValueError,
            "zeros must be on a cpu device, .* on meta",
        ),
        ((WIDE[:, 1:], *INT4), ValueError, r"x must have shape \(3, 256\), but has \(3, 255\)"),
        ((WIDE[0], *INT4), ValueError, r"x must have shape .* but has \(256,\)"),
        ((WIDE, *INT4[:2], INT4[2].T), ValueError, r"zeros must have shape \(8, 2\)"),
        ((WIDE, *INT4, 64), ValueError, r"packed must be .*\(2, 8, 32\), and group is 64"),
    ],
    ("12-int4-weights", "pack_int4"): [
        ((WIDE.int(),), TypeError, "weight must be a tensor of floats, but is torch.int32"),
        ((WIDE[:, :200],), ValueError, r"\[N, a multiple of 128\], but has shape \(3, 200\)"),
        ((WIDE, 100), ValueError, "group must be 64, 128 or 256, but is 100"),
        ((WIDE / 0,), ValueError, "weight contains nan, inf"),
    ],
    ("13-sampling", "sample"): [
        (([1.0],), TypeError, "logits must be a torch.Tensor .* but is list"),
        ((LOGITS.double(),), TypeError, "logits must be .* but is torch.float64"),
        ((LOGITS[0],), ValueError, r"logits must be \[batch, .* shape \(6,\)"),
        ((LOGITS.to("meta"),), ValueError, "logits must be .* on meta"),
        ((LOGITS[:, :0],), ValueError, "logits must be .*1 to .* tokens"),
        ((LOGITS, -1.0), ValueError, "temperature must be 0 or more"),
        ((LOGITS, math.nan), ValueError, "temperature must be 0 or more"),
        ((LOGITS, HUGE), ValueError, "temperature must be 0 or more"),
        ((LOGITS, "1"), TypeError, "temperature must be a number, but is a str"),
        ((LOGITS, 1.0, -1), ValueError, "top_k must be 0 .no limit. or more"),
        ((LOGITS, 1.0, 2.0), TypeError, "top_k must be a number, but is a float"),
        ((LOGITS, 1.0, 0, 0.0), ValueError, "top_p must be .* but is 0.0"),
        ((LOGITS, 1.0, 0, 1.1), ValueError, "top_p must be .* but is 1.1"),
        ((LOGITS, 1.0, 0, 1.0, -1), ValueError, "seed must be from 0"),
    ],
    ("14-gated-delta-rule", "gated_delta_rule"): [
        ((TEXT, TEXT, TEXT, 0.0, GATES), TypeError, "g must be a torch.Tensor, but is a float"),
        ((TEXT, TEXT.half(), TEXT, GATES, GATES), TypeError, "k must be as q, but its dtype"),
        ((TEXT, TEXT, TEXT[0], GATES, GATES), ValueError, r"v must be \[batch, tokens, heads, d\]"),
        ((TEXT, TEXT[:, 1:], TEXT, GATES, GATES), ValueError, r"k must have shape \(1, 5, 2, 16\)"),
        (
            (TEXT, TEXT, TEXT, GATES, GATES[:, :, :1]),
            ValueError,
            r"beta must have shape \(1, 5, 2\)",
        ),
        (
            (TEXT, TEXT, TEXT, GATES.to("meta"), GATES),
            ValueError,
            "g must be on a cpu device, the same for all, but is on meta",
        ),
        ((TEXT, TEXT, TEXT[:, :, :1], GATES[:, :, :1], GATES[:, :, :1]), ValueError, "multiple"),
        ((*3 * [TEXT[..., :8]], GATES, GATES), ValueError, "d must be 16, 32, 64 or 128"),
        ((TEXT, TEXT, TEXT, GATES, GATES, "1/8"), ValueError, "scale must be a finite number"),
        ((TEXT, TEXT, TEXT, GATES, GATES, [1.0]), ValueError, "scale must be a finite number"),
        ((TEXT, TEXT, TEXT, GATES, GATES, math.nan), ValueError, "scale must be a finite number"),
        ((TEXT, TEXT, TEXT, GATES, GATES, -math.inf), ValueError, "scale must be a finite number"),
    ],
    ("14b-segments", "gated_delta_rule"): [
        ((TEXT, TEXT, TEXT, 0.0, GATES), TypeError, "g must be a torch.Tensor, but is a float"),
        ((0.0, LONG, LONG, STEADY, STEADY), TypeError, "q must be a torch.Tensor, but is a float"),
        ((LONG, LONG, 0.0, STEADY, STEADY), TypeError, "v must be a torch.Tensor, but is a float"),
        ((LONG, LONG.half(), LONG, STEADY, STEADY), TypeError, "k must be as q, but its dtype"),
        ((LONG, LONG, LONG, STEADY[:, 1:], STEADY), ValueError, r"g must have shape \(1, 2048"),
        ((*3 * [LONG[..., :8]], STEADY, STEADY), ValueError, "d must be 16, 32, 64 or 128"),
        ((LONG, LONG, LONG, STEADY, STEADY, math.nan), ValueError, "scale must be a finite number"),
        ((LONG, LONG, LONG, STEADY, STEADY, [1.0]), ValueError, "scale must be a finite number"),
    ],
}


#: Arguments that are right, and have the shapes of those above.
RIGHT = {
    "add": [(ONE, ONE)],
    "softmax": [(TWO,)],
    "matmul": [(SQUARE, SQUARE)],
    "03b-full-waves": [HALVES],
    "seeded_dropout": [(ONE, 0.5, 0)],
    "dropout": [(ONE, ONE > 0, 0.5)],
    "layer_norm": [(TWO, ONE, ONE), (TWO, ONE, ONE, 1.0)],
    "rms_norm": [(TWO, ONE)],
    "long_layer_norm": [(TWO, ONE, ONE)],
    "attention": [(Q, Q, Q), (Q, Q, Q, True)],
    "gelu": [(ONE,)],
    "grouped_mm": [(ROWS, EXPERTS, ends(3, 8))],
    "scaled_mm": [(FP8, FP8.T, SCALES, SCALES.T)],
    "scaled_mm_by_blocks": [BLOCKS],
    "cross_entropy": [(LOGITS, TARGETS), (LOGITS * 1, TARGETS, -100, True)],
    "linear_cross_entropy": [(LOGITS, LAYER, TARGETS)],
    "paged_attention": [(*PAGED, TABLE, LENGTHS)],
    "int4_mm": [(WIDE, *INT4)],
    "pack_int4": [(WIDE,)],
    "sample": [(LOGITS,)],
    "14b-segments": [(LONG, LONG, LONG, STEADY, STEADY)],
    "gated_delta_rule": [(TEXT, TEXT, TEXT, GATES, GATES)],
}


@pytest.mark.parametrize(("name", "function"), CASES)
def test_an_error_names_the_argument_before_and_after_a_right_call(tutorial, name, function):
    call = tutorial(name)[function]
    for _ in range(2):
        for arguments, error, message in CASES[name, function]:
            with pytest.raises(error, match=message):
                call(*arguments)
        for right in RIGHT.get(name) or RIGHT[function]:
            call(*right)
