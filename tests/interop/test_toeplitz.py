"""`--to toeplitz`: TUPE's term folded into values by distance, which any command then reads."""

import pytest
import torch

from tests.fairseq_commands import finetune, parameters, pretrain
from tests.interop.samples import language_model, masked_lm, refused, run
from tests.reference import tupe
from tests.tolerances import assert_close
from tupe_fairseq import TupeRobertaModel, TupeTransformerLM
from tupe_fairseq.interop.dictionaries import dictionary_of
from tupe_fairseq.interop.directory import write

TRAINED, LONGER, FAR = 24, 60, 9
BUCKETS = {"num_buckets": 8, "max_distance": 6}
#: How --extend-positions toeplitz continues a model that is folded with slope 0.
CONTINUED = {"extend_positions": "toeplitz", "toeplitz_far": FAR, "toeplitz_slope": 0.0}
TABLE = "encoder.sentence_encoder.embed_positions.weight"


def folded(converted, folder, slope=0):
    """The directories of a model before and after folding."""
    write(converted, folder / "tupe", folder / "dict.txt")
    flags = ("--toeplitz-far", FAR, "--toeplitz-slope", slope)
    run("--to", "toeplitz", folder / "tupe", folder / "folded", *flags)
    return folder / "tupe", folder / "folded"


def load(directory, model=TupeRobertaModel, **overrides):
    longest = "max_positions" if model is TupeRobertaModel else "max_target_positions"
    return model.from_pretrained(directory, **{longest: LONGER, **overrides}).eval()


@torch.no_grad()
def of_distance_alone(built):
    """Make the term of a `tupe_r` a Toeplitz matrix that is constant from before FAR on."""
    stack = built.decoder if hasattr(built, "decoder") else built.encoder.sentence_encoder
    stack.embed_positions.q_proj.weight.zero_()
    stack.embed_positions.q_proj.bias.zero_()


ENCODINGS = [("tupe_a", {}), ("tupe_r", BUCKETS), ("tupe_r", {"tie_cls": True, **BUCKETS})]


@pytest.mark.parametrize(("name", "options"), ENCODINGS)
def test_values_are_the_means_of_the_loops(name, options, tmp_path):
    """Those by which the loops continue the term: the rows of queries that were not trained."""
    built, converted = masked_lm(name, **options)
    _, directory = folded(converted, tmp_path, slope=0.5)
    positions = load(directory).model.encoder.sentence_encoder.embed_positions
    found = positions.attention_bias(3, TRAINED + 3, TRAINED).dense()
    loops = {
        key: value.double()
        for key, value in built.encoder.sentence_encoder.embed_positions.state_dict().items()
    }
    how = {"trained_positions": TRAINED, "toeplitz_far": FAR, "toeplitz_slope": 0.5}
    how |= {"extension": "toeplitz", **options}
    expected = tupe.positional_score(loops, 4, 3, TRAINED + 3, TRAINED, **how)
    assert_close(found, expected)
    columns = 2 * FAR + 1 + (not options.get("tie_cls"))
    assert sum(p.numel() for p in positions.parameters()) == 4 * columns


def test_a_model_that_was_continued_folds_alike(tmp_path):
    """The values come from the trained positions, and the longest text stays."""
    built, converted = masked_lm("tupe_r")
    how = {"extend_positions": "toeplitz", "trained_positions": TRAINED, "max_positions": LONGER}
    longer, continued = masked_lm("tupe_r", **how)
    longer.load_state_dict(built.state_dict())
    continued.state = longer.state_dict()
    _, one = folded(converted, tmp_path / "one")
    _, other = folded(continued, tmp_path / "other")
    assert torch.equal(parameters(one / "model.pt")[TABLE], parameters(other / "model.pt")[TABLE])
    hub = TupeRobertaModel.from_pretrained(other).eval()
    assert hub.extract_features(torch.randint(4, 44, (1, LONGER))).isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("tie_cls", [False, True])
def test_a_term_of_distance_alone_folds_without_a_difference(tie_cls, tmp_path):
    """At every length, in fairseq and in transformers, with the head of a classifier."""
    built, converted = masked_lm("tupe_r", labels=3, tie_cls=tie_cls, **BUCKETS)
    of_distance_alone(built)
    before, after = folded(converted, tmp_path)
    tokens = torch.randint(4, 44, (2, LONGER), generator=torch.manual_seed(0))
    tokens[:, 0], tokens[1, 40:] = 0, 1
    seen = tokens.ne(1)
    expected, found = load(before, **CONTINUED), load(after)
    assert_close(found.model(tokens)[0][seen], expected.model(tokens)[0][seen])
    few = tokens[:, : TRAINED // 2]
    assert_close(found.model(few)[0], load(before, max_positions=TRAINED).model(few)[0])
    head = "sentence_classification_head"
    scores = [hub.predict(head, tokens, return_logits=True) for hub in (found, expected)]
    assert_close(*scores)
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    run("--to", "huggingface", after, tmp_path / "hf", "--check")
    longest = {"max_position_embeddings": LONGER, "trust_remote_code": True}
    auto = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "hf", **longest).eval()
    logits = auto(tokens, attention_mask=seen.long()).logits
    assert_close(logits[seen], expected.model(tokens)[0][seen])


