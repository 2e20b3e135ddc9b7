"""A CPU's products in fp32 are fp32, and memory that a step frees is there for the next one."""

import resource
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model import device


@pytest.fixture(autouse=True)
def product_precision():
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def test_fp32_is_fp32_whichever_library_multiplies():
    device.open_device("cpu", "fp32")
    left, right = torch.randn(300, 400), torch.randn(400, 200)
    exact = left.double() @ right.double()
    assert float((left @ right - exact).norm() / exact.norm()) < 1e-6


def test_where_the_fast_library_would_round_fp32_takes_the_other(monkeypatch):
    monkeypatch.setattr(device, "MAX_FP32_ERROR", 0.0)
    device.open_device("cpu", "fp32")
    assert torch.get_float32_matmul_precision() == "highest"
    device.open_device("cpu", "auto")
    assert torch.get_float32_matmul_precision() == "medium"


def test_a_large_block_is_not_given_back_to_the_system():
    device.open_device("cpu", "fp32")

    def count_new_pages() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.empty(16_000_000).fill_(1.0)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    assert [count_new_pages() for _ in range(6)][-1] < 2000  # of 15,625


@pytest.mark.parametrize(
    ("vendor", "amx", "avx512", "is_fast"),
    [
        ("GenuineIntel", True, True, True),
        ("GenuineIntel", False, True, False),  # AMX is hidden: 1.8 times as long as fp32
        ("AuthenticAMD", False, True, True),
        ("AuthenticAMD", False, False, False),
        ("", False, False, False),
    ],
)
def test_auto_takes_bf16_where_the_cpu_is_one_that_is_faster_with_it(
    monkeypatch, tmp_path, vendor, amx, avx512, is_fast
):
    cpu_info = tmp_path / "cpuinfo"
    if vendor:
        flags = " ".join(["fpu", *["amx_bf16"] * amx, *["avx512_bf16"] * avx512])
        cpu_info.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: {flags}\n\n")
    monkeypatch.setattr(device, "CPU_INFO", cpu_info)
    device.has_fast_bf16_products.cache_clear()
    try:
        assert device.open_device("cpu", "auto").bf16 == is_fast
        assert device.open_device("cpu", "bf16").bf16
    finally:
        device.has_fast_bf16_products.cache_clear()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["auto", "cpu", "cuda"])
def test_where_attention_computes_documents_alone_is_known_before_a_device_is_open(kind, precision):
    if kind == "cuda" and not torch.cuda.is_available():
        assert device.expect_document_attention(kind, "auto")
        assert not device.expect_document_attention(kind, "fp32")
        return
    opened = device.open_device(kind, precision)
    assert device.expect_document_attention(kind, precision) == opened.has_document_attention


@pytest.fixture
def serve_runtime(monkeypatch):
    """Put a torch_xla here that is process `index` of `count`, with four cores each, and return
    what torch.distributed is asked for.
    """

    def serve(index: int, count: int) -> list[tuple]:
        joined: list[tuple] = []
        runtime = SimpleNamespace(
            process_index=lambda: index,
            process_count=lambda: count,
            use_spmd=lambda: None,
            global_runtime_device_count=lambda: 4 * count,
        )
        spmd = SimpleNamespace(Mesh=lambda devices, shape, names: (shape, names))
        known = {
            "torch_xla": {"device": lambda: torch.device("cpu"), "runtime": runtime},
            "torch_xla.runtime": vars(runtime),
            "torch_xla.distributed": {"spmd": spmd},
            "torch_xla.distributed.spmd": vars(spmd),
            "torch_xla.distributed.xla_backend": {},
        }
        for name, content in known.items():
            module = ModuleType(name)
            module.__dict__.update(content)
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(device, "find_spec", lambda name: name)
        monkeypatch.setattr(
            "amazon_electra.model.processes.distributed.init_process_group",
            lambda backend, method, rank, world_size: joined.append(
                (backend, method, rank, world_size)
            ),
        )
        return joined

    return serve


@pytest.mark.parametrize("index", [0, 1])
def test_a_host_of_a_pod_takes_its_rank_from_xlas_runtime(serve_runtime, monkeypatch, index):
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("WORLD_SIZE", "9")
    joined = serve_runtime(index, 2)
    found = device.open_device("xla-spmd", "bf16")
    assert (found.rank, found.world_size, found.cores) == (index, 2, 4)
    assert joined == [("gloo", "xla://", index, 2)]
    assert found._mesh == ((8,), ("data",))
    assert found.is_rank0 == (index == 0)
    assert found.moves_together


def test_one_host_needs_no_other(serve_runtime):
    for kind in ("xla", "xla-spmd"):
        joined = serve_runtime(0, 1)
        found = device.open_device(kind, "bf16")
        assert (found.rank, found.world_size) == (0, 1)
        assert joined == []


def test_one_core_is_refused_on_a_pod(serve_runtime):
    serve_runtime(1, 2)
    with pytest.raises(UserError, match="`device='xla'`"):
        device.open_device("xla", "bf16")
