"""`from_pretrained`: trained models with the methods of fairseq's hub."""
