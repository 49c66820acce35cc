"""Packaging of the fairseq plugin `tupe_fairseq`."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "tupe_fairseq/__init__.py").read_text())[1]

# The one place that names the oldest torch, the oldest that transformers 5 accepts too. Newer ones
# are not refused: who has one keeps it. scripts/fairseq.md names those that the suite passes with.
TORCH = "torch>=2.6"
# Three distributions of the same fairseq, all named `fairseq` when imported: never two at once.
# scripts/fairseq.txt holds the checksums of the same versions, scripts/fairseq.md tells why.
WHEELS = "sys_platform == 'linux' and platform_machine == 'x86_64' and python_version < '3.13'"
NO_WHEELS = "(sys_platform != 'linux' or platform_machine != 'x86_64' or python_version >= '3.13')"
FAIRSEQ = [
    # PyPI's own release, whose dataclasses Python 3.11 refuses.
    "fairseq==0.12.2; python_version < '3.11'",
    # Builds of a later upstream commit for newer Pythons; pinned, since their uploaders are not
    # fairseq's.
    f"ve-fairseq==0.12.3; python_version >= '3.11' and {WHEELS}",
    f"fairseq-fixed==0.12.3.1; python_version >= '3.11' and {NO_WHEELS}",
    "hydra-core>=1.3.2,<1.4; python_version >= '3.11'",
    "omegaconf>=2.3,<2.4; python_version >= '3.11'",
]
# Tried: transformers 4.57.6, 5.23.0 and 5.24.0. Its Trainer needs accelerate. sentencepiece
# describes its files by protobuf, which it does not require.
HF = ["safetensors>=0.4", "transformers>=4.57,<6", "accelerate>=1.1", "protobuf>=5.29"]
# torch's exporter needs onnxscript, and quantization onnx.
ONNX = [*HF, "onnx>=1.16", "onnxruntime>=1.18", "onnxscript>=0.5"]
# What scripts/benchmark_serving.py compares.
RIVALS = [*ONNX, "openvino>=2025", "nncf>=3"]
# API pages; .github/CONTRIBUTING.md has the command.
DOCS = "pdoc>=16"
# Needs a newer hydra than fairseq 0.12.2 takes.
SLURM = "hydra-submitit-launcher==1.2.0; python_version >= '3.11'"

setup(
    name="tupe_fairseq",
    version=VERSION,
    description="TUPE and many other position encodings for fairseq and transformers, by one flag",
    keywords="position encoding, Transformer, TUPE, RoPE, ALiBi, DeBERTa, RoBERTa, fairseq",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    license_files=["LICENSE"],
    # An editable installation then puts this folder on Python's path, so that the programs under
    # examples/ and scripts/ can be imported. Any other installation holds the package alone.
    package_dir={"": "."},
    packages=find_packages(include=["tupe_fairseq", "tupe_fairseq.*"]),
    package_data={
        "tupe_fairseq": ["py.typed"],
        "tupe_fairseq.kernels": ["*.c"],
    },
    python_requires=">=3.10,<3.14",
    install_requires=[
        TORCH,
        # numpy 2.3 removed what fairseq's --sample-break-mode eos reads.
        "numpy<2.3",
        "sacrebleu>=2.3",
        "sentencepiece>=0.2",
        # fairseq's sentence_prediction imports both and requires neither everywhere.
        "scikit-learn",
        "scipy",
        *FAIRSEQ,
    ],
    extras_require={
        # Figures of scripts/ and examples/.
        "viz": ["matplotlib>=3.8"],
        # Nothing since the solver is in position/floater.py; the name stays for installed recipes.
        "floater": [],
        "hf": HF,
        "onnx": ONNX,
        "rivals": RIVALS,
        "slurm": [SLURM],
        "docs": [DOCS],
        "test": [
            "pytest>=8",
            "pytest-xdist>=3",
            "hypothesis>=6",
            "matplotlib>=3.8",
            "torchdiffeq>=0.2.4",
            "sentence-transformers>=5",
            "peft>=0.19",
            *ONNX,
            SLURM,
            DOCS,
            "import-linter>=2.5",
            "mypy>=1.15",
            "ruff",
        ],
    },
)
