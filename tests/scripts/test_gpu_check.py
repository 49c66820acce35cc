"""scripts/gpu_check.sh explains itself; tests/by_hand runs its steps on a CPU."""

from tests import ROOT


def test_help(bash):
    assert bash(ROOT / "scripts/gpu_check.sh", "--help").stdout.startswith("Run the measurements")
