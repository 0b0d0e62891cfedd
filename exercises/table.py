"""The exercises."""

import torch

from exercises.attention import (
    ATTENTION,
    attention_inputs,
    by_numbers,
    by_recurrence,
    decode_cases,
    grouped,
    grouped_cases,
    int8_attention,
    int8_cases,
    masked_attention,
    newest_keys,
    outputs,
    page_cases,
    paged,
    paged_attention,
    paged_least,
    penalized,
    penalty_cases,
    prefix_cases,
    reads_keys_once,
    recurrence_cases,
    score_factors,
    scores,
    segment_cases,
    skips_the_past,
    states_after,
    texts_without_gate,
    which_queries,
    which_segment,
    which_sequences,
    which_tokens,
    window_cases,
    windowed,
    without_gate,
)
from exercises.compare import FP16, Exercise, size_of
from exercises.functions import (
    add_padded,
    as_number,
    by_polynomial,
    causal,
    filled,
    fits_one_mask,
    gelu_has_gradients,
    group_norm,
    images,
    in_double,
    keeps_distances,
    keeps_the_share,
    last_layers,
    layout_does_not_matter,
    linear,
    linear_cases,
    loss_cases,
    loss_of_last_layer,
    matrices,
    norm_of_ones,
    norm_of_sum,
    of_last_layer,
    padded,
    polynomials,
    probability_of,
    products,
    random_signs,
    results_and_gradients,
    rows_with_parameters,
    same_bits,
    same_rows,
    smoothed_loss,
    softmax_backward,
    target_cases,
    vectors,
    which_rows,
    z_loss,
)
from exercises.steps import append_cases, appended, decayed, in_copies, step_cases
from exercises.weights import (
    FP8,
    block_cases,
    dequantized,
    expert_cases,
    expert_sums,
    four_integers,
    fp4_product,
    gate_cases,
    gate_least,
    gated_experts,
    gradient_cases,
    grouped_gradient,
    int4_cases,
    int4_product,
    min_p_words,
    norm_cases,
    penalty_of_words,
    penalty_of_words_cases,
    repeats_itself,
    rms_norm,
    same_words,
    scaled_back,
    share_from,
    threshold_cases,
    uses_the_format,
    which_experts,
    whose_rows,
    word_cases,
)

