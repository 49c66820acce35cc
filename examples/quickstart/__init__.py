"""The steps of scripts/quickstart.sh: see README.md."""
