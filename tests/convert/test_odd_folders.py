"""Folders that are damaged, or hold more than one model: read as transformers reads them, or one
line names the file and what is wrong with it.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.convert.samples import change_config, refused, run
from tests.covering import in_turn
from tests.huggingface.encoders import OPTIONS, build
from tests.tolerances import assert_close

safetensors = pytest.importorskip("safetensors.torch", reason="transformers is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

FAMILIES = ("bert", "roberta", "xlm_roberta", "camembert", "v3", "modernbert", "mpnet")
FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"
#: Of one of several parts; a tiny model has a few.
SIZE = "20KB"
#: Every family in one format, and one in the others.
WAYS = [(family, "huggingface") for family in FAMILIES] + [("bert", "fairseq"), ("bert", "onnx")]
BERT, *OTHERS = WAYS


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A folder of each family: whole, in parts, and with a classifier."""
    root = tmp_path_factory.mktemp("sources")
    for family in FAMILIES:
        model = build(family, "ForMaskedLM")
        model.save_pretrained(root / family / "whole")
        model.save_pretrained(root / family / "parts", max_shard_size=SIZE)
        classifier = build(family, "ForSequenceClassification", num_labels=3)
        classifier.save_pretrained(root / family / "classifier")
    return root


@pytest.fixture
def copy(sources, tmp_path):
    return lambda family, kind="whole": Path(
        shutil.copytree(sources / family / kind, tmp_path / "source")
    )


def change(path: Path, function: Callable[[dict], dict]) -> None:
    """Rewrite a file of parameters."""
    safetensors.save_file(function(safetensors.load_file(path)), path, metadata={"format": "pt"})


def parts(folder: Path) -> list[Path]:
    found = sorted(folder.glob("model-*-of-*.safetensors"))
    assert len(found) > 2
    return found


def index_of(folder: Path) -> dict:
    return json.loads((folder / INDEX).read_text())["weight_map"]


def change_index(folder: Path, names: dict[str, str]) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}))


def without_a_table(folder: Path) -> None:
    """That of token types where the model has one, else the first norm."""
    part = "token_type_embeddings" if names_in(folder, "token_type_embeddings") else "orm."
    without(part)(folder)


def names_in(folder: Path, part: str) -> list[str]:
    return [name for name in safetensors.load_file(folder / FILE) if part in name]


