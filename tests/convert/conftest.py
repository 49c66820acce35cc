"""Models of which the tests make other formats."""

import pytest

from tests.fairseq_commands import pretrain


@pytest.fixture(scope="session")
def trained(toy_masked_lm_data, tmp_path_factory):
    """Trains models with given flags on demand; returns their directories."""
    made = {}

    def train(*flags):
        if flags not in made:
            made[flags] = tmp_path_factory.mktemp("model")
            pretrain(toy_masked_lm_data, made[flags], *flags, "--max-update", 3)
            (made[flags] / "dict.txt").write_bytes((toy_masked_lm_data / "dict.txt").read_bytes())
        return made[flags]

    return train
