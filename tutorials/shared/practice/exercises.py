"""The exercises."""

import torch

from shared.practice.weights import (
    FP8,
    dequantized,
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
    uses_the_format,
    which_experts,
    whose_rows,
)
from shared.practice.attention import (
    ATTENTION,
    by_recurrence,
    decode_cases,
    grouped,
    grouped_cases,
    int8_attention,
    int8_cases,
    masked_attention,
    paged,
    paged_attention,
    paged_least,
    penalized,
    penalty_cases,
    prefix_cases,
    reads_keys_once,
    skips_the_past,
    texts_without_gate,
    which_queries,
    which_sequences,
    which_tokens,
    window_cases,
    windowed,
    without_gate,
)
from shared.practice.functions import (
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
    layout_does_not_matter,
    linear,
    linear_cases,
    loss_cases,
    matrices,
    norm_of_ones,
    norm_of_sum,
    polynomials,
    products,
    results_and_gradients,
    rows_with_parameters,
    same_rows,
    smoothed_loss,
    softmax_backward,
    vectors,
    which_rows,
    z_loss,
)
from shared.practice.compare import FP16, Exercise, size_of


EXERCISES = {
    "01-axpy": Exercise(
        "axpy(a, x, y)",
        lambda device: ((2.5, x, y) for x, y in vectors(device)),
        lambda a, x, y: a * x + y,
    ),
    "01-strides": Exercise(
        "add_strided(x, y)",
        lambda device: ((x[::2], y[: len(x[::2])]) for x, y in vectors(device)),
        torch.add,
    ),
    "01-grid-stride": Exercise(
        "add_loop(x, y, programs)",
        lambda device: ((x, y, programs) for x, y in vectors(device) for programs in (1, 3)),
        lambda x, y, programs: x + y,
    ),
    "02-log-softmax": Exercise(
        "log_softmax(x)",
        matrices,
        lambda x: torch.log_softmax(x, dim=1),
        {"rtol": 1e-5, "atol": 1e-5},
    ),
    "02-causal-softmax": Exercise(
        "causal_softmax(x, scale)",
        lambda device: ((torch.randn(n, n, device=device), 0.125) for n in (1, 5, 100, 129)),
        causal,
        least=lambda arguments, y: size_of(y) + (size_of(arguments[0]) + 4 * len(y)) // 2,
    ),
    "02-softmax-backward": Exercise(
        "softmax_backward(y, g)",
        lambda device: ((x.softmax(dim=1), torch.randn_like(x)) for (x,) in matrices(device)),
        softmax_backward,
    ),
    "03-linear-layer": Exercise(
        'linear(x, weight, bias, activation="")', linear_cases, linear, FP16,
        multiplied=lambda x, weight, bias, activation: x.numel() * len(weight),
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
    ),
    "03-split-k": Exercise(
        "split_k_matmul(a, b, parts)",
        lambda device: ((a, b, parts) for a, b in products(device) for parts in (1, 4)),
        lambda a, b, parts: (a.float() @ b.float()).to(a.dtype),
        FP16,
        multiplied=lambda a, b, parts: a.numel() * b.shape[1],
    ),
    "03b-waves": Exercise(
        "filled(tiles, processors)",
        lambda device: ((n, sms) for sms in (84, 132, 304) for n in (1, sms, sms + 1, 1000)),
        lambda tiles, processors: as_number(filled(tiles, processors)),
        seen=as_number,
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
    ),
    "04-strided-input": Exercise(
        "strided_dropout(x, p, seed)",
        lambda device: [(torch.ones(781, 5, device=device).T, 0.25, 3)],
        properties=(
            layout_does_not_matter,
            lambda call, device: keeps_the_share(lambda x: call(x, 0.25, 3), device),
        ),
    ),
    "04-sparse-johnson-lindenstrauss": Exercise(
        "project(x, k, s, seed)",
        lambda device: [(torch.randn(5, 781, device=device), 64, 4, 3)],
        properties=(keeps_distances,),
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
            "y", "the sum", *(f"the gradient of {t}" for t in ("x", "residual", "weight", "bias"))
        ),
    ),
    "05-group-norm": Exercise(
        "group_norm(x, groups, weight, bias)",
        images,
        group_norm,
        {"rtol": 1e-4, "atol": 1e-4},
    ),
    "05-dropout": Exercise(
        "dropped_layer_norm(x, weight, bias, p, seed)",
        lambda device: ((*given, 0.25, 3) for given in rows_with_parameters(device)),
        # Forward one tensor is read and one written, backward two and one.
        least=lambda arguments, results: 5 * size_of(arguments[0]) + 5 * size_of(arguments[1]),
        use=results_and_gradients,
        properties=(fits_one_mask, norm_of_ones),
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
    ),
    "06-alibi": Exercise(
        "alibi_attention(q, k, v, slopes)",
        penalty_cases,
        penalized,
        ATTENTION,
        multiplied=lambda q, k, v, slopes: q.numel() * (q.shape[2] + 1),
        hint=which_queries,
    ),
    "06-grouped-heads": Exercise(
        "grouped_attention(q, k, v, causal=False)",
        grouped_cases,
        grouped,
        ATTENTION,
        multiplied=lambda q, k, v, causal: 2 * q.numel() * k.shape[2],
        hint=which_queries,
        properties=(reads_keys_once,),
    ),
    "06-decode": Exercise(
        "decode_attention(q, k, v)",
        decode_cases,
        masked_attention,
        ATTENTION,
        multiplied=lambda q, k, v: 2 * q.numel() * k.shape[2],
        hint=which_queries,
    ),
    "07-polynomial": Exercise(
        "exponential(x, terms)",
        polynomials,
        by_polynomial,
        {"rtol": 1e-5, "atol": 0.0},
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
    ),
    "08-backward": Exercise(
        "grouped_gradient(x, g, offsets)",
        gradient_cases,
        grouped_gradient,
        FP16,
        multiplied=lambda x, g, offsets: x.numel() * g.shape[1],
        hint=which_experts,
    ),
    "08-gate": Exercise(
        "gated_experts(x, w_gate, w_up, offsets)",
        gate_cases,
        gated_experts,
        FP16,
        least=gate_least,
        multiplied=lambda x, w_gate, w_up, offsets: 2 * x.numel() * w_up.shape[2],
        hint=whose_rows,
    ),
    "09-fused-quantize": Exercise(
        "normalize_and_quantize(x, weight)",
        norm_cases,
        rms_norm,
        FP8,
        seen=dequantized,
        properties=(
            lambda call, device: uses_the_format(call, *list(norm_cases(device))[1]),
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
    ),
    "10-label-smoothing": Exercise(
        "smoothed_cross_entropy(logits, targets, smoothing)",
        lambda device: loss_cases(device, 0.0, 0.1, 1.0),
        smoothed_loss,
        {"rtol": 1e-5, "atol": 2e-6},
        hint=which_rows,
    ),
    "10-z-loss": Exercise(
        "cross_entropy_with_z_loss(logits, targets, alpha)",
        lambda device: loss_cases(device, 0.0, 1e-4, 0.1),
        z_loss,
        {"rtol": 1e-4, "atol": 1e-5},
        hint=which_rows,
    ),
    "10-own-maxima": Exercise(
        "losses_of(logits, targets, own)",
        lambda device: loss_cases(device, True, False),
        lambda logits, targets, own: torch.nn.functional.cross_entropy(
            logits, targets, reduction="none"
        ),
        {"rtol": 1e-5, "atol": 2e-6},
    ),
    "11-window": Exercise(
        "window_attention(q, k_pages, v_pages, page_table, lengths, window)",
        lambda device: paged(device, 1, 16, 50, 1000),
        paged_attention,
        ATTENTION,
        least=paged_least,
        hint=which_sequences,
    ),
    "11-int8-pages": Exercise(
        "int8_attention(q, k_pages, v_pages, k_scales, v_scales, page_table, lengths)",
        int8_cases,
        int8_attention,
        ATTENTION,
        least=paged_least,
        hint=which_sequences,
    ),
    "12-zero-points": Exercise(
        "folded_mm(x, packed, scales, zeros)",
        int4_cases,
        int4_product,
        {"rtol": 4e-3, "atol": 0.1},
        multiplied=lambda x, packed, *_: len(x) * 4 * packed.numel(),
    ),
    "12-fp4": Exercise(
        "fp4_mm(x, packed, scales)",
        lambda device: (arguments[:3] for arguments in int4_cases(device)),
        fp4_product,
        {"rtol": 4e-3, "atol": 0.1},
        multiplied=lambda x, packed, _: len(x) * 4 * packed.numel(),
    ),
    "13-min-p": Exercise(
        "sample_min_p(logits, min_p, seed)",
        lambda device: [(torch.randn(3, 781, device=device), 0.1, 3)],
        properties=(min_p_words, same_words),
    ),
    "13-repetition-penalty": Exercise(
        "penalize(logits, tokens, penalty)",
        penalty_of_words_cases,
        penalty_of_words,
        least=lambda arguments, result: size_of(arguments[1], result),
    ),
    "14-delta-rule": Exercise(
        "delta_rule(q, k, v, beta)",
        texts_without_gate,
        without_gate,
        {"rtol": 1e-4, "atol": 1e-4},
        hint=which_tokens,
    ),
    "14-prefix": Exercise(
        "continue_rule(q, k, v, g, beta, state)",
        prefix_cases,
        by_recurrence,
        {"rtol": 1e-4, "atol": 1e-4},
        names=("the output", "the new state"),
    ),
}  # fmt: skip
