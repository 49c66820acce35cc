"""Models of `tupe_fairseq.huggingface`, whose names are those of `Converted` but for heads."""

from ..keys import Rule
from ..models import ONE_HEAD
from .base import Architecture

TUPE = Architecture(
    model_type="tupe",
    rules=(
        Rule("classifier.*.*", f"{ONE_HEAD}*.*"),
        Rule("classifier.*", f"{ONE_HEAD}out_proj.*"),
        Rule("qa_outputs.*.*", f"{ONE_HEAD}*.*"),
        Rule("qa_outputs.*", f"{ONE_HEAD}out_proj.*"),
    ),
)
