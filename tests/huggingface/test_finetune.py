"""Fine-tuning by transformers' Trainer, and the model back in fairseq."""

import json
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

from examples.glue.tasks import TASKS
from tests.convert.samples import masked_lm
from tests.fairseq.glue.samples import write, write_tokenizer
from tests.tolerances import assert_close
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.convert.command import convert
from tupe_fairseq.convert.directory import write as write_directory
from tupe_fairseq.convert.models import HEAD
from tupe_fairseq.fairseq.checks import read_dictionary

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed (extra hf)")
from examples.huggingface import finetune  # noqa: E402 (needs accelerate)

NO_DROPOUT = dict.fromkeys(("dropout", "attention_dropout", "pooler_dropout"), 0.0)
WORDS = ["a", "good", "bad", "film", "plot", "with", "no", "wit", "or", "charm"]


def text(number: int) -> str:
    return " ".join(WORDS[(number // 3**i + i) % len(WORDS)] for i in range(5)).capitalize()


@pytest.fixture(scope="module")
def glue(tmp_path_factory) -> Path:
    """Some rows of SST-2 and STS-B."""
    one = [f"{text(i)}|{i % 2}" for i in range(20)]
    two = [f"{i}|{text(i)}|{text(2 * i)}|{i % 5}.2" for i in range(20)]
    texts = {}
    for split in ("train", "dev"):
        texts[f"SST-2/{split}.tsv"] = "\n".join(["sentence|label", *one, ""])
        texts[f"STS-B/{split}.tsv"] = "\n".join(["index|sentence1|sentence2|score", *two, ""])
    return write(tmp_path_factory.mktemp("glue"), texts)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> Path:
    """A directory that `--to huggingface` wrote."""
    folder = tmp_path_factory.mktemp("model")
    dictionary = write_tokenizer(folder / "bpe", " ".join(WORDS)) / "dict.txt"
    words = read_dictionary(dictionary)
    _, converted = masked_lm("tupe_r", 0, words, dictionary.parent, **NO_DROPOUT)
    write_directory(converted, folder / "ours")
    command = ["--to", "huggingface", str(folder / "ours"), "--lower-case", "yes"]
    convert([*command, "--out", str(folder / "theirs")])
    return folder / "theirs"


@pytest.fixture(scope="module", params=["SST-2", "STS-B"])
def finetuned(request, glue, pretrained, tmp_path_factory) -> Path:
    """What the example leaves after two epochs."""
    out = tmp_path_factory.mktemp("finetuned") / request.param
    words = [str(glue), request.param, str(pretrained), "--out", str(out), "--epochs", "2"]
    result = finetune.finetune(finetune.arguments([*words, "--lr", "1e-3", "--batch-size", "8"]))
    assert result == json.loads((out / "result.json").read_text())
    return out


def logits(folder: Path, glue: Path) -> tuple[torch.Tensor, list[str], list[list[int]]]:
    """Of the development set by transformers' pipeline of classes, with the labels and the ids."""
    task = TASKS[folder.name]
    examples = finetune.read_split(glue, task, task.splits[1]).examples
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    kind = transformers.AutoModelForSequenceClassification
    model = kind.from_pretrained(folder, trust_remote_code=True).eval()
    ids = [tokenizer(*each.sentences)["input_ids"] for each in examples]
    with torch.no_grad():
        found = torch.cat([model(torch.tensor([row])).logits for row in ids])
    return found, [each.label for each in examples], ids


def test_result_is_that_of_the_model_kept(finetuned, glue):
    found, labels, _ = logits(finetuned, glue)
    truth = torch.tensor([float(label) for label in labels])
    result = json.loads((finetuned / "result.json").read_text())
    if finetuned.name == "SST-2":
        score = (found.argmax(-1) == truth).double().mean()
    else:
        score = torch.corrcoef(torch.stack([found[:, 0], truth]).double())[0, 1]
    assert result["score"] == pytest.approx(100 * score.item(), abs=0.05)
    assert not (finetuned / "checkpoints").exists()


def test_back_in_fairseq(finetuned, glue, tmp_path):
    """`--from huggingface` gives the same outputs, for texts by fairseq's own tokenizer too."""
    out = tmp_path / "back"
    command = ["--from", "huggingface", str(finetuned), "--out", str(out), "--check"]
    lines = convert(command)
    assert any(f"the classifier is the head {HEAD}" in line for line in lines)
    roberta = TupeRobertaModel.from_pretrained(out)
    expected, _, ids = logits(finetuned, glue)
    with torch.no_grad():
        rows = [roberta.predict(HEAD, torch.tensor(row), True) for row in ids]
    assert_close(torch.cat(rows), expected)


@pytest.fixture
def program_of_its_own():
    """Without what fairseq's commands, run by other tests, add to torch's list of safe classes."""
    before = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    yield
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(before)


@pytest.mark.usefixtures("program_of_its_own")
def test_interrupted_run_resumes(finetuned, glue, pretrained, tmp_path, monkeypatch):
    """After the first of two epochs; a checkpoint that was not completed does not matter."""
    words = [str(glue), finetuned.name, str(pretrained), "--out", str(tmp_path / "out")]
    words += ["--epochs", "2", "--lr", "1e-3", "--batch-size", "8"]
    step = transformers.Trainer.training_step
    steps = []

    def interrupted(*given):
        steps.append(len(steps))
        # 20 examples are 3 updates.
        if len(steps) == 5:
            raise KeyboardInterrupt
        return step(*given)

    monkeypatch.setattr(transformers.Trainer, "training_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        finetune.finetune(finetune.arguments(words))
    checkpoints = tmp_path / "out/checkpoints"
    assert [path.name for path in checkpoints.iterdir()] == ["checkpoint-3"]
    (checkpoints / "checkpoint-6").mkdir()
    (checkpoints / "checkpoint-6/trainer_state.json").write_text('{"epoch":')
    with pytest.raises(UsageError, match="holds a run with other settings"):
        finetune.finetune(finetune.arguments([*words, "--seed", "2"]))
    result = finetune.finetune(finetune.arguments(words))
    assert len(steps) == 5 + 3
    assert result == json.loads((finetuned / "result.json").read_text())
    found, expected = (
        safetensors.torch.load_file(folder / "model.safetensors")
        for folder in (tmp_path / "out", finetuned)
    )
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert_close(found[name], values)
    with pytest.raises(UsageError, match="holds a result already"):
        finetune.finetune(finetune.arguments(words))


def test_refusals(glue, pretrained, tmp_path):
    words = [str(glue), "SST-2", str(pretrained), "--out", str(tmp_path)]
    with pytest.raises(UsageError, match="exists already; name a new directory"):
        finetune.finetune(finetune.arguments(words))
    words = [str(glue), "SST-2", str(tmp_path), "--out", str(tmp_path / "new")]
    with pytest.raises(UsageError, match=r"MODEL is .*, but has no config\.json"):
        finetune.finetune(finetune.arguments(words))
    words = [str(glue), "RTE", str(pretrained), "--out", str(tmp_path / "new")]
    with pytest.raises(UsageError, match=r"GLUE_DIR is .*, but lacks files of RTE"):
        finetune.finetune(finetune.arguments(words))
    assert not list(tmp_path.iterdir())


def test_products_in_bf16(glue, pretrained, tmp_path):
    """`--bf16` multiplies in bf16; the parameters stay in fp32. The tokenizer has no limit."""
    model = shutil.copytree(pretrained, tmp_path / "model")
    options = json.loads((model / "tokenizer_config.json").read_text())
    del options["model_max_length"]
    (model / "tokenizer_config.json").write_text(json.dumps(options))
    dtypes = set()

    def note(module, inputs, output):
        if isinstance(module, torch.nn.Linear):
            dtypes.add(output.dtype)

    words = [str(glue), "SST-2", str(model), "--out", str(tmp_path / "out"), "--bf16"]
    hook = torch.nn.modules.module.register_module_forward_hook(note)
    try:
        finetune.finetune(finetune.arguments([*words, "--epochs", "1"]))
    finally:
        hook.remove()
    assert torch.bfloat16 in dtypes
    state = safetensors.torch.load_file(tmp_path / "out" / "model.safetensors")
    assert {value.dtype for value in state.values()} == {torch.float32}


@pytest.mark.parametrize(
    ("kind", "rates"),
    [
        ("DebertaV2", {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}),
        ("ModernBert", {"mlp_dropout": 0.1, "classifier_dropout": 0.0}),
    ],
)
def test_classes_of_transformers_with_other_dropouts(kind, rates, tmp_path):
    """Those that a class does not have are left out."""
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 20}
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 1)
    config = transformers.AutoConfig.for_model(
        {"DebertaV2": "deberta-v2", "ModernBert": "modernbert"}[kind],
        **{**sizes, **special, "num_attention_heads": 2, "pad_token_id": 0},
    )
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    model = finetune.load(tmp_path, TASKS["SST-2"], 1)
    assert type(model).__name__ == f"{kind}ForSequenceClassification"
    assert {name: getattr(model.config, name) for name in rates} == rates
