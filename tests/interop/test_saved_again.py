"""What transformers saves of our classes loads elsewhere: every class, without this package."""

import os
import subprocess
import sys

import pytest

from tests.interop.samples import language_model, masked_lm
from tupe_fairseq.interop.formats import huggingface
from tupe_fairseq.interop.sources import AUTO_MAP

pytest.importorskip("transformers", reason="transformers is not installed")

MODELS = [name for name in AUTO_MAP if name != "AutoConfig"]
CAUSAL = ("AutoModel", "AutoModelForCausalLM")
#: Loads a directory by each class, saves it, and loads that by the same class and as the base.
ALONE = """
import sys
for name in ("tupe_fairseq", "fairseq"):
    sys.modules[name] = None
import torch, transformers
folder, *names = sys.argv[1:]
def load(name, folder):
    model = getattr(transformers, name).from_pretrained(folder, trust_remote_code=True).eval()
    assert type(model).__module__.startswith("transformers_modules.")
    return model
ids = torch.tensor([[0, 5, 6, 7, 2]])
for name in names:
    given = ids[None] if name.endswith("MultipleChoice") else ids
    model = load(name, folder)
    model.save_pretrained(name)
    load("AutoModel", name)
    with torch.no_grad():
        torch.testing.assert_close(load(name, name)(given)[0], model(given)[0])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "names"),
    [(masked_lm, [n for n in MODELS if "Causal" not in n]), (language_model, CAUSAL)],
    ids=["masked", "causal"],
)
def test_every_class(make, names, tmp_path):
    huggingface.write(make("rope")[1], tmp_path / "model", classes="tupe")
    settings = {"HF_MODULES_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    environment = os.environ | settings
    command = [sys.executable, "-W", "ignore", "-c", ALONE, str(tmp_path / "model"), *names]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    written = {path.name for path in (tmp_path / "model").glob("*.py")}
    for name in names:
        assert {path.name for path in (tmp_path / name).glob("*.py")} == written
