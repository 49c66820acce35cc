"""Small GLUE downloads in the official format, and a tokenizer for them."""

from pathlib import Path

from tests import ROOT
from tests.convert.pieces import dictionary_of_pieces, train
from tupe_fairseq.fairseq.hub.files import record_preprocessing

GLUE = ROOT / "examples" / "glue"

#: File -> text, as the official files begin; `|` stands for a tab.
OFFICIAL = {
    "CoLA/train.tsv": 'gj04|1||Our friends say "no.\nks08|0|*|They drank the pub.\n',
    "CoLA/dev.tsv": "gj04|1||The sailors rode the breeze.\n",
    "CoLA/test.tsv": "index|sentence\n0|Bill whistled past the house.\n1|The car honked.\n",
    "SST-2/train.tsv": "sentence|label\nhide new secretions |0\ncontains no wit , |1\n",
    "SST-2/dev.tsv": "sentence|label\nit 's a charming journey . |1\n",
    "SST-2/test.tsv": "index|sentence\n0|uneasy mishmash of styles .\n",
    "MRPC/train.tsv": "Quality|#1 ID|#2 ID|#1 String|#2 String\n"
    '1|702876|702977|He called "the witness".|Only "the witness.\n0|1|2|Yes.|No.\n',
    "MRPC/dev.tsv": 'Quality|#1 ID|#2 ID|#1 String|#2 String\n1|3|4|He said.|"She said.\n',
    "MRPC/test.tsv": "index|#1 ID|#2 ID|#1 String|#2 String\n0|5|6|PCCW's chief.|A chief.\n",
    "STS-B/train.tsv": "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2"
    "|score\n0|main-captions|MSRvid|2012test|0001|none|none|A plane.|An air plane.|5.000\n"
    '1|main-news|headlines|2016|7|none|none|A "plane|A train.|1.25\n',
    "STS-B/dev.tsv": "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2"
    "|score\n0|main-captions|MSRvid|2012test|0000|none|none|A man.|A hat.|0.000\n",
    "STS-B/test.tsv": "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2\n"
    "0|main-captions|MSRvid|2012test|0024|none|none|A girl.|A boy.\n",
    "QQP/train.tsv": "id|qid1|qid2|question1|question2|is_duplicate\n"
    "133273|213221|213222|How is it?|How are they?|0\n402555|536040|536041|Why?|How come?|1\n"
    "201359|1|2|Half a row\n",
    "QQP/dev.tsv": "id|qid1|qid2|question1|question2|is_duplicate\n201359|1|2|Why?|Who?|0\n",
    "QQP/test.tsv": "id|question1|question2\n0|Would it?|Will it?\n1|Cut off\n",
    "MNLI/train.tsv": "index|promptID|pairID|genre|sentence1_binary_parse|sentence2_binary_parse"
    "|sentence1_parse|sentence2_parse|sentence1|sentence2|label1|gold_label\n"
    "0|31193|31193n|government|( a )|( b )|(ROOT a)|(ROOT b)|Cream has two.|Product.|x|neutral\n"
    "1|1|1e|telephone|( a )|( b )|(ROOT a)|(ROOT b)|You know.|You lose.|x|entailment\n"
    "2|2|2c|fiction|( a )|( b )|(ROOT a)|(ROOT b)|One.|None.|x|contradiction\n"
    "3|3|3c|fiction|( a )|( b )|(ROOT a)|(ROOT b)|Who.|What.|x|-\n",
    "QNLI/train.tsv": "index|question|sentence|label\n0|When did it?|As of 1945.|entailment\n"
    '1|Who?|In "Rome.|not_entailment\n',
    "QNLI/dev.tsv": "index|question|sentence|label\n0|What?|As of that day.|entailment\n",
    "QNLI/test.tsv": "index|question|sentence\n0|What organization?|An advisory board.\n",
    "RTE/train.tsv": "index|sentence1|sentence2|label\n0|No Weapons.|Weapons.|not_entailment\n"
    "1|A place of sorrow.|Pope.|entailment\n",
    "RTE/dev.tsv": "index|sentence1|sentence2|label\n0|Dana Reeve.|Reeve.|not_entailment\n",
    "RTE/test.tsv": "index|sentence1|sentence2\n0|Mangla was summoned.|Shukla.\n",
    "WNLI/train.tsv": "index|sentence1|sentence2|label\n0|I stuck a pin.|It had a hole.|1\n"
    "1|She could not see.|Joan.|0\n",
    "WNLI/dev.tsv": "index|sentence1|sentence2|label\n0|The drain is clogged.|The hair.|0\n",
    "WNLI/test.tsv": "index|sentence1|sentence2\n0|Maude and Dora.|The trains.\n",
    "diagnostic/diagnostic.tsv": "index|sentence1|sentence2\n0|The cat sat.|It did not.\n",
}
for _kind in ("matched", "mismatched"):
    _columns = "index|promptID|pairID|genre|b1|b2|p1|p2|sentence1|sentence2"
    OFFICIAL[f"MNLI/dev_{_kind}.tsv"] = (
        f"{_columns}|label1|label2|label3|label4|label5|gold_label\n"
        "0|6|6n|slate|( a )|( b )|(a)|(b)|The new rights.|Everyone.|n|n|e|n|n|neutral\n"
    )
    OFFICIAL[f"MNLI/test_{_kind}.tsv"] = (
        f"{_columns}\n0|3|3|travel|( a )|( b )|(a)|(b)|Hierbas, ans.|is a name.\n"
    )


def write(folder: Path, texts: dict[str, str], end: str = "\n") -> Path:
    """Write files with real tabs and these line ends."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.replace("|", "\t").replace("\n", end).encode())
    return folder


def write_tokenizer(folder: Path, text: str, cased: bool = False) -> Path:
    """A sentencepiece model of this text, its dict.txt, and the record of its case."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = (text if cased else text.lower()).replace("|", " ").split("\n")
    dictionary_of_pieces(train(folder, lines * 5, 150)).save(str(folder / "dict.txt"))
    record_preprocessing(folder, lowercase=not cased)
    return folder
