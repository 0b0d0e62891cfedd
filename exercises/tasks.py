"""The tasks: which function each asks for, how hard it is, and what helps.

This module needs no PyTorch, so that the list of exercises and the site read it at once.
"""

import ast
from dataclasses import dataclass

#: The address of the lessons, without a version.
SITE = "https://triton-gallery.github.io/triton-gallery/stable/"

#: The page of the lesson to which the exercises with a number belong.
LESSONS = {
    "01": "01-vector-add",
    "02": "02-fused-softmax",
    "03": "03-matrix-multiplication",
    "03b": "03b-full-waves",
    "04": "04-low-memory-dropout",
    "05": "05-layer-norm",
    "05b": "05b-reductions",
    "06": "06-fused-attention",
    "06b": "06b-attention-backward",
    "06c": "06c-attention-gluon",
    "07": "07-math-functions",
    "08": "08-grouped-gemm",
    "09": "09-fp8-matmul",
    "09b": "09b-fp8-gluon",
    "10": "10-cross-entropy",
    "10b": "10b-linear-cross-entropy",
    "11": "11-paged-attention",
    "12": "12-int4-weights",
    "13": "13-sampling",
    "14": "14-gated-delta-rule",
    "14b": "14b-segments",
    "15": "15-transformer",
}


@dataclass(frozen=True)
class Task:
    """What an exercise asks for.

    Attributes:
        function: Its name and parameters.
        level: ``easy``, ``medium`` or ``hard``, for who has read the lesson.
        minutes: How long it takes them.
        hints: What helps, one after the other.
        kernels: Whether kernels compute the result.
        copies: Whether PyTorch may copy tensors before the kernel runs (``.contiguous()``).
        gpu: The GPU that it needs, if the interpreter cannot execute it.
    """

    function: str
    level: str = "medium"
    minutes: int = 30
    hints: tuple = ()
    kernels: bool = True
    copies: bool = True
    gpu: str = ""

    @property
    def name(self):
        """The name of the function."""
        return self.function.partition("(")[0]

    @property
    def parameters(self):
        """The names of its parameters."""
        (function,) = ast.parse(f"def {self.function}: 0").body
        return [argument.arg for argument in function.args.args]


