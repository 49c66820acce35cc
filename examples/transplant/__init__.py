"""Another position encoding for a released encoder, by distillation from itself."""
