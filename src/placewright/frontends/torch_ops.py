"""torch's operators: what sort of work each is and how much. Overloads and in-place forms count as one type."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from placewright.frontends.flops import (
    Shape,
    Work,
    attention_work,
    conv_work,
    einsum_work,
    elements,
    kind_work,
    matmul_work,
    pool_work,
    recurrent_work,
    transposed_conv_work,
    unknown_work,
)


class Call(NamedTuple):
    """One call: its arguments by the names of the operator's schema, and shapes of tensors by argument."""

    arguments: dict[str, Any]
    shapes: dict[str, Shape]  # tensors that are arguments themselves
    inputs: list[Shape]  # all tensors, in order
    outputs: list[Shape]


_KIND_TYPES = {
    "elementwise": """
        abs absolute acos acosh add addcdiv addcmul alpha_dropout asin asinh atan atan2 atanh bernoulli bitwise_and
        bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bucketize ceil celu clamp
        clamp_max clamp_min clip copysign cos cosh cumprod cumsum deg2rad div divide dropout elu elu_backward eq
        equal erf erfc erfinv exp exp2 expm1 feature_dropout floor floor_divide fmod frac ge greater greater_equal
        gt hardshrink hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward
        heaviside hypot isfinite isinf isnan le leaky_relu leaky_relu_backward lerp less less_equal lgamma log log10
        log1p log2 log_sigmoid log_sigmoid_forward log_sigmoid_backward logaddexp logical_and logical_not logical_or
        logical_xor logit lt masked_fill maximum minimum mish mse_loss mse_loss_backward mul multiply nan_to_num
        native_dropout native_dropout_backward ne neg negative one_hot pow prelu _prelu_kernel
        _prelu_kernel_backward rad2deg reciprocal relu relu6 remainder round rsqrt rsub selu sgn sigmoid
        sigmoid_backward sign sin sinh smooth_l1_loss softplus softplus_backward softshrink sqrt square sub subtract
        tan tanh tanh_backward threshold threshold_backward trunc true_divide where xlogy masked_scatter""",
    "gelu": "gelu gelu_backward",
    "silu": "silu silu_backward glu glu_backward",
    "softmax": """
        softmax _softmax _safe_softmax log_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data""",
    "batch_norm": "_native_batch_norm_legit_no_training",
    "affine_norm": """
        layer_norm native_layer_norm native_layer_norm_backward group_norm native_group_norm
        native_group_norm_backward instance_norm _native_batch_norm_legit _native_batch_norm_legit_functional
        native_batch_norm native_batch_norm_backward batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward""",
    "rms_norm": "rms_norm _fused_rms_norm _fused_rms_norm_backward",
    "reduce": """
        all amax amin any aminmax argmax argmin argsort count_nonzero cross_entropy_loss linalg_vector_norm
        logsumexp max mean median min mode nansum nll_loss nll_loss_forward nll_loss_backward nll_loss2d_forward
        nll_loss2d_backward nonzero norm prod sort std std_mean sum topk unique var var_mean kthvalue searchsorted""",
    "global_pool": """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d
        _adaptive_avg_pool2d_backward adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool2d_backward""",
    "embedding": """
        embedding gather index index_select take take_along_dim index_put _unsafe_index _unsafe_index_put index_copy
        index_fill scatter scatter_reduce embedding_bag _embedding_bag""",
    "scatter_add": "embedding_dense_backward index_add scatter_add",
    "move": """
        _to_copy to cat channel_shuffle clone concat concatenate constant_pad_nd contiguous copy diag_embed
        expand_copy fill flip full_like grid_sampler_2d im2col col2im masked_select narrow_copy new_empty new_full
        new_ones new_zeros ones_like pad pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d repeat
        repeat_interleave replication_pad1d replication_pad2d roll rot90 select_backward select_scatter
        slice_backward slice_scatter stack tile tril triu unfold upsample_bicubic2d upsample_bilinear2d
        upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest2d_backward
        upsample_bilinear2d_backward zero zeros_like empty_like type_as float half bfloat16 double int long bool""",
    "free": """
        alias as_strided chunk detach detach_copy diagonal dropout_eval expand expand_as flatten lift_fresh
        lift_fresh_copy movedim narrow numpy_T permute real reshape reshape_as select slice split split_with_sizes
        squeeze swapaxes swapdims t tensor_split transpose unbind unflatten unsqueeze unsafe_split unsafe_chunk view
        view_as _unsafe_view _reshape_alias matrix_H mT _assert_async _assert_scalar _assert_tensor_metadata
        sym_constrain_range_for_size sym_constrain_range placeholder hsplit vsplit dsplit imag view_as_real
        view_as_complex""",
    "constant": "arange eye full linspace logspace ones scalar_tensor zeros empty tensor _tensor_constant",
    "shape": "sym_size sym_numel sym_stride sym_storage_offset",
}
KIND_OF_TYPE = {t: kind for kind, types in _KIND_TYPES.items() for t in types.split()}
SOURCES = {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "uniform", "normal", "multinomial"}
CONTROL = {"cond", "while_loop", "scan", "map_impl", "map", "associative_scan"}
SCALAR_NAMESPACES = ("_operator", "operator", "math", "builtins", "torch.sym", "torch.utils._sympy")