TASKS = {
    "01-mask": Task(
        "add_padded(x, y)",
        level="easy",
        minutes=10,
        hints=(
            "x and y have different lengths: each load needs a mask of its own.",
            "What a masked load leaves out is undefined, unless ``other`` says what it is.",
        ),
    ),
    "01-axpy": Task(
        "axpy(a, x, y)",
        level="easy",
        minutes=10,
        hints=(
            "The kernel of the addition needs one more argument, ``a``, and one more "
            "multiplication.",
            "PyTorch starts two kernels for ``a * x + y``, and writes ``a * x`` to memory "
            "between them.",
        ),
    ),
    "01-strides": Task(
        "add_strided(x, y)",
        copies=False,
        level="easy",
        minutes=15,
        hints=(
            "Pass ``x.stride(0)`` to the kernel, and multiply the offsets of x with it.",
            "The offsets of the output have no stride, and the mask stays as it is.",
        ),
    ),
    "01-grid-stride": Task(
        "add_loop(x, y, programs)",
        level="medium",
        minutes=20,
        hints=(
            "A program begins with block ``tl.program_id(0)``, and goes on with the block "
            "that is ``tl.num_programs(0)`` further.",
            "``for start in range(first, n, step)`` works in a kernel; the mask is needed "
            "in every iteration.",
        ),
    ),
    "02-logsumexp": Task(
        "logsumexp(x)",
        level="easy",
        minutes=15,
        hints=(
            "Subtract the maximum of the row first, and add it to the logarithm.",
            "The padding must add nothing to the sum: which number has the exponential 0?",
        ),
    ),
    "02-log-softmax": Task(
        "log_softmax(x)",
        level="easy",
        minutes=15,
        hints=(
            "The logarithm of a quotient is a difference: the division disappears.",
            "``x - m - tl.log(tl.sum(tl.exp(x - m), axis=0))``, where ``m`` is the maximum.",
        ),
    ),
    "02-causal-softmax": Task(
        "causal_softmax(x, scale)",
        level="medium",
        minutes=25,
        hints=(
            "Which columns does row i need? A mask at the load saves the bytes of the others.",
            "The output needs zeros there: the store has another mask than the load.",
        ),
    ),
    "02-softmax-backward": Task(
        "softmax_backward(y, g)",
        level="easy",
        minutes=20,
        hints=(
            "One program needs a row of ``y`` and the same row of ``g``.",
            "What do elements behind the row add to the sum? ``other=0.0`` is right here.",
        ),
    ),
    "03-transposed": Task(
        "matmul_t(a, w)",
        copies=False,
        level="easy",
        minutes=15,
        hints=(
            "The kernel stays: only the two strides that are passed for the second factor change.",
            "Element (k, n) of ``w.T`` is element (n, k) of w.",
        ),
    ),
    "03-linear-layer": Task(
        'linear(x, weight, bias, activation="")',
        level="medium",
        minutes=30,
        hints=(
            "A tile of the result has one bias for each column: load ``BLOCK_N`` of them "
            "once, behind the loop.",
            "Add it to the fp32 accumulator, before the activation and before the "
            "conversion to fp16.",
        ),
    ),
    "03-batched": Task(
        "bmm(a, b)",
        level="medium",
        minutes=25,
        hints=(
            "A second axis of the grid counts the matrices.",
            "Move both pointers by the batch's stride first; everything behind that stays.",
        ),
    ),
    "03-split-k": Task(
        "split_k_matmul(a, b, parts)",
        level="hard",
        minutes=45,
        hints=(
            "Each program multiplies a part of K, and stores its partial sum in fp32. Atomic "
            "additions would come in another order each time.",
            "A second launch adds the partial sums in order, and converts to fp16 in the end.",
        ),
    ),
    "03b-waves": Task(
        "filled(tiles, processors)",
        level="easy",
        minutes=5,
        hints=(
            "How many waves do the tiles need? The last one may be partly empty.",
            "All waves together have ``waves * processors`` places.",
        ),
        kernels=False,
    ),
    "04-signs": Task(
        "random_signs(n, seed)",
        level="easy",
        minutes=15,
        hints=(
            "Counter i gives four words: they belong to the elements 4 i to 4 i + 3, side by side.",
            "``tl.interleave`` takes turns between two blocks: which two words lie two apart?",
        ),
    ),
    "04-seed-per-row": Task(
        "seeded_dropout_rows(x, p, seeds)",
        level="easy",
        minutes=20,
        hints=(
            "A program for each row loads its seed, a scalar.",
            "The offset that is given to ``tl.rand`` must count columns only: then a row's "
            "mask does not depend on its number.",
        ),
    ),
    "04-strided-input": Task(
        "strided_dropout(x, p, seed)",
        copies=False,
        level="medium",
        minutes=20,
        hints=(
            "There are two offsets: where an element is in memory, and which element it is.",
            "Give ``tl.rand`` the second: ``row * N + column``.",
        ),
    ),
    "04-sparse-johnson-lindenstrauss": Task(
        "project(x, k, s, seed)",
        level="hard",
        minutes=60,
        hints=(
            "A random number decides whether an element of R is 0, + or -.",
            "No program needs all of R: it draws the elements of the tile that it multiplies with.",
        ),
    ),
    "05-rms": Task(
        "rms_norm(x, weight)",
        level="easy",
        minutes=10,
        hints=(
            "The block is wider than the row: how many numbers does the mean divide by?",
            "``other=0.0`` adds nothing to the sum of squares.",
        ),
    ),
    "05-residual": Task(
        "add_norm(x, residual, weight, bias)",
        level="medium",
        minutes=30,
        hints=(
            "The kernel loads x and the residual, adds them, and stores the sum and its norm.",
            "In the backward pass the gradient of the sum is added to that of the norm; "
            "both inputs get it.",
        ),
    ),
    "05-group-norm": Task(
        "group_norm(x, groups, weight, bias)",
        level="medium",
        minutes=30,
        hints=(
            "The elements of one group of channels lie side by side in memory: it is a row.",
            "Which channel an element has: its offset in the group, divided by the size of "
            "an image.",
        ),
    ),
    "05-dropout": Task(
        "dropped_layer_norm(x, weight, bias, p, seed)",
        level="medium",
        minutes=40,
        hints=(
            "The backward pass draws the same numbers again from seed and offset.",
            "Apply the mask to the incoming gradient first; everything else stays.",
        ),
    ),
    "05b-column-sums": Task(
        "column_sums(x)",
        level="easy",
        minutes=20,
        hints=(
            "Each program adds its rows and stores one row of partial sums; a second "
            "launch adds them.",
            "A program without rows must store zeros: the second launch reads its "
            "partial sums, too.",
        ),
    ),
    "05b-row-variance": Task(
        "row_variance(x)",
        level="medium",
        minutes=25,
        hints=(
            "A block has a mean and a sum of squared deviations. How are those of two "
            "blocks combined?",
            "With n and k elements and means that differ by d, the squares grow by ``d*d "
            "* n*k / (n+k)``.",
        ),
    ),
    "06-weighted-mean": Task(
        "weighted_mean(s, v)",
        level="easy",
        minutes=20,
        hints=(
            "Keep three numbers for a row: the maximum so far, the sum, and the weighted sum.",
            "A new maximum makes both sums too large: by ``exp(m - m_new)``, the same factor.",
        ),
    ),
    "06-sliding-window": Task(
        "window_attention(q, k, v, window)",
        level="medium",
        minutes=40,
        hints=(
            "Which is the first key that the first query of a block sees? The loop begins "
            "with its tile.",
            "At both edges of the window tiles need a mask.",
        ),
    ),
    "06-alibi": Task(
        "alibi_attention(q, k, v, slopes)",
        level="easy",
        minutes=25,
        hints=(
            "Each program belongs to one head: it loads one slope.",
            "Scores are in powers of two, if the kernel uses ``exp2``: then the slope has "
            "to be multiplied, too.",
        ),
    ),
    "06-grouped-heads": Task(
        "grouped_attention(q, k, v, causal=False)",
        level="hard",
        minutes=60,
        hints=(
            "A row of the tile is a query of one head: row r belongs to head ``r // "
            "queries`` of the group.",
            "The mask for causal attention needs the query's own place, not the row of the tile.",
        ),
    ),
    "06-decode": Task(
        "decode_attention(q, k, v)",
        level="hard",
        minutes=60,
        hints=(
            "Each program handles a part of the keys, and stores its maximum, its sum and "
            "its result.",
            "Parts are combined by the rule of the online softmax, in a second kernel.",
        ),
    ),
    "06b-delta": Task(
        "delta(o, do)",
        level="easy",
        minutes=15,
        hints=(
            "fp16 has 11 significant bits and ends at 65,504: convert before you multiply.",
            "A program can take many rows: ``tl.sum(o * do, axis=1)`` gives a number for each.",
        ),
    ),
    "06b-scale-gradient": Task(
        "scale_gradient(q, dq, scale)",
        level="medium",
        minutes=30,
        hints=(
            "The gradient of the scale is the sum of ``q * dq``, divided by the scale.",
            "Partial sums in memory and a second launch give the same bits every time.",
        ),
    ),
    "06c-largest-scores": Task(
        "largest_scores(q, k)",
        gpu="a Hopper GPU of NVIDIA",
        level="hard",
        minutes=60,
        hints=(
            "Start the product of tile j first, and take the maximum of tile j - 1 meanwhile.",
            "``warpgroup_mma`` is asynchronous; wait for it only where its result is used.",
        ),
    ),
    "06c-log-sum-exp": Task(
        "log_sum_exp(q, k, scale=None)",
        gpu="a Hopper GPU of NVIDIA",
        level="hard",
        minutes=60,
        hints=(
            "It is the loop of the largest scores with a second running number.",
            "Whenever the maximum rises, the sum is multiplied by ``exp2(old - new)``.",
        ),
    ),
    "07-tanh": Task(
        "tanh(x)",
        level="easy",
        minutes=10,
        hints=(
            "``tl.exp`` overflows at large numbers, and infinity divided by infinity is NaN.",
            "The exponential of ``-2 * tl.abs(x)`` is at most 1; the sign comes last.",
        ),
    ),
    "07-polynomial": Task(
        "exponential(x, terms)",
        level="medium",
        minutes=25,
        hints=(
            "``terms`` are known when the kernel is compiled: a tuple is a "
            "``tl.constexpr``, and ``tl.static_range`` unrolls the loop.",
            "The lowest digits of ``k * log(2)`` matter: subtract it in two parts.",
        ),
    ),
    "07-gelu-backward": Task(
        'gelu(x, approximation="none")',
        level="easy",
        minutes=25,
        hints=(
            "Derive the formula once by hand: the product rule, and the density of the "
            "normal distribution.",
            "Keep x, and nothing else, for the backward pass.",
        ),
    ),
    "08-sums": Task(
        "expert_sums(x, offsets)",
        level="easy",
        minutes=15,
        hints=(
            "The rows of expert e begin at ``offsets[e - 1]``. What does the first expert load?",
            "An expert without rows has a result, too: zeros.",
        ),
    ),
    "08-backward": Task(
        "grouped_gradient(x, g, offsets)",
        level="hard",
        minutes=60,
        hints=(
            "The gradient of an expert's matrix is ``x.T @ g`` over its rows: the loop "
            "runs over rows.",
            "An expert without tokens has the gradient 0, which must be stored as well.",
        ),
    ),
    "08-gate": Task(
        "gated_experts(x, w_gate, w_up, offsets)",
        level="medium",
        minutes=40,
        hints=(
            "One tile of x serves two products.",
            "Two accumulators need registers: smaller tiles than before may be faster.",
        ),
    ),
    "09-blocks": Task(
        "dequantize_blocks(q, scales)",
        level="easy",
        minutes=10,
        hints=(
            "A program that has 128 columns of a row needs one scale.",
            "The last block may have fewer columns: how many blocks has a row of 300?",
        ),
    ),
    "09-fused-quantize": Task(
        "normalize_and_quantize(x, weight)",
        level="medium",
        minutes=30,
        hints=(
            "The norm of a row gives its largest element: scale = largest / 448.",
            "A row of zeros must not divide by zero.",
        ),
    ),
    "09-per-tensor": Task(
        "quantize_tensor(x)",
        level="medium",
        minutes=30,
        hints=(
            "Two launches: the first finds the largest element, the second one divides.",
            "Positive floats are ordered as their bits are: ``tl.atomic_max`` on integers "
            "finds the maximum in any order.",
        ),
    ),
    "09b-row-sums": Task(
        "row_sums(x)",
        gpu="a Hopper GPU of NVIDIA",
        level="hard",
        minutes=60,
        hints=(
            "Two barriers for each buffer: one says that a tile has arrived, one that it was read.",
            "The loading warp waits for an empty buffer before it loads into it; the "
            "first are empty.",
        ),
    ),
    "09b-product": Task(
        "product(a, w)",
        gpu="a Hopper GPU of NVIDIA",
        level="hard",
        minutes=90,
        hints=(
            "Without scales the accumulator stays in ``warpgroup_mma`` for the whole loop.",
            "Two groups of warps multiply 64 rows each; both say that a buffer is empty.",
        ),
    ),
    "10-probability": Task(
        "target_probabilities(logits, targets)",
        level="easy",
        minutes=15,
        hints=(
            "It is the exponential of minus the loss: ``exp(x[t] - m) / s``.",
            "A target of -100 is no place in the row: do not load the logit there.",
        ),
    ),
    "10-label-smoothing": Task(
        "smoothed_cross_entropy(logits, targets, smoothing)",
        level="medium",
        minutes=40,
        hints=(
            "The loss of a row needs the mean of its logits, too: one more sum.",
            "The gradient is softmax - target, where the target is ``smoothing / V`` "
            "everywhere, and more at one place.",
        ),
    ),
    "10-z-loss": Task(
        "cross_entropy_with_z_loss(logits, targets, alpha)",
        level="medium",
        minutes=40,
        hints=(
            "The derivative of ``z * z`` by a logit is ``2 * z * softmax``.",
            "Rows that do not count add nothing to the mean, and their gradient is 0.",
        ),
    ),
    "10-own-maxima": Task(
        "losses_of(logits, targets, own)",
        level="medium",
        minutes=25,
        hints=(
            "A row is read in blocks. With its own maximum a block can be added at once, "
            "and rescaled later.",
            "Keep a maximum for each place of the block, and combine them behind the loop.",
        ),
    ),
    "10b-bias": Task(
        "with_bias(x, weight, bias, targets, piece)",
        level="medium",
        minutes=45,
        hints=(
            "The bias is added to each logit that the kernel loads, that of the target included.",
            "The gradient of the bias is the sum of the logits' gradients over the rows "
            "of all pieces.",
        ),
    ),
    "10b-fp32-sum": Task(
        "gradients_in_fp32(x, weight, targets, piece)",
        level="medium",
        minutes=40,
        hints=(
            "bf16 has 8 significant bits: a small piece is lost when it is added to a large sum.",
            "Add the pieces in fp32, and convert once, behind the loop.",
        ),
    ),
    "11-last-key": Task(
        "last_keys(k_pages, page_table, lengths)",
        level="easy",
        minutes=10,
        hints=(
            "The last token of n is token n - 1.",
            "Its page is number ``(n - 1) // PAGE`` of the row, and ``(n - 1) % PAGE`` is its "
            "place there.",
        ),
    ),
    "11-window": Task(
        "window_attention(q, k_pages, v_pages, page_table, lengths, window)",
        level="medium",
        minutes=40,
        hints=(
            "The first key is ``max(0, length - window)``: its page is the first one to read.",
            "The keys of that page that lie before the window need a mask.",
        ),
    ),
    "11-int8-pages": Task(
        "int8_attention(q, k_pages, v_pages, k_scales, v_scales, page_table, lengths)",
        level="medium",
        minutes=40,
        hints=(
            "The scale of a key can be applied to its score, that of a value to its weight.",
            "So no element of a page is multiplied alone.",
        ),
    ),
    "12-unpack": Task(
        "unpack_words(words)",
        level="easy",
        minutes=10,
        hints=(
            "One load of a word serves four stores.",
            "A shift to the right keeps the sign of int16: what does ``& 15`` leave?",
        ),
    ),
    "12-zero-points": Task(
        "folded_mm(x, packed, scales, zeros)",
        level="medium",
        minutes=40,
        hints=(
            "Sum the products of x and the codes first; the scale comes once for each group.",
            "The zero point needs the sum of x over the group.",
        ),
    ),
    "12-fp4": Task(
        "fp4_mm(x, packed, scales)",
        level="medium",
        minutes=40,
        hints=(
            "A table of eight numbers is ``tl.where`` or arithmetic: 0, 0.5, 1, 1.5 have "
            "another rule than the larger ones.",
            "The highest of the four bits is the sign.",
        ),
    ),
    "13-share": Task(
        "share_above(x, thresholds)",
        level="easy",
        minutes=15,
        hints=(
            "It is the softmax of a row, and a ``tl.where`` before one of two sums.",
            "Which logit has no weight? It belongs behind the end of the row.",
        ),
    ),
    "13-min-p": Task(
        "sample_min_p(logits, min_p, seed)",
        level="medium",
        minutes=30,
        hints=(
            "A token is kept if its logit is at least ``largest + log(min_p)``.",
            "No bisection is needed: the threshold is known when the maximum is.",
        ),
    ),
    "13-repetition-penalty": Task(
        "penalize(logits, tokens, penalty)",
        level="medium",
        minutes=30,
        hints=(
            "A token that occurs twice is penalized once: it must not be read when it has "
            "been changed already.",
            "Read the logits from the input, and write to a copy: then all occurrences "
            "write the same value.",
        ),
    ),
    "14-delta-rule": Task(
        "delta_rule(q, k, v, beta)",
        level="medium",
        minutes=40,
        hints=(
            "Without decay the factors ``exp(g)`` are 1: what of the kernel remains?",
            "Start from the lesson's kernel, and set g to 0 in the formulas, not in memory.",
        ),
    ),
    "14-prefix": Task(
        "continue_rule(q, k, v, g, beta, state)",
        level="medium",
        minutes=40,
        hints=(
            "The state that is passed in takes the place of zeros before the first chunk.",
            "Its decay to a token is the product of all factors up to there.",
        ),
    ),
    "14b-states": Task(
        "states(maps, ends)",
        level="easy",
        minutes=20,
        hints=(
            "Columns of the state are independent of each other; all of them need all of M.",
            "The first state is the first L: a product with zeros is right, too.",
        ),
    ),
    "14b-recurrence": Task(
        "recurrence(a, b)",
        level="medium",
        minutes=40,
        hints=(
            "M of a segment is the product of its ``a``; L is h at its end, from zero.",
            "Each program can walk over the summaries of the segments before its own.",
        ),
    ),
    "15-decay": Task(
        "decayed_step(w, g, m, v, decays, t)",
        level="easy",
        minutes=20,
        hints=(
            "The rate is 1e-3, the betas are 0.9 and 0.95, and eps is 1e-8.",
            "Load ``decays`` with the offsets and the mask of the weights.",
        ),
    ),
    "15-cache": Task(
        "append(k, v, k_pages, v_pages, page_table, lengths)",
        level="medium",
        minutes=30,
        hints=(
            "A sequence of n tokens gets the new one at place n: ``n % PAGE`` of page "
            "``n // PAGE`` of its row.",
            "One program for each sequence stores both, and nothing else of the pages.",
        ),
    ),
}