def without(part: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (first, *_) = names_in(folder, part)
        change(folder / FILE, lambda state: {n: v for n, v in state.items() if n != first})

    return damage


def without_the_last_part(folder: Path) -> None:
    parts(folder)[-1].unlink()


def without_the_index(folder: Path) -> None:
    (folder / INDEX).unlink()


def without_what_the_index_says(folder: Path) -> None:
    change(parts(folder)[1], lambda state: dict(list(state.items())[1:]))


def with_a_parameter_in_two_parts(folder: Path) -> None:
    first, second, *_ = parts(folder)
    more = dict(list(safetensors.load_file(first).items())[:1])
    change(second, lambda state: state | more)


def with_a_part_elsewhere(folder: Path) -> None:
    shutil.move(parts(folder)[0], folder.parent / "part.safetensors")
    names = index_of(folder)
    change_index(folder, dict.fromkeys(names, "../part.safetensors"))


def with_an_index_of_other_contents(folder: Path) -> None:
    (folder / INDEX).write_text("[1, 2]")


def with_other_names(folder: Path) -> None:
    """As torch's DataParallel has them."""
    change(folder / FILE, lambda state: {f"module.{n}": value for n, value in state.items()})


def with_a_pointer(folder: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    (folder / FILE).write_text(pointer)


def with_an_adapter(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')


def with_settings(**settings) -> Callable[[Path], None]:
    return lambda folder: change_config(folder, settings)


def inside_another(folder: Path) -> None:
    inner = folder / "0_Transformer"
    inner.mkdir()
    for path in list(folder.iterdir()):
        if path.is_file():
            shutil.move(path, inner)


DAMAGED = {
    "the last part is missing": ("parts", without_the_last_part, "cannot read {folder}/model-"),
    "no index": ("parts", without_the_index, "{folder} has neither model.safetensors nor"),
    "part without a parameter": ("parts", without_what_the_index_says, "which does not have it"),
    "parameter twice": ("parts", with_a_parameter_in_two_parts, "and in another part, model-"),
    "part elsewhere": ("parts", with_a_part_elsewhere, "which is not a file beside it"),
    "index of a list": ("parts", with_an_index_of_other_contents, f"/{INDEX} cannot be read"),
    "other names": ("whole", with_other_names, " more, which config.json beside it asks for"),
    "pointer": ("whole", with_a_pointer, f"/{FILE} is a pointer of Git LFS"),
    "adapter": ("whole", with_an_adapter, "holds an adapter of peft"),
    "quantized": (
        "whole",
        with_settings(quantization_config={"quant_method": "fp8"}),
        "unsupported quantization_config in",
    ),
    "more layers": (
        "whole",
        with_settings(num_hidden_layers=7, layer_types=None),
        "config.json beside it has num_hidden_layers 7",
    ),
    "other vocabulary": ("whole", with_settings(vocab_size=61), "by config.json beside it"),
    "other classes": ("classifier", with_settings(id2label={0: "a", 1: "b"}), "by config.json"),
    "no token types": ("whole", without_a_table, f"{FILE} lacks "),
    "half a layer": ("whole", without(".1."), f"{FILE} lacks "),
    "half a head": ("classifier", without("classifier"), f"{FILE} lacks "),
    "inside another": ("whole", inside_another, "give the folder {folder}/0_Transformer"),
}


@pytest.mark.parametrize(
    ("what", "way"), [*in_turn(DAMAGED, [BERT]), *in_turn(DAMAGED, OTHERS)], ids=str
)
def test_damaged(what, way, copy, tmp_path):
    family, to = way
    kind, damage, message = DAMAGED[what]
    folder = copy(family, kind)
    out = tmp_path / "out"
    damage(folder)
    flags = () if to == "fairseq" else ("--to", to)
    with refused(message.format(folder=folder)):
        run("--from", "huggingface", folder, out, *flags)
    assert not out.exists()


def with_old_files(folder: Path) -> None:
    """pytorch_model.bin of another training."""
    state = safetensors.load_file(folder / FILE)
    torch.save({name: value + 1 for name, value in state.items()}, folder / "pytorch_model.bin")


def with_parts_of_another(folder: Path) -> None:
    for path in parts(folder):
        other = folder / path.name.replace("-of-0", "-of-1")
        shutil.copy(path, other)
        change(other, lambda state: {name: value + 1 for name, value in state.items()})


def whole_beside_parts(folder: Path) -> None:
    """Parts that model.safetensors goes before."""
    path = folder / INDEX
    path.write_text(json.dumps({"metadata": {}, "weight_map": {"x": "missing.safetensors"}}))


def with_fewer_layers(folder: Path) -> None:
    change_config(folder, {"num_hidden_layers": 1, "layer_types": None})


def with_further_parameters(folder: Path) -> None:
    further = {"loss.weight": torch.ones(3), "swa_n": torch.ones(1)}
    change(folder / FILE, lambda state: state | further)


def in_other_precision(folder: Path) -> None:
    change(folder / FILE, lambda state: {name: value.half() for name, value in state.items()})


def without_architectures(folder: Path) -> None:
    change_config(folder, {"architectures": None})


ODD = {
    "old files": ("whole", with_old_files, []),
    "parts of another": ("parts", with_parts_of_another, []),
    "index beside the whole": ("whole", whole_beside_parts, []),
    "fewer layers": ("whole", with_fewer_layers, ["since config.json has num_hidden_layers 1"]),
    "further parameters": ("whole", with_further_parameters, ["left out: loss.*"]),
    "half precision": ("whole", in_other_precision, []),
    "no architectures": ("whole", without_architectures, []),
}


@pytest.mark.parametrize(
    ("what", "family"), [*in_turn(ODD, FAMILIES[:1]), *in_turn(ODD, FAMILIES[1:])]
)
@torch.no_grad()
def test_odd(what, family, copy, tmp_path):
    """Compared with what transformers loads."""
    kind, change_folder, notes = ODD[what]
    folder = copy(family, kind)
    out = tmp_path / "out"
    change_folder(folder)
    report = run("--from", "huggingface", folder, out, "--to", "huggingface", "--classes", "tupe")
    for note in notes:
        assert any(note in line for line in report)
    size = OPTIONS[family][1].get("vocab_size", 60)
    ids = torch.randint(5, size, (2, 9), generator=torch.Generator().manual_seed(0))
    auto = transformers.AutoModelForMaskedLM
    theirs = auto.from_pretrained(folder, dtype=torch.float32).eval()
    ours = auto.from_pretrained(out, trust_remote_code=True).eval()
    assert_close(ours(ids).logits, theirs(ids).logits)


@pytest.mark.parametrize(
    "head", ["ForQuestionAnswering", "ForTokenClassification", "ForSequenceClassification"]
)
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_heads_of_files_without_architectures(family, head, tmp_path):
    """The head follows from the names of parameters; BERT's two classifiers by its pooler."""
    source = tmp_path / "source"
    build(family, head, num_labels=2).save_pretrained(source)
    without_architectures(source)
    out = tmp_path / "out"
    run(
        "--from", "huggingface", source, out, "--to", "huggingface", "--classes", "tupe", "--check"
    )
    (written,) = json.loads((out / "config.json").read_text())["architectures"]
    assert written == f"Tupe{head}"