@torch.no_grad()
def test_language_models(tmp_path):
    """One-sided, and token by token with a cache."""
    built, converted = language_model("tupe_r", **BUCKETS)
    of_distance_alone(built)
    before, after = folded(converted, tmp_path)
    expected, found = (
        load(before, TupeTransformerLM, **CONTINUED),
        load(after, TupeTransformerLM),
    )
    tokens = torch.randint(4, 44, (2, LONGER), generator=torch.manual_seed(0))
    assert_close(found.models[0](tokens)[0], expected.models[0](tokens)[0])
    made = [hub.generate(tokens[:1, :5], beam=1, max_len_b=40) for hub in (found, expected)]
    one, other = (beams[0][0]["tokens"].tolist() for beams in made)
    assert one == other


def test_tokenizer_and_labels_stay(tmp_path):
    """The hub gives a text the same ids, and `--to huggingface` finds the names of labels."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "a", "cat"]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    ids = dictionary_of(["<mask>", *map(str, range(5, 45))])
    _, converted = masked_lm("tupe_r", dictionary=ids)
    converted.labels = ["x", "y z"]
    before = tmp_path / "tupe"
    write(converted, before, tmp_path / "dict.txt")
    tokenizer.save(str(before / "tokenizer.json"))
    run("--to", "toeplitz", before, tmp_path / "folded")
    files = {path.name for path in (tmp_path / "folded").iterdir()}
    assert files == {"model.pt", "dict.txt", "tokenizer.json", "label"}
    names = (tmp_path / "folded/label/dict.txt").read_text()
    assert names == "x 1\ny z 1\n"
    ids = [
        TupeRobertaModel.from_pretrained(tmp_path / name).encode("a cat")
        for name in ("tupe", "folded")
    ]
    assert ids[0].tolist() == ids[1].tolist() == [0, 5, 6, 2]


def test_commands_train_the_values(
    toy_checkpoint, toy_masked_lm_data, toy_sentence_data, tmp_path
):
    """Pre-training goes on at a greater length, and fine-tuning starts from it."""
    source = tmp_path / "tupe"
    source.mkdir()
    (source / "model.pt").write_bytes(toy_checkpoint.read_bytes())
    (source / "dict.txt").write_bytes((toy_masked_lm_data / "dict.txt").read_bytes())
    report = run("--to", "toeplitz", source, tmp_path / "folded", "--check")
    assert any("became" in line and "--toeplitz-far 31" in line for line in report)
    assert any("not compared: pairs of trained positions" in line for line in report)
    start = tmp_path / "folded" / "model.pt"
    flags = ("--position-encoding", "toeplitz", "--toeplitz-far", 31, "--max-update", 2)
    more = ("--tokens-per-sample", 200, "--reset-optimizer", "--restore-file", start)
    longer = pretrain(toy_masked_lm_data, tmp_path / "longer", *flags, *more)
    assert parameters(longer)[TABLE].shape == parameters(start)[TABLE].shape
    assert (parameters(longer)[TABLE] != parameters(start)[TABLE]).any(dim=1).all()
    more = ("--finetune-from-model", start, "--num-classes", 2, "--max-positions", 200)
    tuned = finetune(toy_sentence_data["single"], tmp_path / "tuned", *flags, *more)
    assert (parameters(tuned)[TABLE] != parameters(start)[TABLE]).any()
    hub = TupeRobertaModel.from_pretrained(tuned.parent, tuned.name, toy_masked_lm_data)
    assert hub.extract_features(torch.randint(4, 200, (1, 190))).isfinite().all()


@pytest.mark.parametrize(
    ("encoding", "flags", "message"),
    [
        ("rope", (), "that tupe_a, tupe_r have, but the model's --position-encoding is 'rope'"),
        ("tupe_r", ("--toeplitz-far", 23), "--toeplitz-far is 23, but must be at least 1 and bel"),
    ],
)
def test_what_cannot_be_folded(encoding, flags, message, tmp_path):
    _, converted = masked_lm(encoding)
    write(converted, tmp_path / "model", tmp_path / "dict.txt")
    with refused(message):
        run("--to", "toeplitz", tmp_path / "model", tmp_path / "out", *flags)
    assert not (tmp_path / "out").exists()
