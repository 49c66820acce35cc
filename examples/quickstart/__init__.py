"""The steps of scripts/quickstart.sh: see README.md."""

import logging

# Importing fairseq would otherwise advise to install tensorboardX, in the midst of the output.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