def short_type(target: str) -> str:
    """The operator's name without namespace, overload and the mark of an in-place form.

    >>> short_type("aten.add_.Tensor"), short_type("aten._softmax.default")
    ('add', '_softmax')
    """
    parts = target.split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    return name.rstrip("_") or name


def torch_work(target: str, call: Call) -> Work:
    """Work of one call; control flow is the caller's."""
    namespace, name = target.split(".")[0], short_type(target)
    if namespace != "aten":
        return unknown_work(call.outputs)
    if name in _SPECIAL:
        return _SPECIAL[name](call)
    kind = "elementwise" if name in SOURCES else KIND_OF_TYPE.get(name)
    if name == "dropout" and call.arguments.get("train") is False:
        kind = "free"
    return kind_work(kind, call.inputs, call.outputs) if kind is not None else unknown_work(call.outputs)


def _product(call: Call) -> Work:
    return matmul_work(call.outputs[0], call.inputs[0][-1])


def _addmm(call: Call) -> Work:
    first = call.shapes.get("mat1", call.shapes.get("batch1", ()))
    return matmul_work(call.outputs[0], first[-1], bias=True)


def _linear(call: Call) -> Work:
    return matmul_work(call.outputs[0], call.shapes["weight"][-1], bias="bias" in call.shapes)


def _conv(call: Call) -> Work:
    weight, groups, bias = call.shapes["weight"], int(call.arguments.get("groups", 1)), "bias" in call.shapes
    if call.arguments.get("transposed"):
        return transposed_conv_work(call.shapes["input"], call.outputs[0], weight[2:], weight[1], groups, bias)
    return conv_work(call.outputs[0], weight[2:], weight[1], groups, bias)


def _conv_transpose(call: Call) -> Work:
    weight, groups, bias = call.shapes["weight"], int(call.arguments.get("groups", 1)), "bias" in call.shapes
    return transposed_conv_work(call.shapes["input"], call.outputs[0], weight[2:], weight[1], groups, bias)


def _conv_backward(call: Call) -> Work:
    """One convolution's worth of work for each of the gradients of input and weight."""
    weight, groups = call.shapes["weight"], int(call.arguments.get("groups", 1))
    gradient, wanted = call.shapes["grad_output"], call.arguments.get("output_mask", [True, True, True])
    if call.arguments.get("transposed"):
        forward = transposed_conv_work(call.shapes["input"], gradient, weight[2:], weight[1], groups)
    else:
        forward = conv_work(gradient, weight[2:], weight[1], groups)
    times = sum(map(bool, wanted[:2]))
    return forward._replace(flops=forward.flops * times + elements(gradient) * bool(wanted[2]))


def _batch_norm(call: Call) -> Work:
    return kind_work("affine_norm" if call.arguments.get("training") else "batch_norm", call.inputs, call.outputs)


def _pool(call: Call) -> Work:
    kernel = call.arguments.get("kernel_size", [1])
    # A single size stands for every spatial dimension; (batch, channels) come before them.
    sizes = list(kernel) * (max(1, len(call.inputs[0]) - 2) if len(kernel) == 1 else 1)
    return pool_work(call.outputs[0], sizes)


def _attention(call: Call) -> Work:
    query, key, value = (call.shapes[k] for k in ("query", "key", "value"))
    return attention_work(query, key, value)


def _attention_backward(call: Call) -> Work:
    """Scores again, and four products for the gradients: two and a half times the forward work."""
    forward = _attention(call)
    return forward._replace(flops=2.5 * forward.flops)


def _recurrent(gates: int) -> Callable[[Call], Work]:
    def work(call: Call) -> Work:
        input_ = call.shapes["input"]
        rows, total = math.prod(input_[:-1]), 0.0
        weights = [s for s in call.inputs if len(s) == 2 and s[0] % gates == 0]
        # Weights come as (input, hidden) pairs per layer and direction; hidden ones are gates * H by H.
        for w_input, w_hidden in zip(weights[::2], weights[1::2], strict=False):
            total += recurrent_work(gates, rows, w_input[1], w_hidden[1]).flops
        return Work("recurrent", total)

    return work


def _einsum(call: Call) -> Work:
    return einsum_work(str(call.arguments.get("equation", "")), call.inputs, call.outputs[0])


_SPECIAL: dict[str, Callable[[Call], Work]] = {
    **dict.fromkeys(("mm", "bmm", "matmul", "dot", "mv", "_int_mm", "_scaled_mm"), _product),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm", "addmv"), _addmm),
    "linear": _linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution", "_convolution"), _conv),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _conv_transpose),
    "convolution_backward": _conv_backward,
    "batch_norm": _batch_norm,
    **dict.fromkeys(
        ("avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
         "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d_backward"),
        _pool,
    ),
    **dict.fromkeys(
        ("scaled_dot_product_attention", "_scaled_dot_product_flash_attention",
         "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention_for_cpu",
         "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_attention_math"),
        _attention,
    ),
    **dict.fromkeys(
        ("_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_efficient_attention_backward",
         "_scaled_dot_product_flash_attention_for_cpu_backward", "_scaled_dot_product_cudnn_attention_backward"),
        _attention_backward,
    ),
    "lstm": _recurrent(4),
    "gru": _recurrent(3),
    "rnn_tanh": _recurrent(1),
    "rnn_relu": _recurrent(1),
    "lstm_cell": _recurrent(4),
    "gru_cell": _recurrent(3),
    "einsum": _einsum,
}  # fmt: skip
