"""A CPU's products in fp32 are fp32, and bf16 is chosen where it is fast."""

import pytest
import torch

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


def test_fp32_takes_the_library_that_does_not_round(monkeypatch):
    monkeypatch.setattr(device, "MAX_FP32_ERROR", 0.0)
    device.open_device("cpu", "fp32")
    assert torch.get_float32_matmul_precision() == "highest"
    device.open_device("cpu", "auto")
    assert torch.get_float32_matmul_precision() == "medium"


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
def test_auto_takes_bf16_on_cpus_faster_with_it(
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
