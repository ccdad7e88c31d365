"""Small models of operators, by hand and at random, and meshes for them."""

from dataclasses import replace

import numpy as np

from stagecut.planner.core.cluster import DeviceType, Link
from stagecut.planner.core.job import standard_optimizer
from stagecut.planner.core.model import Layer, ModelProfile
from stagecut.planner.core.operators.operators import (
    HIDDEN,
    INPUT,
    OUTPUT,
    SAMPLE,
    TOKEN,
    Operator,
    Port,
    Split,
    Tensor,
    Weight,
)
from stagecut.planner.core.precision import Precision
from stagecut.planner.sharding.mesh import Mesh, MeshAxis
from stagecut.planner.sharding_search.case import ShardingCase

FABRIC = Link(bandwidth_bytes_per_s=1e10, latency_s=1e-6)
NETWORK = Link(bandwidth_bytes_per_s=1e9, latency_s=1e-5)


def linear(
    name: str,
    source: str,
    made: str,
    *,
    inner: str,
    outer: str,
    width: int,
    num_bytes: float = 1e4,
    weight_bytes: float = 1e6,
    flops: float = 1e9,
    saved: bool = False,
) -> Operator:
    """A product with a weight: samples, the dimension that it sums over, that of its output."""
    return Operator(
        name=name,
        kind="linear",
        inputs=(Port(tensor=source, dims=(SAMPLE, inner)),),
        outputs=(Tensor(name=made, dims=(SAMPLE, outer), num_bytes=num_bytes, saved=saved),),
        weights=(Weight(name=name, dims=(outer, inner), num_bytes=weight_bytes),),
        splits=(Split(dim=SAMPLE), Split(dim=inner, size=width), Split(dim=outer, size=width)),
        forward_flops=flops,
    )


def pointwise(name: str, *sources: str, made: str, dim: str, width: int, num_bytes: float = 1e4) -> Operator:
    """An elementwise operator that keeps its output for the backward."""
    return Operator(
        name=name,
        kind="elementwise",
        inputs=tuple(Port(tensor=each, dims=(SAMPLE, dim)) for each in sources),
        outputs=(Tensor(name=made, dims=(SAMPLE, dim), num_bytes=num_bytes, saved=True),),
        splits=(Split(dim=SAMPLE), Split(dim=dim, size=width)),
        working_bytes=num_bytes,
    )


def layer_of(name: str, *operators: Operator) -> Layer:
    """A layer whose own figures are those of its operators together."""
    tensors = [tensor for operator in operators for tensor in operator.outputs]
    return Layer(
        name=name,
        params_bytes=sum(operator.weight_bytes for operator in operators),
        forward_flops=sum(operator.forward_flops for operator in operators),
        saved_bytes=sum(tensor.num_bytes for tensor in tensors if tensor.saved),
        output_bytes=next(tensor.num_bytes for tensor in tensors if tensor.name == OUTPUT),
        operators=operators,
    )


def perceptron(name: str, *, width: int = 16, num_bytes: float = 1e4, weight_bytes: float = 1e6) -> Layer:
    """A product, an activation, a product, a residual."""
    sizes = {"width": width, "num_bytes": num_bytes, "weight_bytes": weight_bytes}
    return layer_of(
        name,
        linear("up", INPUT, "up", inner=HIDDEN, outer="width", **sizes),
        pointwise("activation", "up", made="active", dim="width", width=width, num_bytes=num_bytes),
        linear("down", "active", "down", inner="width", outer=HIDDEN, **sizes),
        pointwise("residual", INPUT, "down", made=OUTPUT, dim=HIDDEN, width=width, num_bytes=num_bytes),
    )


