"""The exercises: for each task, inputs to try and what is right."""

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
from exercises.compare import FP16, Check, Exercise, size_of
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
from exercises.tasks import TASKS
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

CHECKS = {
    "01-mask": Check(
        padded,
        add_padded,
        large=lambda device: (torch.randn(2**25, device=device), torch.randn(2**24, device=device)),
        pytorch=add_padded,
    ),
    "01-axpy": Check(
        lambda device: ((2.5, x, y) for x, y in vectors(device)),
        lambda a, x, y: a * x + y,
        large=lambda device: (2.5, *torch.randn(2, 2**25, device=device)),
        pytorch=lambda a, x, y: torch.add(y, x, alpha=a),
    ),
    "01-strides": Check(
        lambda device: ((x[::2], y[: len(x[::2])]) for x, y in vectors(device)),
        torch.add,
        large=lambda device: (
            torch.randn(2**26, device=device)[::2],
            torch.randn(2**25, device=device),
        ),
        pytorch=torch.add,
    ),
    "01-grid-stride": Check(
        lambda device: ((x, y, programs) for x, y in vectors(device) for programs in (1, 3)),
        lambda x, y, programs: x + y,
        large=lambda device: (*torch.randn(2, 2**25, device=device), 528),
        pytorch=lambda x, y, programs: x + y,
    ),
    "02-logsumexp": Check(
        lambda device: (*matrices(device), (100 * torch.randn(4, 128, device=device),)),
        lambda x: torch.logsumexp(x, dim=1),
        {"rtol": 1e-5, "atol": 1e-5},
        large=lambda device: (torch.randn(8192, 4096, device=device),),
        pytorch=lambda x: torch.logsumexp(x, dim=1),
    ),
    "02-log-softmax": Check(
        matrices,
        lambda x: torch.log_softmax(x, dim=1),
        {"rtol": 1e-5, "atol": 1e-5},
        large=lambda device: (torch.randn(8192, 4096, device=device),),
        pytorch=lambda x: torch.log_softmax(x, dim=1),
    ),
    "02-causal-softmax": Check(
        lambda device: ((torch.randn(n, n, device=device), 0.125) for n in (1, 5, 100, 129)),
        causal,
        least=lambda arguments, y: size_of(y) + (size_of(arguments[0]) + 4 * len(y)) // 2,
        large=lambda device: (torch.randn(8192, 8192, device=device), 0.125),
        pytorch=causal,
    ),
    "02-softmax-backward": Check(
        lambda device: ((x.softmax(dim=1), torch.randn_like(x)) for (x,) in matrices(device)),
        softmax_backward,
        large=lambda device: torch.randn(2, 8192, 4096, device=device).softmax(dim=2).unbind(),
        pytorch=softmax_backward,
    ),
    "03-transposed": Check(
        lambda device: ((a, b.T.contiguous()) for a, b in products(device)),
        lambda a, w: (a.float() @ w.float().T).half(),
        FP16,
        multiplied=lambda a, w: a.numel() * len(w),
        large=lambda device: torch.randn(2, 4096, 4096, device=device).half().unbind(),
        pytorch=lambda a, w: a @ w.T,
    ),
    "03-linear-layer": Check(
        linear_cases,
        linear,
        FP16,
        multiplied=lambda x, weight, bias, activation: x.numel() * len(weight),
        large=lambda device: (
            torch.randn(4096, 4096, device=device).half(),
            torch.randn(4096, 4096, device=device).half() / 64,
            torch.randn(4096, device=device).half(),
            "relu",
        ),
        pytorch=lambda x, w, b, activation: torch.relu(torch.nn.functional.linear(x, w, b)),
    ),
    "03-batched": Check(
        lambda device: (
            (a.expand(3, -1, -1).contiguous(), b.expand(3, -1, -1).contiguous())
            for a, b in products(device)
        ),
        lambda a, b: torch.bmm(a.float(), b.float()).to(a.dtype),
        FP16,
        multiplied=lambda a, b: a.numel() * b.shape[2],
        large=lambda device: torch.randn(2, 512, 256, 256, device=device).half().unbind(),
        pytorch=torch.bmm,
    ),
    "03-split-k": Check(
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
        large=lambda device: (
            torch.randn(64, 65536, device=device).half() / 64,
            torch.randn(65536, 64, device=device).half(),
            32,
        ),
        pytorch=lambda a, b, parts: a @ b,
    ),
    "03b-waves": Check(
        lambda device: ((n, sms) for sms in (84, 132, 304) for n in (1, sms, sms + 1, 1000)),
        lambda tiles, processors: as_number(filled(tiles, processors)),
        seen=as_number,
    ),
    "04-signs": Check(
        lambda device: ((n, seed) for n in (1, 5, 123, 1024, 4099) for seed in (0, 7, 2**40)),
        random_signs,
        least=lambda arguments, result: size_of(result),
        seen=lambda result: result.cpu() if isinstance(result, torch.Tensor) else result,
        large=lambda device: (2**26, 7),
    ),
    "04-seed-per-row": Check(
        lambda device: [(torch.ones(5, 781, device=device), 0.25, torch.arange(5, device=device))],
        properties=(
            same_rows,
            lambda call, device: keeps_the_share(
                lambda x: call(x, 0.25, torch.arange(len(x), device=device)), device
            ),
        ),
        large=lambda device: (
            torch.randn(8192, 4096, device=device),
            0.5,
            torch.arange(8192, device=device),
        ),
    ),
    "04-strided-input": Check(
        lambda device: [(torch.ones(781, 5, device=device).T, 0.25, 3)],
        properties=(
            layout_does_not_matter,
            lambda call, device: keeps_the_share(lambda x: call(x, 0.25, 3), device),
        ),
        large=lambda device: (torch.randn(8192, 8192, device=device).T, 0.5, 3),
    ),
    "04-sparse-johnson-lindenstrauss": Check(
        lambda device: [(torch.randn(5, 781, device=device), 64, 4, 3)],
        properties=(keeps_distances,),
        large=lambda device: (torch.randn(4096, 4096, device=device), 256, 4, 3),
    ),
    "05-rms": Check(
        lambda device: ((x, torch.randn(x.shape[1], device=device)) for (x,) in matrices(device)),
        lambda x, weight: torch.nn.functional.rms_norm(x, x.shape[1:], weight, 1e-6),
        {"rtol": 1e-5, "atol": 1e-5},
        large=lambda device: (
            torch.randn(8192, 4096, device=device),
            torch.ones(4096, device=device),
        ),
        pytorch=lambda x, weight: torch.nn.functional.rms_norm(x, x.shape[1:], weight, 1e-6),
    ),
    "05-residual": Check(
        lambda device: rows_with_parameters(device, matrices=2),
        in_double(norm_of_sum),
        {"rtol": 1e-4, "atol": 1e-4},
        least=lambda arguments, results: 8 * size_of(arguments[0]) + 5 * size_of(arguments[2]),
        use=results_and_gradients,
        names=(
            "y",
            "the sum",
            *(f"the gradient of {t}" for t in ("x", "residual", "weight", "bias")),
        ),
        large=lambda device: (
            *torch.randn(2, 8192, 4096, device=device),
            *torch.randn(2, 4096, device=device),
        ),
        pytorch=norm_of_sum,
    ),
    "05-group-norm": Check(
        images,
        group_norm,
        {"rtol": 1e-4, "atol": 1e-4},
        large=lambda device: (
            torch.randn(64, 256, 56, 56, device=device),
            32,
            *torch.randn(2, 256, device=device),
        ),
        pytorch=lambda x, groups, weight, bias: torch.nn.functional.group_norm(
            x, groups, weight, bias
        ),
    ),
    "05-dropout": Check(
        lambda device: ((*given, 0.25, 3) for given in rows_with_parameters(device)),
        least=lambda arguments, results: 5 * size_of(arguments[0]) + 5 * size_of(arguments[1]),
        use=results_and_gradients,
        properties=(fits_one_mask, norm_of_ones),
        large=lambda device: (
            torch.randn(8192, 4096, device=device),
            *torch.randn(2, 4096, device=device),
            0.25,
            3,
        ),
    ),
    "05b-column-sums": Check(
        lambda device: (
            (torch.randn(shape, device=device),)
            for shape in ((1, 1), (5, 123), (3, 5000), (1000, 1025), (4097, 781))
        ),
        lambda x: x.double().sum(0).float(),
        {"rtol": 1e-5, "atol": 1e-4},
        properties=(lambda call, device: same_bits(call, torch.randn(1000, 1025, device=device)),),
        large=lambda device: (torch.randn(65536, 4096, device=device),),
        pytorch=lambda x: x.sum(0),
    ),
    "05b-row-variance": Check(
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
        large=lambda device: (torch.randn(8192, 32768, device=device),),
        pytorch=lambda x: x.var(1, correction=0),
    ),
    "06-weighted-mean": Check(
        scores,
        lambda s, v: (torch.softmax(s.double(), 1) @ v.double()).float(),
        {"rtol": 1e-4, "atol": 1e-5},
        large=lambda device: (
            torch.randn(8192, 8192, device=device),
            torch.randn(8192, device=device),
        ),
        pytorch=lambda s, v: torch.softmax(s, 1) @ v,
    ),
    "06-sliding-window": Check(
        window_cases,
        windowed,
        ATTENTION,
        multiplied=lambda q, k, v, window: (
            2 * q.numel() // q.shape[2] * sum(min(i + 1, window) for i in range(q.shape[2]))
        ),
        hint=which_queries,
        properties=(skips_the_past,),
        large=lambda device: (*attention_inputs(device, 16, 16, 8192, 8192, d=64), 512),
    ),
    "06-alibi": Check(
        penalty_cases,
        penalized,
        ATTENTION,
        multiplied=lambda q, k, v, slopes: q.numel() * (q.shape[2] + 1),
        hint=which_queries,
        large=lambda device: (
            *attention_inputs(device, 16, 16, 4096, 4096, d=64),
            torch.ones(16, device=device) / 64,
        ),
    ),
    "06-grouped-heads": Check(
        grouped_cases,
        grouped,
        ATTENTION,
        multiplied=lambda q, k, v, causal: 2 * q.numel() * k.shape[2],
        hint=which_queries,
        properties=(reads_keys_once,),
        large=lambda device: (*attention_inputs(device, 64, 8, 8, 8192, d=64), False),
        pytorch=lambda q, k, v, causal: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, enable_gqa=True
        ),
    ),
    "06-decode": Check(
        decode_cases,
        masked_attention,
        ATTENTION,
        multiplied=lambda q, k, v: 2 * q.numel() * k.shape[2],
        hint=which_queries,
        large=lambda device: attention_inputs(device, 32, 8, 1, 65536, d=64),
        pytorch=lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, enable_gqa=True
        ),
    ),
    "06b-delta": Check(
        outputs,
        lambda o, do: (o.double() * do.double()).sum(-1).float(),
        {"rtol": 1e-5, "atol": 0.1},
        large=lambda device: torch.randn(2, 16, 16, 4096, 64, device=device).half().unbind(),
        pytorch=lambda o, do: (o * do).sum(-1),
    ),
    "06b-scale-gradient": Check(
        lambda device: (
            (*torch.randn(2, *shape, device=device).unbind(), shape[-1] ** -0.5)
            for shape in ((1, 1, 5, 16), (2, 2, 70, 64), (1, 4, 1000, 128))
        ),
        lambda q, dq, scale: ((q.double() * dq.double()).sum() / scale).float(),
        {"rtol": 1e-5, "atol": 0.05},
        properties=(
            lambda call, device: same_bits(
                call, *torch.randn(2, 4, 1000, 128, device=device).unbind(), 0.1
            ),
        ),
        large=lambda device: (*torch.randn(2, 16, 16, 4096, 64, device=device).unbind(), 0.125),
        pytorch=lambda q, dq, scale: (q * dq).sum() / scale,
    ),
    "06c-largest-scores": Check(
        score_factors,
        lambda q, k: (q.double() @ k.double().T).amax(1).float(),
        {"rtol": 1e-5, "atol": 1e-4},
        large=lambda device: torch.randn(2, 16384, 128, device=device).bfloat16().unbind(),
        pytorch=lambda q, k: (q @ k.T).amax(1),
    ),
    "06c-log-sum-exp": Check(
        lambda device: (
            (q, k, scale) for q, k in score_factors(device) for scale in (q.shape[1] ** -0.5, 3.0)
        ),
        lambda q, k, scale: torch.logsumexp(scale * q.double() @ k.double().T, 1).float(),
        {"rtol": 1e-5, "atol": 1e-4},
        large=lambda device: (*torch.randn(2, 16384, 128, device=device).bfloat16().unbind(), 0.1),
        pytorch=lambda q, k, scale: torch.logsumexp(scale * (q @ k.T), 1),
    ),
    "07-tanh": Check(
        lambda device: (
            (x,) for x in (torch.linspace(-100, 100, 21, device=device), *next(vectors(device)))
        ),
        torch.tanh,
        large=lambda device: (torch.randn(2**26, device=device),),
        pytorch=torch.tanh,
    ),
    "07-polynomial": Check(
        polynomials,
        by_polynomial,
        {"rtol": 1e-5, "atol": 0.0},
        large=lambda device: (
            torch.linspace(-80, 80, 2**25, device=device),
            [1 / 24, 1 / 6, 0.5, 1.0, 1.0],
        ),
        pytorch=lambda x, terms: torch.exp(x),
    ),
    "07-gelu-backward": Check(
        lambda device: (
            (3 * torch.randn(5, n, device=device), way)
            for n in (1, 781)
            for way in ("none", "tanh")
        ),
        lambda x, way: torch.nn.functional.gelu(x.double(), approximate=way).float(),
        {"rtol": 1e-5, "atol": 2e-6},
        properties=(gelu_has_gradients,),
        large=lambda device: (torch.randn(2**25, device=device), "tanh"),
        pytorch=lambda x, way: torch.nn.functional.gelu(x, approximate=way),
    ),
    "08-sums": Check(
        expert_cases,
        expert_sums,
        {"rtol": 1e-5, "atol": 1e-5},
        large=lambda device: (
            torch.randn(65536, 1024, device=device),
            torch.arange(512, 65537, 512, device=device).int(),
        ),
    ),
    "08-backward": Check(
        gradient_cases,
        grouped_gradient,
        FP16,
        multiplied=lambda x, g, offsets: x.numel() * g.shape[1],
        hint=which_experts,
    ),
    "08-gate": Check(
        gate_cases,
        gated_experts,
        FP16,
        least=gate_least,
        multiplied=lambda x, w_gate, w_up, offsets: 2 * x.numel() * w_up.shape[2],
        hint=whose_rows,
    ),
    "09-blocks": Check(
        block_cases,
        scaled_back,
        large=lambda device: next(block_cases(device, [(8192, 8192)])),
        pytorch=scaled_back,
    ),
    "09-fused-quantize": Check(
        norm_cases,
        rms_norm,
        FP8,
        seen=dequantized,
        properties=(lambda call, device: uses_the_format(call, *list(norm_cases(device))[1]),),
        large=lambda device: (
            torch.randn(8192, 4096, device=device),
            torch.randn(4096, device=device),
        ),
    ),
    "09-per-tensor": Check(
        lambda device: (
            (torch.randn(shape, device=device),) for shape in ((1,), (123, 457), (5, 4096))
        ),
        lambda x: x,
        FP8,
        least=lambda arguments, result: 2 * size_of(*arguments) + size_of(result),
        seen=dequantized,
        properties=(
            lambda call, device: uses_the_format(call, torch.randn(7, 1000, device=device)),
            repeats_itself,
        ),
        large=lambda device: (torch.randn(8192, 4096, device=device),),
    ),
    "09b-row-sums": Check(
        lambda device: (
            (torch.randn(shape, device=device).bfloat16(),)
            for shape in ((1, 8), (64, 64), (100, 1000), (5000, 4096))
        ),
        lambda x: x.double().sum(1).float(),
        {"rtol": 1e-5, "atol": 1e-3},
        large=lambda device: (torch.randn(32768, 8192, device=device).bfloat16(),),
        pytorch=lambda x: x.sum(1, dtype=torch.float32),
    ),
    "09b-product": Check(
        lambda device: (
            (
                torch.randn(m, k, device=device).bfloat16(),
                torch.randn(n, k, device=device).bfloat16(),
            )
            for m, n, k in ((8, 8, 8), (200, 136, 320), (1000, 2048, 4096))
        ),
        lambda a, w: (a.double() @ w.double().T).bfloat16(),
        {"rtol": 2**-7, "atol": 2**-4},
        large=lambda device: torch.randn(2, 4096, 4096, device=device).bfloat16().unbind(),
        pytorch=lambda a, w: a @ w.T,
    ),
    "10-probability": Check(
        target_cases,
        probability_of,
        {"rtol": 1e-5, "atol": 1e-6},
        large=lambda device: (
            torch.randn(4096, 32768, device=device),
            torch.randint(0, 32768, (4096,), device=device),
        ),
        pytorch=probability_of,
    ),
    "10-label-smoothing": Check(
        lambda device: loss_cases(device, 0.0, 0.1, 1.0),
        smoothed_loss,
        {"rtol": 1e-5, "atol": 2e-6},
        hint=which_rows,
        large=lambda device: (
            torch.randn(4096, 32000, device=device),
            torch.randint(0, 32000, (4096,), device=device),
            0.1,
        ),
    ),
    "10-z-loss": Check(
        lambda device: loss_cases(device, 0.0, 1e-4, 0.1),
        z_loss,
        {"rtol": 1e-4, "atol": 1e-5},
        hint=which_rows,
        large=lambda device: (
            torch.randn(4096, 32000, device=device),
            torch.randint(0, 32000, (4096,), device=device),
            1e-4,
        ),
    ),
    "10-own-maxima": Check(
        lambda device: loss_cases(device, True, False),
        lambda logits, targets, own: torch.nn.functional.cross_entropy(
            logits, targets, reduction="none"
        ),
        {"rtol": 1e-5, "atol": 2e-6},
        large=lambda device: (
            torch.randn(4096, 32000, device=device),
            torch.randint(0, 32000, (4096,), device=device),
            True,
        ),
        pytorch=lambda logits, targets, own: torch.nn.functional.cross_entropy(
            logits, targets, reduction="none"
        ),
    ),
    "10b-bias": Check(
        lambda device: last_layers(
            device, (7, 5, 781, 3), (64, 32, 1000, 64), (9, 8, 4097, 4), bias=True
        ),
        loss_of_last_layer,
        names=("the loss", *(f"the gradient of {name}" for name in ("x", "weight", "bias"))),
        tolerance=of_last_layer,
    ),
    "10b-fp32-sum": Check(
        lambda device: last_layers(device, (7, 5, 781, 3), (60, 24, 333, 13)),
        lambda x, weight, targets, piece: loss_of_last_layer(x, weight, None, targets, piece),
        names=("the loss", "the gradient of x", "the gradient of weight"),
        tolerance=of_last_layer,
    ),
    "11-last-key": Check(
        page_cases,
        newest_keys,
        least=lambda arguments, keys: 2 * size_of(keys) + 8 * len(keys),
        pytorch=newest_keys,
    ),
    "11-window": Check(
        lambda device: paged(device, 1, 16, 50, 1000),
        paged_attention,
        ATTENTION,
        least=paged_least,
        hint=which_sequences,
    ),
    "11-int8-pages": Check(
        int8_cases,
        int8_attention,
        ATTENTION,
        least=paged_least,
        hint=which_sequences,
    ),
    "12-unpack": Check(
        word_cases,
        four_integers,
        large=lambda device: next(word_cases(device, [(8192, 2048)])),
        pytorch=four_integers,
    ),
    "12-zero-points": Check(
        int4_cases,
        int4_product,
        {"rtol": 4e-3, "atol": 0.1},
        multiplied=lambda x, packed, *_: len(x) * 4 * packed.numel(),
    ),
    "12-fp4": Check(
        lambda device: (arguments[:3] for arguments in int4_cases(device)),
        fp4_product,
        {"rtol": 4e-3, "atol": 0.1},
        multiplied=lambda x, packed, _: len(x) * 4 * packed.numel(),
    ),
    "13-share": Check(
        threshold_cases,
        share_from,
        {"rtol": 1e-5, "atol": 1e-6},
        large=lambda device: next(threshold_cases(device, [(1024, 32768)])),
        pytorch=share_from,
    ),
    "13-min-p": Check(
        lambda device: [(torch.randn(3, 781, device=device), 0.1, 3)],
        properties=(min_p_words, same_words),
        large=lambda device: (torch.randn(128, 128000, device=device), 0.1, 3),
    ),
    "13-repetition-penalty": Check(
        penalty_of_words_cases,
        penalty_of_words,
        least=lambda arguments, result: size_of(arguments[1], result),
        large=lambda device: (
            torch.randn(128, 128000, device=device),
            torch.randint(0, 128000, (128, 4096), device=device),
            1.3,
        ),
    ),
    "14-delta-rule": Check(
        texts_without_gate,
        without_gate,
        {"rtol": 1e-4, "atol": 1e-4},
        hint=which_tokens,
    ),
    "14-prefix": Check(
        prefix_cases,
        by_recurrence,
        {"rtol": 1e-4, "atol": 1e-4},
        names=("the output", "the new state"),
    ),
    "14b-states": Check(
        segment_cases,
        states_after,
        {"rtol": 1e-4, "atol": 1e-5},
        hint=which_segment,
        multiplied=lambda maps, ends: maps.numel() * maps.shape[3],
    ),
    "14b-recurrence": Check(
        recurrence_cases,
        by_numbers,
        {"rtol": 1e-5, "atol": 1e-5},
    ),
    "15-decay": Check(
        step_cases,
        decayed,
        names=("the weights", "the first moment", "the second moment"),
        large=lambda device: next(step_cases(device, (2**24,))),
    ),
    "15-cache": Check(
        append_cases,
        appended,
        least=lambda arguments, pages: 4 * size_of(arguments[0]) + 8 * len(arguments[5]),
        use=in_copies,
        names=("k_pages", "v_pages"),
    ),
}
EXERCISES = {name: Exercise(task, CHECKS[name]) for name, task in TASKS.items()}