EXERCISES = {
    "01-mask": Exercise(
        "add_padded(x, y)",
        padded,
        add_padded,
        level="easy",
        minutes=10,
        hints=(
            "x and y have different lengths: each load needs a mask of its own.",
            "What a masked load leaves out is undefined, unless ``other`` says what it is.",
        ),
        large=lambda device: (torch.randn(2**25, device=device), torch.randn(2**24, device=device)),
        pytorch=add_padded,
    ),
    "01-axpy": Exercise(
        "axpy(a, x, y)",
        lambda device: ((2.5, x, y) for x, y in vectors(device)),
        lambda a, x, y: a * x + y,
        level="easy",
        minutes=10,
        hints=(
            "The kernel of the addition needs one more argument, ``a``, and one more "
            "multiplication.",
            "PyTorch starts two kernels for ``a * x + y``, and writes ``a * x`` to memory "
            "between them.",
        ),
        large=lambda device: (2.5, *torch.randn(2, 2**25, device=device)),
        pytorch=lambda a, x, y: torch.add(y, x, alpha=a),
    ),
    "01-strides": Exercise(
        "add_strided(x, y)",
        lambda device: ((x[::2], y[: len(x[::2])]) for x, y in vectors(device)),
        torch.add,
        copies=False,
        level="easy",
        minutes=15,
        hints=(
            "Pass ``x.stride(0)`` to the kernel, and multiply the offsets of x with it.",
            "The offsets of the output have no stride, and the mask stays as it is.",
        ),
        large=lambda device: (
            torch.randn(2**26, device=device)[::2],
            torch.randn(2**25, device=device),
        ),
        pytorch=torch.add,
    ),
    "01-grid-stride": Exercise(
        "add_loop(x, y, programs)",
        lambda device: ((x, y, programs) for x, y in vectors(device) for programs in (1, 3)),
        lambda x, y, programs: x + y,
        level="medium",
        minutes=20,
        hints=(
            "A program begins with block ``tl.program_id(0)``, and goes on with the block "
            "that is ``tl.num_programs(0)`` further.",
            "``for start in range(first, n, step)`` works in a kernel; the mask is needed "
            "in every iteration.",
        ),
        large=lambda device: (*torch.randn(2, 2**25, device=device), 528),
        pytorch=lambda x, y, programs: x + y,
    ),
    "02-logsumexp": Exercise(
        "logsumexp(x)",
        lambda device: (*matrices(device), (100 * torch.randn(4, 128, device=device),)),
        lambda x: torch.logsumexp(x, dim=1),
        {"rtol": 1e-5, "atol": 1e-5},
        level="easy",
        minutes=15,
        hints=(
            "Subtract the maximum of the row first, and add it to the logarithm.",
            "The padding must add nothing to the sum: which number has the exponential 0?",
        ),
        large=lambda device: (torch.randn(8192, 4096, device=device),),
        pytorch=lambda x: torch.logsumexp(x, dim=1),
    ),
    "02-log-softmax": Exercise(
        "log_softmax(x)",
        matrices,
        lambda x: torch.log_softmax(x, dim=1),
        {"rtol": 1e-5, "atol": 1e-5},
        level="easy",
        minutes=15,
        hints=(
            "The logarithm of a quotient is a difference: the division disappears.",
            "``x - m - tl.log(tl.sum(tl.exp(x - m), axis=0))``, where ``m`` is the maximum.",
        ),
        large=lambda device: (torch.randn(8192, 4096, device=device),),
        pytorch=lambda x: torch.log_softmax(x, dim=1),
    ),
    "02-causal-softmax": Exercise(
        "causal_softmax(x, scale)",
        lambda device: ((torch.randn(n, n, device=device), 0.125) for n in (1, 5, 100, 129)),
        causal,
        least=lambda arguments, y: size_of(y) + (size_of(arguments[0]) + 4 * len(y)) // 2,
        level="medium",
        minutes=25,
        hints=(
            "Which columns does row i need? A mask at the load saves the bytes of the others.",
            "The output needs zeros there: the store has another mask than the load.",
        ),
        large=lambda device: (torch.randn(8192, 8192, device=device), 0.125),
        pytorch=causal,
    ),
    "02-softmax-backward": Exercise(
        "softmax_backward(y, g)",
        lambda device: ((x.softmax(dim=1), torch.randn_like(x)) for (x,) in matrices(device)),
        softmax_backward,
        level="easy",
        minutes=20,
        hints=(
            "One program needs a row of ``y`` and the same row of ``g``.",
            "What do elements behind the row add to the sum? ``other=0.0`` is right here.",
        ),
        large=lambda device: torch.randn(2, 8192, 4096, device=device).softmax(dim=2).unbind(),
        pytorch=softmax_backward,
    ),
    "03-transposed": Exercise(
        "matmul_t(a, w)",
        lambda device: ((a, b.T.contiguous()) for a, b in products(device)),
        lambda a, w: (a.float() @ w.float().T).half(),
        FP16,
        copies=False,
        multiplied=lambda a, w: a.numel() * len(w),
        level="easy",
        minutes=15,
        hints=(
            "The kernel stays: only the two strides that are passed for the second factor change.",
            "Element (k, n) of ``w.T`` is element (n, k) of w.",
        ),
        large=lambda device: torch.randn(2, 4096, 4096, device=device).half().unbind(),
        pytorch=lambda a, w: a @ w.T,
    ),
    "03-linear-layer": Exercise(
        'linear(x, weight, bias, activation="")',
        linear_cases,
        linear,
        FP16,
        multiplied=lambda x, weight, bias, activation: x.numel() * len(weight),
        level="medium",
        minutes=30,
        hints=(
            "A tile of the result has one bias for each column: load ``BLOCK_N`` of them "
            "once, behind the loop.",
            "Add it to the fp32 accumulator, before the activation and before the "
            "conversion to fp16.",
        ),
        large=lambda device: (
            torch.randn(4096, 4096, device=device).half(),
            torch.randn(4096, 4096, device=device).half() / 64,
            torch.randn(4096, device=device).half(),
            "relu",
        ),
        pytorch=lambda x, w, b, activation: torch.relu(torch.nn.functional.linear(x, w, b)),
    ),
    "03-batched": Exercise(
        "bmm(a, b)",
        lambda device: (
            (a.expand(3, -1, -1).contiguous(), b.expand(3, -1, -1).contiguous())
            for a, b in products(device)
        ),
        lambda a, b: torch.bmm(a.float(), b.float()).to(a.dtype),
        FP16,
        multiplied=lambda a, b: a.numel() * b.shape[2],
        level="medium",
        minutes=25,
        hints=(
            "A second axis of the grid counts the matrices.",
            "Move both pointers by the batch's stride first; everything behind that stays.",
        ),
        large=lambda device: torch.randn(2, 512, 256, 256, device=device).half().unbind(),
        pytorch=torch.bmm,
    ),
    "03-split-k": Exercise(
        "split_k_matmul(a, b, parts)",
        lambda device: ((a, b, parts) for a, b in products(device) for parts in (1, 4)),
        lambda a, b, parts: (a.float() @ b.float()).to(a.dtype),
        FP16,
        multiplied=lambda a, b, parts: a.numel() * b.shape[1],
        properties=(
            lambda call, device: same_bits(
                call,
                torch.randn(64, 1024, device=device).half(),
                torch.randn(1024, 64, device=device).half(),
                16,
            ),
        ),
        level="hard",
        minutes=45,
        hints=(
            "Each program multiplies a part of K, and stores its partial sum in fp32. Atomic "
            "additions would come in another order each time.",
            "A second launch adds the partial sums in order, and converts to fp16 in the end.",
        ),
        large=lambda device: (
            torch.randn(64, 65536, device=device).half() / 64,
            torch.randn(65536, 64, device=device).half(),
            32,
        ),
        pytorch=lambda a, b, parts: a @ b,
    ),
    "03b-waves": Exercise(
        "filled(tiles, processors)",
        lambda device: ((n, sms) for sms in (84, 132, 304) for n in (1, sms, sms + 1, 1000)),
        lambda tiles, processors: as_number(filled(tiles, processors)),
        seen=as_number,
        level="easy",
        minutes=5,
        hints=(
            "How many waves do the tiles need? The last one may be partly empty.",
            "All waves together have ``waves * processors`` places.",
        ),
        kernels=False,
    ),
    "04-signs": Exercise(
        "random_signs(n, seed)",
        lambda device: ((n, seed) for n in (1, 5, 123, 1024, 4099) for seed in (0, 7, 2**40)),
        random_signs,
        least=lambda arguments, result: size_of(result),
        seen=lambda result: result.cpu() if isinstance(result, torch.Tensor) else result,
        level="easy",
        minutes=15,
        hints=(
            "Counter i gives four words: they belong to the elements 4 i to 4 i + 3, side by side.",
            "``tl.interleave`` takes turns between two blocks: which two words lie two apart?",
        ),
        large=lambda device: (2**26, 7),
    ),
    "04-seed-per-row": Exercise(
        "seeded_dropout_rows(x, p, seeds)",
        lambda device: [(torch.ones(5, 781, device=device), 0.25, torch.arange(5, device=device))],
        properties=(
            same_rows,
            lambda call, device: keeps_the_share(
                lambda x: call(x, 0.25, torch.arange(len(x), device=device)), device
            ),
        ),
        level="easy",
        minutes=20,
        hints=(
            "A program for each row loads its seed, a scalar.",
            "The offset that is given to ``tl.rand`` must count columns only: then a row's "
            "mask does not depend on its number.",
        ),
        large=lambda device: (
            torch.randn(8192, 4096, device=device),
            0.5,
            torch.arange(8192, device=device),
        ),
    ),
    "04-strided-input": Exercise(
        "strided_dropout(x, p, seed)",
        lambda device: [(torch.ones(781, 5, device=device).T, 0.25, 3)],
        copies=False,
        properties=(
            layout_does_not_matter,
            lambda call, device: keeps_the_share(lambda x: call(x, 0.25, 3), device),
        ),
        level="medium",
        minutes=20,
        hints=(
            "There are two offsets: where an element is in memory, and which element it is.",
            "Give ``tl.rand`` the second: ``row * N + column``.",
        ),
        large=lambda device: (torch.randn(8192, 8192, device=device).T, 0.5, 3),
    ),
    "04-sparse-johnson-lindenstrauss": Exercise(
        "project(x, k, s, seed)",
        lambda device: [(torch.randn(5, 781, device=device), 64, 4, 3)],
        properties=(keeps_distances,),
        level="hard",
        minutes=60,
        hints=(
            "A random number decides whether an element of R is 0, + or -.",
            "No program needs all of R: it draws the elements of the tile that it multiplies with.",
        ),
        large=lambda device: (torch.randn(4096, 4096, device=device), 256, 4, 3),
    ),
    "05-rms": Exercise(
        "rms_norm(x, weight)",
        lambda device: ((x, torch.randn(x.shape[1], device=device)) for (x,) in matrices(device)),
        lambda x, weight: torch.nn.functional.rms_norm(x, x.shape[1:], weight, 1e-6),
        {"rtol": 1e-5, "atol": 1e-5},
        level="easy",
        minutes=10,
        hints=(
            "The block is wider than the row: how many numbers does the mean divide by?",
            "``other=0.0`` adds nothing to the sum of squares.",
        ),
        large=lambda device: (
            torch.randn(8192, 4096, device=device),
            torch.ones(4096, device=device),
        ),
        pytorch=lambda x, weight: torch.nn.functional.rms_norm(x, x.shape[1:], weight, 1e-6),
    ),
    "05-residual": Exercise(
        "add_norm(x, residual, weight, bias)",
        lambda device: rows_with_parameters(device, matrices=2),
        in_double(norm_of_sum),
        {"rtol": 1e-4, "atol": 1e-4},
        # Forward two tensors are read and two written, backward three and one.
        least=lambda arguments, results: 8 * size_of(arguments[0]) + 5 * size_of(arguments[2]),
        use=results_and_gradients,
        names=(
            "y",
            "the sum",
            *(f"the gradient of {t}" for t in ("x", "residual", "weight", "bias")),
        ),
        level="medium",
        minutes=30,
        hints=(
            "The kernel loads x and the residual, adds them, and stores the sum and its norm.",
            "In the backward pass the gradient of the sum is added to that of the norm; "
            "both inputs get it.",
        ),
        large=lambda device: (
            *torch.randn(2, 8192, 4096, device=device),
            *torch.randn(2, 4096, device=device),
        ),
        pytorch=norm_of_sum,
    ),
    "05-group-norm": Exercise(
        "group_norm(x, groups, weight, bias)",
        images,
        group_norm,
        {"rtol": 1e-4, "atol": 1e-4},
        level="medium",
        minutes=30,
        hints=(
            "The elements of one group of channels lie side by side in memory: it is a row.",
            "Which channel an element has: its offset in the group, divided by the size of "
            "an image.",
        ),
        large=lambda device: (
            torch.randn(64, 256, 56, 56, device=device),
            32,
            *torch.randn(2, 256, device=device),
        ),
        pytorch=lambda x, groups, weight, bias: torch.nn.functional.group_norm(
            x, groups, weight, bias
        ),
    ),
    "05-dropout": Exercise(
        "dropped_layer_norm(x, weight, bias, p, seed)",
        lambda device: ((*given, 0.25, 3) for given in rows_with_parameters(device)),
        # Forward one tensor is read and one written, backward two and one.
        least=lambda arguments, results: 5 * size_of(arguments[0]) + 5 * size_of(arguments[1]),
        use=results_and_gradients,
        properties=(fits_one_mask, norm_of_ones),
        level="medium",
        minutes=40,
        hints=(
            "The backward pass draws the same numbers again from seed and offset.",
            "Apply the mask to the incoming gradient first; everything else stays.",
        ),
        large=lambda device: (
            torch.randn(8192, 4096, device=device),
            *torch.randn(2, 4096, device=device),
            0.25,
            3,
        ),
    ),
    "05b-column-sums": Exercise(
        "column_sums(x)",
        lambda device: (
            (torch.randn(shape, device=device),)
            for shape in ((1, 1), (5, 123), (3, 5000), (1000, 1025), (4097, 781))
        ),
        lambda x: x.double().sum(0).float(),
        {"rtol": 1e-5, "atol": 1e-4},
        properties=(lambda call, device: same_bits(call, torch.randn(1000, 1025, device=device)),),
        level="easy",
        minutes=20,
        hints=(
            "Each program adds its rows and stores one row of partial sums; a second "
            "launch adds them.",
            "A program without rows must store zeros: the second launch reads its "
            "partial sums, too.",
        ),
        large=lambda device: (torch.randn(65536, 4096, device=device),),
        pytorch=lambda x: x.sum(0),
    ),
    "05b-row-variance": Exercise(
        "row_variance(x)",
        lambda device: (
            (mean + torch.randn(shape, device=device),)
            for shape in ((3, 1), (5, 781), (2, 2049), (4, 20001))
            for mean in (0, 1000)
        ),
        lambda x: x.double().var(1, correction=0).float(),
        {"rtol": 1e-4, "atol": 1e-7},
        hint=lambda arguments, wrong: (
            "The mean is large here: the mean of squares minus the square of the mean cancels."
            if arguments[0].mean() > 100
            else ""
        ),
        level="medium",
        minutes=25,
        hints=(
            "A block has a mean and a sum of squared deviations. How are those of two "
            "blocks combined?",
            "With n and k elements and means that differ by d, the squares grow by ``d*d "
            "* n*k / (n+k)``.",
        ),
        large=lambda device: (torch.randn(8192, 32768, device=device),),
        pytorch=lambda x: x.var(1, correction=0),
    ),
    "06-weighted-mean": Exercise(
        "weighted_mean(s, v)",
        scores,
        lambda s, v: (torch.softmax(s.double(), 1) @ v.double()).float(),
        {"rtol": 1e-4, "atol": 1e-5},
        level="easy",
        minutes=20,
        hints=(
            "Keep three numbers for a row: the maximum so far, the sum, and the weighted sum.",
            "A new maximum makes both sums too large: by ``exp(m - m_new)``, the same factor.",
        ),
        large=lambda device: (
            torch.randn(8192, 8192, device=device),
            torch.randn(8192, device=device),
        ),
        pytorch=lambda s, v: torch.softmax(s, 1) @ v,
    ),
    "06-sliding-window": Exercise(
        "window_attention(q, k, v, window)",
        window_cases,
        windowed,
        ATTENTION,
        multiplied=lambda q, k, v, window: (
            2 * q.numel() // q.shape[2] * sum(min(i + 1, window) for i in range(q.shape[2]))
        ),
        hint=which_queries,
        properties=(skips_the_past,),
        level="medium",
        minutes=40,
        hints=(
            "Which is the first key that the first query of a block sees? The loop begins "
            "with its tile.",
            "At both edges of the window tiles need a mask.",
        ),
        large=lambda device: (*attention_inputs(device, 16, 16, 8192, 8192, d=64), 512),
    ),
    "06-alibi": Exercise(
        "alibi_attention(q, k, v, slopes)",
        penalty_cases,
        penalized,
        ATTENTION,
        multiplied=lambda q, k, v, slopes: q.numel() * (q.shape[2] + 1),
        hint=which_queries,
        level="easy",
        minutes=25,
        hints=(
            "Each program belongs to one head: it loads one slope.",
            "Scores are in powers of two, if the kernel uses ``exp2``: then the slope has "
            "to be multiplied, too.",
        ),
        large=lambda device: (
            *attention_inputs(device, 16, 16, 4096, 4096, d=64),
            torch.ones(16, device=device) / 64,
        ),
    ),
    "06-grouped-heads": Exercise(
        "grouped_attention(q, k, v, causal=False)",
        grouped_cases,
        grouped,
        ATTENTION,
        multiplied=lambda q, k, v, causal: 2 * q.numel() * k.shape[2],
        hint=which_queries,
        properties=(reads_keys_once,),
        level="hard",
        minutes=60,
        hints=(
            "A row of the tile is a query of one head: row r belongs to head ``r // "
            "queries`` of the group.",
            "The mask for causal attention needs the query's own place, not the row of the tile.",
        ),
        large=lambda device: (*attention_inputs(device, 64, 8, 8, 8192, d=64), False),
        pytorch=lambda q, k, v, causal: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, enable_gqa=True
        ),
    ),
    "06-decode": Exercise(
        "decode_attention(q, k, v)",
        decode_cases,
        masked_attention,
        ATTENTION,
        multiplied=lambda q, k, v: 2 * q.numel() * k.shape[2],
        hint=which_queries,
        level="hard",
        minutes=60,
        hints=(
            "Each program handles a part of the keys, and stores its maximum, its sum and "
            "its result.",
            "Parts are combined by the rule of the online softmax, in a second kernel.",
        ),
        large=lambda device: attention_inputs(device, 32, 8, 1, 65536, d=64),
        pytorch=lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, enable_gqa=True
        ),
    ),
    "06b-delta": Exercise(
        "delta(o, do)",
        outputs,
        lambda o, do: (o.double() * do.double()).sum(-1).float(),
        {"rtol": 1e-5, "atol": 0.1},  # the numbers have the size 30
        level="easy",
        minutes=15,
        hints=(
            "fp16 has 11 significant bits and ends at 65,504: convert before you multiply.",
            "A program can take many rows: ``tl.sum(o * do, axis=1)`` gives a number for each.",
        ),
        large=lambda device: torch.randn(2, 16, 16, 4096, 64, device=device).half().unbind(),
        pytorch=lambda o, do: (o * do).sum(-1),
    ),
    "06b-scale-gradient": Exercise(
        "scale_gradient(q, dq, scale)",
        lambda device: (
            (*torch.randn(2, *shape, device=device).unbind(), shape[-1] ** -0.5)
            for shape in ((1, 1, 5, 16), (2, 2, 70, 64), (1, 4, 1000, 128))
        ),
        lambda q, dq, scale: ((q.double() * dq.double()).sum() / scale).float(),
        {"rtol": 1e-5, "atol": 0.05},  # a sum of up to half a million products
        properties=(
            lambda call, device: same_bits(
                call, *torch.randn(2, 4, 1000, 128, device=device).unbind(), 0.1
            ),
        ),
        level="medium",
        minutes=30,
        hints=(
            "The gradient of the scale is the sum of ``q * dq``, divided by the scale.",
            "Partial sums in memory and a second launch give the same bits every time.",
        ),
        large=lambda device: (*torch.randn(2, 16, 16, 4096, 64, device=device).unbind(), 0.125),
        pytorch=lambda q, dq, scale: (q * dq).sum() / scale,
    ),
    "06c-largest-scores": Exercise(
        "largest_scores(q, k)",
        score_factors,
        lambda q, k: (q.double() @ k.double().T).amax(1).float(),
        {"rtol": 1e-5, "atol": 1e-4},
        gpu="a Hopper GPU of NVIDIA",
        level="hard",
        minutes=60,
        hints=(
            "Start the product of tile j first, and take the maximum of tile j - 1 meanwhile.",
            "``warpgroup_mma`` is asynchronous; wait for it only where its result is used.",
        ),
        large=lambda device: torch.randn(2, 16384, 128, device=device).bfloat16().unbind(),
        pytorch=lambda q, k: (q @ k.T).amax(1),
    ),
    "06c-log-sum-exp": Exercise(
        "log_sum_exp(q, k, scale=None)",
        lambda device: (
            (q, k, scale) for q, k in score_factors(device) for scale in (q.shape[1] ** -0.5, 3.0)
        ),
        lambda q, k, scale: torch.logsumexp(scale * q.double() @ k.double().T, 1).float(),
        {"rtol": 1e-5, "atol": 1e-4},
        gpu="a Hopper GPU of NVIDIA",
        level="hard",
        minutes=60,
        hints=(
            "It is the loop of the largest scores with a second running number.",
            "Whenever the maximum rises, the sum is multiplied by ``exp2(old - new)``.",
        ),
        large=lambda device: (*torch.randn(2, 16384, 128, device=device).bfloat16().unbind(), 0.1),
        pytorch=lambda q, k, scale: torch.logsumexp(scale * (q @ k.T), 1),
    ),
    "07-tanh": Exercise(
        "tanh(x)",
        lambda device: (
            (x,) for x in (torch.linspace(-100, 100, 21, device=device), *next(vectors(device)))
        ),
        torch.tanh,
        level="easy",
        minutes=10,
        hints=(
            "``tl.exp`` overflows at large numbers, and infinity divided by infinity is NaN.",
            "The exponential of ``-2 * tl.abs(x)`` is at most 1; the sign comes last.",
        ),
        large=lambda device: (torch.randn(2**26, device=device),),
        pytorch=torch.tanh,
    ),
    "07-polynomial": Exercise(
        "exponential(x, terms)",
        polynomials,
        by_polynomial,
        {"rtol": 1e-5, "atol": 0.0},
        level="medium",
        minutes=25,
        hints=(
            "``terms`` are known when the kernel is compiled: a tuple is a "
            "``tl.constexpr``, and ``tl.static_range`` unrolls the loop.",
            "The lowest digits of ``k * log(2)`` matter: subtract it in two parts.",
        ),
        large=lambda device: (
            torch.linspace(-80, 80, 2**25, device=device),
            [1 / 24, 1 / 6, 0.5, 1.0, 1.0],
        ),
        pytorch=lambda x, terms: torch.exp(x),
    ),
    "07-gelu-backward": Exercise(
        'gelu(x, approximation="none")',
        lambda device: (
            (3 * torch.randn(5, n, device=device), way)
            for n in (1, 781)
            for way in ("none", "tanh")
        ),
        lambda x, way: torch.nn.functional.gelu(x.double(), approximate=way).float(),
        {"rtol": 1e-5, "atol": 2e-6},
        properties=(gelu_has_gradients,),
        level="easy",
        minutes=25,
        hints=(
            "Derive the formula once by hand: the product rule, and the density of the "
            "normal distribution.",
            "Keep x, and nothing else, for the backward pass.",
        ),
        large=lambda device: (torch.randn(2**25, device=device), "tanh"),
        pytorch=lambda x, way: torch.nn.functional.gelu(x, approximate=way),
    ),
    "08-sums": Exercise(
        "expert_sums(x, offsets)",
        expert_cases,
        expert_sums,
        {"rtol": 1e-5, "atol": 1e-5},
        level="easy",
        minutes=15,
        hints=(
            "The rows of expert e begin at ``offsets[e - 1]``. What does the first expert load?",
            "An expert without rows has a result, too: zeros.",
        ),
        large=lambda device: (
            torch.randn(65536, 1024, device=device),
            torch.arange(512, 65537, 512, device=device).int(),
        ),
    ),
    "08-backward": Exercise(
        "grouped_gradient(x, g, offsets)",
        gradient_cases,
        grouped_gradient,
        FP16,
        multiplied=lambda x, g, offsets: x.numel() * g.shape[1],
        hint=which_experts,
        level="hard",
        minutes=60,
        hints=(
            "The gradient of an expert's matrix is ``x.T @ g`` over its rows: the loop "
            "runs over rows.",
            "An expert without tokens has the gradient 0, which must be stored as well.",
        ),
    ),
    "08-gate": Exercise(
        "gated_experts(x, w_gate, w_up, offsets)",
        gate_cases,
        gated_experts,
        FP16,
        least=gate_least,
        multiplied=lambda x, w_gate, w_up, offsets: 2 * x.numel() * w_up.shape[2],
        hint=whose_rows,
        level="medium",
        minutes=40,
        hints=(
            "One tile of x serves two products.",
            "Two accumulators need registers: smaller tiles than before may be faster.",
        ),
    ),
    "09-blocks": Exercise(
        "dequantize_blocks(q, scales)",
        block_cases,
        scaled_back,
        level="easy",
        minutes=10,
        hints=(
            "A program that has 128 columns of a row needs one scale.",
            "The last block may have fewer columns: how many blocks has a row of 300?",
        ),
        large=lambda device: next(block_cases(device, [(8192, 8192)])),
        pytorch=scaled_back,
    ),
    "09-fused-quantize": Exercise(
        "normalize_and_quantize(x, weight)",
        norm_cases,
        rms_norm,
        FP8,
        seen=dequantized,
        properties=(lambda call, device: uses_the_format(call, *list(norm_cases(device))[1]),),
        level="medium",
        minutes=30,
        hints=(
            "The norm of a row gives its largest element: scale = largest / 448.",
            "A row of zeros must not divide by zero.",
        ),
        large=lambda device: (
            torch.randn(8192, 4096, device=device),
            torch.randn(4096, device=device),
        ),
    ),
    "09-per-tensor": Exercise(
        "quantize_tensor(x)",
        lambda device: (
            (torch.randn(shape, device=device),) for shape in ((1,), (123, 457), (5, 4096))
        ),
        lambda x: x,
        FP8,
        # The largest of all is known only when all have been read, so they are read again.
        least=lambda arguments, result: 2 * size_of(*arguments) + size_of(result),
        seen=dequantized,
        properties=(
            lambda call, device: uses_the_format(call, torch.randn(7, 1000, device=device)),
            repeats_itself,
        ),
        level="medium",
        minutes=30,
        hints=(
            "Two launches: the first finds the largest element, the second one divides.",
            "Positive floats are ordered as their bits are: ``tl.atomic_max`` on integers "
            "finds the maximum in any order.",
        ),
        large=lambda device: (torch.randn(8192, 4096, device=device),),
    ),
    "09b-row-sums": Exercise(
        "row_sums(x)",
        lambda device: (
            (torch.randn(shape, device=device).bfloat16(),)
            for shape in ((1, 8), (64, 64), (100, 1000), (5000, 4096))
        ),
        lambda x: x.double().sum(1).float(),
        {"rtol": 1e-5, "atol": 1e-3},
        gpu="a Hopper GPU of NVIDIA",
        level="hard",
        minutes=60,
        hints=(
            "Two barriers for each buffer: one says that a tile has arrived, one that it was read.",
            "The loading warp waits for an empty buffer before it loads into it; the "
            "first are empty.",
        ),
        large=lambda device: (torch.randn(32768, 8192, device=device).bfloat16(),),
        pytorch=lambda x: x.sum(1, dtype=torch.float32),
    ),
    "09b-product": Exercise(
        "product(a, w)",
        lambda device: (
            (
                torch.randn(m, k, device=device).bfloat16(),
                torch.randn(n, k, device=device).bfloat16(),
            )
            for m, n, k in ((8, 8, 8), (200, 136, 320), (1000, 2048, 4096))
        ),
        lambda a, w: (a.double() @ w.double().T).bfloat16(),
        {"rtol": 2**-7, "atol": 2**-4},
        gpu="a Hopper GPU of NVIDIA",
        level="hard",
        minutes=90,
        hints=(
            "Without scales the accumulator stays in ``warpgroup_mma`` for the whole loop.",
            "Two groups of warps multiply 64 rows each; both say that a buffer is empty.",
        ),
        large=lambda device: torch.randn(2, 4096, 4096, device=device).bfloat16().unbind(),
        pytorch=lambda a, w: a @ w.T,
    ),
    "10-probability": Exercise(
        "target_probabilities(logits, targets)",
        target_cases,
        probability_of,
        {"rtol": 1e-5, "atol": 1e-6},
        level="easy",
        minutes=15,
        hints=(
            "It is the exponential of minus the loss: ``exp(x[t] - m) / s``.",
            "A target of -100 is no place in the row: do not load the logit there.",
        ),
        large=lambda device: (
            torch.randn(4096, 32768, device=device),
            torch.randint(0, 32768, (4096,), device=device),
        ),
        pytorch=probability_of,
    ),
    "10-label-smoothing": Exercise(
        "smoothed_cross_entropy(logits, targets, smoothing)",
        lambda device: loss_cases(device, 0.0, 0.1, 1.0),
        smoothed_loss,
        {"rtol": 1e-5, "atol": 2e-6},
        hint=which_rows,
        level="medium",
        minutes=40,
        hints=(
            "The loss of a row needs the mean of its logits, too: one more sum.",
            "The gradient is softmax - target, where the target is ``smoothing / V`` "
            "everywhere, and more at one place.",
        ),
        large=lambda device: (
            torch.randn(4096, 32000, device=device),
            torch.randint(0, 32000, (4096,), device=device),
            0.1,
        ),
    ),
    "10-z-loss": Exercise(
        "cross_entropy_with_z_loss(logits, targets, alpha)",
        lambda device: loss_cases(device, 0.0, 1e-4, 0.1),
        z_loss,
        {"rtol": 1e-4, "atol": 1e-5},
        hint=which_rows,
        level="medium",
        minutes=40,
        hints=(
            "The derivative of ``z * z`` by a logit is ``2 * z * softmax``.",
            "Rows that do not count add nothing to the mean, and their gradient is 0.",
        ),
        large=lambda device: (
            torch.randn(4096, 32000, device=device),
            torch.randint(0, 32000, (4096,), device=device),
            1e-4,
        ),
    ),
    "10-own-maxima": Exercise(
        "losses_of(logits, targets, own)",
        lambda device: loss_cases(device, True, False),
        lambda logits, targets, own: torch.nn.functional.cross_entropy(
            logits, targets, reduction="none"
        ),
        {"rtol": 1e-5, "atol": 2e-6},
        level="medium",
        minutes=25,
        hints=(
            "A row is read in blocks. With its own maximum a block can be added at once, "
            "and rescaled later.",
            "Keep a maximum for each place of the block, and combine them behind the loop.",
        ),
        large=lambda device: (
            torch.randn(4096, 32000, device=device),
            torch.randint(0, 32000, (4096,), device=device),
            True,
        ),
        pytorch=lambda logits, targets, own: torch.nn.functional.cross_entropy(
            logits, targets, reduction="none"
        ),
    ),
    "10b-bias": Exercise(
        "with_bias(x, weight, bias, targets, piece)",
        lambda device: last_layers(
            device, (7, 5, 781, 3), (64, 32, 1000, 64), (9, 8, 4097, 4), bias=True
        ),
        loss_of_last_layer,
        names=("the loss", *(f"the gradient of {name}" for name in ("x", "weight", "bias"))),
        tolerance=of_last_layer,
        level="medium",
        minutes=45,
        hints=(
            "The bias is added to each logit that the kernel loads, that of the target included.",
            "The gradient of the bias is the sum of the logits' gradients over the rows "
            "of all pieces.",
        ),
    ),
    "10b-fp32-sum": Exercise(
        "gradients_in_fp32(x, weight, targets, piece)",
        lambda device: last_layers(device, (7, 5, 781, 3), (60, 24, 333, 13)),
        lambda x, weight, targets, piece: loss_of_last_layer(x, weight, None, targets, piece),
        names=("the loss", "the gradient of x", "the gradient of weight"),
        tolerance=of_last_layer,
        level="medium",
        minutes=40,
        hints=(
            "bf16 has 8 significant bits: a small piece is lost when it is added to a large sum.",
            "Add the pieces in fp32, and convert once, behind the loop.",
        ),
    ),
    "11-last-key": Exercise(
        "last_keys(k_pages, page_table, lengths)",
        page_cases,
        newest_keys,
        least=lambda arguments, keys: 2 * size_of(keys) + 8 * len(keys),
        level="easy",
        minutes=10,
        hints=(
            "The last token of n is token n - 1.",
            "Its page is number ``(n - 1) // PAGE`` of the row, and ``(n - 1) % PAGE`` is its "
            "place there.",
        ),
        pytorch=newest_keys,
    ),
    "11-window": Exercise(
        "window_attention(q, k_pages, v_pages, page_table, lengths, window)",
        lambda device: paged(device, 1, 16, 50, 1000),
        paged_attention,
        ATTENTION,
        least=paged_least,
        hint=which_sequences,
        level="medium",
        minutes=40,
        hints=(
            "The first key is ``max(0, length - window)``: its page is the first one to read.",
            "The keys of that page that lie before the window need a mask.",
        ),
    ),
    "11-int8-pages": Exercise(
        "int8_attention(q, k_pages, v_pages, k_scales, v_scales, page_table, lengths)",
        int8_cases,
        int8_attention,
        ATTENTION,
        least=paged_least,
        hint=which_sequences,
        level="medium",
        minutes=40,
        hints=(
            "The scale of a key can be applied to its score, that of a value to its weight.",
            "So no element of a page is multiplied alone.",
        ),
    ),
    "12-unpack": Exercise(
        "unpack_words(words)",
        word_cases,
        four_integers,
        level="easy",
        minutes=10,
        hints=(
            "One load of a word serves four stores.",
            "A shift to the right keeps the sign of int16: what does ``& 15`` leave?",
        ),
        large=lambda device: next(word_cases(device, [(8192, 2048)])),
        pytorch=four_integers,
    ),
    "12-zero-points": Exercise(
        "folded_mm(x, packed, scales, zeros)",
        int4_cases,
        int4_product,
        {"rtol": 4e-3, "atol": 0.1},
        multiplied=lambda x, packed, *_: len(x) * 4 * packed.numel(),
        level="medium",
        minutes=40,
        hints=(
            "Sum the products of x and the codes first; the scale comes once for each group.",
            "The zero point needs the sum of x over the group.",
        ),
    ),
    "12-fp4": Exercise(
        "fp4_mm(x, packed, scales)",
        lambda device: (arguments[:3] for arguments in int4_cases(device)),
        fp4_product,
        {"rtol": 4e-3, "atol": 0.1},
        multiplied=lambda x, packed, _: len(x) * 4 * packed.numel(),
        level="medium",
        minutes=40,
        hints=(
            "A table of eight numbers is ``tl.where`` or arithmetic: 0, 0.5, 1, 1.5 have "
            "another rule than the larger ones.",
            "The highest of the four bits is the sign.",
        ),
    ),
    "13-share": Exercise(
        "share_above(x, thresholds)",
        threshold_cases,
        share_from,
        {"rtol": 1e-5, "atol": 1e-6},
        level="easy",
        minutes=15,
        hints=(
            "It is the softmax of a row, and a ``tl.where`` before one of two sums.",
            "Which logit has no weight? It belongs behind the end of the row.",
        ),
        large=lambda device: next(threshold_cases(device, [(1024, 32768)])),
        pytorch=share_from,
    ),
    "13-min-p": Exercise(
        "sample_min_p(logits, min_p, seed)",
        lambda device: [(torch.randn(3, 781, device=device), 0.1, 3)],
        properties=(min_p_words, same_words),
        level="medium",
        minutes=30,
        hints=(
            "A token is kept if its logit is at least ``largest + log(min_p)``.",
            "No bisection is needed: the threshold is known when the maximum is.",
        ),
        large=lambda device: (torch.randn(128, 128000, device=device), 0.1, 3),
    ),
    "13-repetition-penalty": Exercise(
        "penalize(logits, tokens, penalty)",
        penalty_of_words_cases,
        penalty_of_words,
        least=lambda arguments, result: size_of(arguments[1], result),
        level="medium",
        minutes=30,
        hints=(
            "A token that occurs twice is penalized once: it must not be read when it has "
            "been changed already.",
            "Read the logits from the input, and write to a copy: then all occurrences "
            "write the same value.",
        ),
        large=lambda device: (
            torch.randn(128, 128000, device=device),
            torch.randint(0, 128000, (128, 4096), device=device),
            1.3,
        ),
    ),
    "14-delta-rule": Exercise(
        "delta_rule(q, k, v, beta)",
        texts_without_gate,
        without_gate,
        {"rtol": 1e-4, "atol": 1e-4},
        hint=which_tokens,
        level="medium",
        minutes=40,
        hints=(
            "Without decay the factors ``exp(g)`` are 1: what of the kernel remains?",
            "Start from the lesson's kernel, and set g to 0 in the formulas, not in memory.",
        ),
    ),
    "14-prefix": Exercise(
        "continue_rule(q, k, v, g, beta, state)",
        prefix_cases,
        by_recurrence,
        {"rtol": 1e-4, "atol": 1e-4},
        names=("the output", "the new state"),
        level="medium",
        minutes=40,
        hints=(
            "The state that is passed in takes the place of zeros before the first chunk.",
            "Its decay to a token is the product of all factors up to there.",
        ),
    ),
    "14b-states": Exercise(
        "states(maps, ends)",
        segment_cases,
        states_after,
        {"rtol": 1e-4, "atol": 1e-5},
        hint=which_segment,
        multiplied=lambda maps, ends: maps.numel() * maps.shape[3],
        level="easy",
        minutes=20,
        hints=(
            "Columns of the state are independent of each other; all of them need all of M.",
            "The first state is the first L: a product with zeros is right, too.",
        ),
    ),
    "14b-recurrence": Exercise(
        "recurrence(a, b)",
        recurrence_cases,
        by_numbers,
        {"rtol": 1e-5, "atol": 1e-5},
        level="medium",
        minutes=40,
        hints=(
            "M of a segment is the product of its ``a``; L is h at its end, from zero.",
            "Each program can walk over the summaries of the segments before its own.",
        ),
    ),
    "15-decay": Exercise(
        "decayed_step(w, g, m, v, decays, t)",
        step_cases,
        decayed,
        names=("the weights", "the first moment", "the second moment"),
        level="easy",
        minutes=20,
        hints=(
            "The rate is 1e-3, the betas are 0.9 and 0.95, and eps is 1e-8.",
            "Load ``decays`` with the offsets and the mask of the weights.",
        ),
        large=lambda device: next(step_cases(device, (2**24,))),
    ),
    "15-cache": Exercise(
        "append(k, v, k_pages, v_pages, page_table, lengths)",
        append_cases,
        appended,
        least=lambda arguments, pages: 4 * size_of(arguments[0]) + 8 * len(arguments[5]),
        use=in_copies,
        names=("k_pages", "v_pages"),
        level="medium",
        minutes=30,
        hints=(
            "A sequence of n tokens gets the new one at place n: ``n % PAGE`` of page "
            "``n // PAGE`` of its row.",
            "One program for each sequence stores both, and nothing else of the pages.",
        ),
    ),
}
