"""The arguments of the models: declared as flags, completed by presets, checked."""
