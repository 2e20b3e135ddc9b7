import pytest

from model.presets import PRESETS
from model.pretraining.flops import matrix_flops, train_flops

PUBLISHED = {"small": "1.294e+18", "base": "6.425e+19", "large": "7.118e+20"}  # google flops_computation.py, cut there


def cut(number: float) -> str:
    """Four digits, not rounded."""
    mantissa, exponent = f"{number:.12e}".split("e")
    return f"{mantissa[:5]}e{exponent}"


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_figures(name):
    preset = PRESETS[name]
    sequences = preset.pretraining.batch * preset.pretraining.steps
    flops = train_flops(preset.architecture, preset.vocabulary_size, preset.max_length, sequences)
    assert cut(flops) == PUBLISHED[name]


def test_the_published_figure_of_the_longest_run():
    large = PRESETS["large"]
    flops = train_flops(large.architecture, large.vocabulary_size, large.max_length, 2048 * 1_750_000)
    assert cut(flops) == "3.114e+21"


def test_bert_base_as_the_paper_counts_it():
    """Clark et al. 2020, table 8: 6.4e19."""
    base = PRESETS["base"].architecture
    mlm = train_flops(base, 30_522, 512, 256 * 1_000_000, "mlm")
    assert mlm == pytest.approx(6.4e19, rel=0.01)


def test_utilization_counts_less_than_the_published_method_forward_but_three_passes():
    base = PRESETS["base"]
    per_position = matrix_flops(base.architecture, base.vocabulary_size, base.max_length)
    parameters = 12 * (12 * 768**2) + 12 * (12 * 256**2)
    assert per_position == pytest.approx(6 * parameters, rel=0.25)
