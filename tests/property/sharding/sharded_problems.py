"""Random problems so small that all shardings of their stages can be enumerated."""

from hypothesis import strategies as st

from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.job import Job, Optimizer, Recompute
from stagecut.planner.core.model import Layer, ModelProfile
from stagecut.planner.core.operators.operators import INPUT, OUTPUT, SAMPLE, Operator, Port, Split, Tensor, Weight
from stagecut.planner.core.operators.parallelism import Parallelism
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem

STREAM = (SAMPLE, "hidden")
SIZES = (0.0, 1.0, 2.0, 5.0)


@st.composite
def _tensors(draw, name, dims):
    return Tensor(
        name=name, dims=dims, num_bytes=draw(st.sampled_from(SIZES)), saved=name != OUTPUT and draw(st.booleans())
    )


@st.composite
def _products(draw, name, taken, made, *, inner, outer):
    """A product with a matrix, which sums over `inner`."""
    return Operator(
        name=name,
        kind="linear",
        inputs=(Port(tensor=taken, dims=(SAMPLE, inner)),),
        outputs=(draw(_tensors(made, (SAMPLE, outer))),),
        weights=(Weight(name=name, dims=(outer, inner), num_bytes=draw(st.sampled_from((2.0, 4.0, 20.0)))),),
        splits=(Split(dim=SAMPLE), Split(dim=inner, size=4), Split(dim=outer, size=2)),
        forward_flops=draw(st.sampled_from(SIZES)),
        working_bytes=draw(st.sampled_from(SIZES)),
        passes_partial=draw(st.booleans()),
    )


@st.composite
def _residuals(draw, taken):
    return Operator(
        name="residual",
        kind="elementwise",
        inputs=(Port(tensor=INPUT, dims=STREAM), Port(tensor=taken, dims=STREAM)),
        outputs=(draw(_tensors(OUTPUT, STREAM)),),
        splits=(Split(dim=SAMPLE), Split(dim="hidden", size=4)),
    )


@st.composite
def _operators(draw):
    """A product; two of them; a product and a residual; or none that is known."""
    kind = draw(st.sampled_from(("product", "products", "residual", "unknown")))
    if kind == "product":
        return (draw(_products("up", INPUT, OUTPUT, inner="hidden", outer="width")),)
    if kind == "products":
        up = draw(_products("up", INPUT, "wide", inner="hidden", outer="width"))
        return (up, draw(_products("down", "wide", OUTPUT, inner="width", outer="hidden")))
    if kind == "residual":
        return (draw(_products("mix", INPUT, "mixed", inner="in", outer="hidden")), draw(_residuals("mixed")))
    return ()


@st.composite
def _layers(draw, name):
    operators = draw(_operators())
    outputs = [tensor for operator in operators for tensor in operator.outputs]
    output_bytes = [tensor.num_bytes for tensor in outputs if tensor.name == OUTPUT] or [draw(st.sampled_from(SIZES))]
    saved_bytes = sum(tensor.num_bytes for tensor in outputs if tensor.saved)
    return Layer(
        name=name,
        params_bytes=sum(operator.weight_bytes for operator in operators) or draw(st.sampled_from(SIZES)),
        forward_flops=sum(operator.forward_flops for operator in operators) or draw(st.sampled_from(SIZES)),
        saved_bytes=saved_bytes + draw(st.sampled_from((0.0, 1.0))),
        output_bytes=output_bytes[0],
        working_bytes=draw(st.sampled_from(SIZES)),
        operators=operators,
    )


@st.composite
def sharded_problems(draw, *, num_devices=2, max_layers=2, kinds=tuple(Parallelism)):
    """Chains on hosts of a few devices."""
    device = DeviceType(
        name="device",
        peak_flops_per_s=((Precision.FP16, 1.0),),
        memory_bytes=draw(st.sampled_from((float("inf"), 400.0, 150.0))),
        memory_bandwidth_bytes_per_s=draw(st.sampled_from((2.0, 20.0))),
        efficiency=1.0,
        launch_s=draw(st.sampled_from((0.0, 0.5))),
    )
    fabric = Link(bandwidth_bytes_per_s=draw(st.sampled_from((0.5, 4.0))), latency_s=draw(st.sampled_from((0.0, 0.3))))
    island = Island(device_type="device", count=num_devices, fabric=fabric, shared=draw(st.booleans()))
    server = Server(
        name="server",
        count=draw(st.integers(1, 2)),
        islands=(island,),
        nic=Link(bandwidth_bytes_per_s=2.0, latency_s=0.1),
    )
    job = Job(
        global_batch=4,
        micro_batches=draw(st.sampled_from(((2,), (4,), (1, 4)))),
        optimizer=Optimizer(
            name="own", weight_bytes=2.0, gradient_bytes=draw(st.sampled_from((2.0, 4.0))), state_bytes=4.0
        ),
        recompute=draw(st.sampled_from(Recompute)),
        zero1=draw(st.booleans()),
        sharding=kinds,
    )
    layers = tuple(draw(_layers(f"layer{index}")) for index in range(draw(st.integers(1, max_layers))))
    model = ModelProfile(name="model", layers=layers)
    return Problem(model=model, cluster=Cluster(name="cluster", device_types=(device,), servers=(server,)), job=job)
