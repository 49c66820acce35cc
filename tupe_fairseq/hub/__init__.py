"""`from_pretrained`: trained models with the verbs of fairseq's hub."""