def attention(name: str, *, heads: int = 8, tokens: int = 64, hidden: int = 64, num_bytes: float = 1e5) -> Layer:
    """Norm, queries with keys and values, attention, projection, residual."""
    stream = (SAMPLE, TOKEN, HIDDEN)
    by_head = (SAMPLE, TOKEN, "head")
    keys = (SAMPLE, "key token", "head")
    sample, token = Split(dim=SAMPLE), Split(dim=TOKEN, size=tokens)
    head, inner = Split(dim="head", size=heads), Split(dim=HIDDEN, size=hidden)
    return layer_of(
        name,
        Operator(
            name="norm",
            kind="norm",
            inputs=(Port(tensor=INPUT, dims=stream),),
            outputs=(Tensor(name="normal", dims=stream, num_bytes=num_bytes, saved=True),),
            weights=(Weight(name="norm", dims=(HIDDEN,), num_bytes=100.0),),
            splits=(sample, token),
        ),
        Operator(
            name="qkv",
            kind="linear",
            inputs=(Port(tensor="normal", dims=stream),),
            outputs=tuple(Tensor(name=each, dims=by_head, num_bytes=num_bytes, saved=True) for each in "qkv"),
            weights=(Weight(name="qkv", dims=("head", HIDDEN), num_bytes=3e6),),
            splits=(sample, token, head, inner),
            forward_flops=3e9,
        ),
        Operator(
            name="core",
            kind="attention",
            inputs=(Port(tensor="q", dims=by_head), Port(tensor="k", dims=keys), Port(tensor="v", dims=keys)),
            outputs=(Tensor(name="mixed", dims=by_head, num_bytes=num_bytes, saved=True),),
            splits=(sample, token, head),
            forward_flops=1e9,
        ),
        Operator(
            name="project",
            kind="linear",
            inputs=(Port(tensor="mixed", dims=by_head),),
            outputs=(Tensor(name="projected", dims=stream, num_bytes=num_bytes),),
            weights=(Weight(name="project", dims=(HIDDEN, "head"), num_bytes=1e6),),
            splits=(sample, token, head, inner),
            forward_flops=1e9,
        ),
        Operator(
            name="residual",
            kind="elementwise",
            inputs=(Port(tensor=INPUT, dims=stream), Port(tensor="projected", dims=stream)),
            outputs=(Tensor(name=OUTPUT, dims=stream, num_bytes=num_bytes),),
            splits=(sample, token, inner),
        ),
    )


def model_of(*layers: Layer) -> ModelProfile:
    """A chain."""
    return ModelProfile(name="model", layers=layers)


def mesh_of(*sizes: int) -> Mesh:
    """The first of several axes runs on the network, the others on a fabric."""
    links = [NETWORK if index == 0 and len(sizes) > 1 else FABRIC for index in range(len(sizes))]
    return Mesh(axes=tuple(MeshAxis(size=size, link=link) for size, link in zip(sizes, links, strict=True)))


def case_of(
    model: ModelProfile,
    *sizes: int,
    memory_bytes: float = float("inf"),
    micro_batch: int = 8,
    num_microbatches: int = 1,
) -> ShardingCase:
    """A case on devices of 1 TFLOP/s."""
    device = DeviceType(
        name="device",
        peak_flops_per_s=((Precision.FP16, 1e12),),
        memory_bytes=memory_bytes,
        memory_bandwidth_bytes_per_s=1e11,
        launch_s=1e-5,
    )
    return ShardingCase(
        model=model,
        device=device,
        mesh=mesh_of(*sizes),
        optimizer=standard_optimizer("adamw", Precision.FP16),
        micro_batch=micro_batch,
        num_microbatches=num_microbatches,
    )


def random_model(random: np.random.Generator, *, most_layers: int = 2) -> ModelProfile:
    """Layers of one to three products and elementwise operators, with tensors and weights of all sizes.

    Where there may be several, the last one often comes again, and again.
    """
    layers = [_random_layer(random, f"layer-{n}") for n in range(random.integers(1, most_layers + 1))]
    again = int(random.integers(0, 3)) if most_layers > 1 else 0
    return model_of(*layers, *(replace(layers[-1], name=f"again-{n}") for n in range(again)))


def _random_layer(random: np.random.Generator, name: str) -> Layer:
    operators: list[Operator] = []
    made, dim = INPUT, HIDDEN
    for number in range(count := int(random.integers(1, 4))):
        target = OUTPUT if number == count - 1 else f"t{number}"
        num_bytes = float(10 ** random.uniform(3, 7))
        if random.random() < 0.5:
            after = HIDDEN if target == OUTPUT else f"d{number}"
            if after == dim:
                after = "other"
            operators.append(
                linear(
                    f"o{number}",
                    made,
                    target,
                    inner=dim,
                    outer=after,
                    width=4,
                    num_bytes=num_bytes,
                    weight_bytes=float(10 ** random.uniform(3, 8)),
                    saved=bool(random.random() < 0.5),
                )
            )
            dim = after
        else:
            sources = (made, INPUT) if number and random.random() < 0.5 else (made,)
            operators.append(pointwise(f"o{number}", *sources, made=target, dim=dim, width=4, num_bytes=num_bytes))
        made = target
    return layer_of(name, *operators)
