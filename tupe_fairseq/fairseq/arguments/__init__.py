"""The arguments of the models: declared once as flags, completed once, checked once.

The command line, hydra and Python take the same path: fairseq hands a Namespace or DictConfig to
`CheckedModel.build_model`; `completion.completed` returns the complete arguments as a new
Namespace, from which the model is built; `completion.write_back` then enters them in fairseq's
object, which fairseq saves in checkpoints.
"""
