"""`from_pretrained`: trained models with the methods of fairseq's hub."""

# The models, which import files of this folder, are registered as soon as fairseq is imported.
import fairseq  # noqa: F401
