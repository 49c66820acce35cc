"""The commands of examples/pretraining/README.md, as far as they can be tested anywhere."""

import os
import shlex
import signal
import subprocess

import pytest
from hydra.core.hydra_config import HydraConfig

from tests.examples.hydra_configs import (
    PRETRAINING,
    QUIET,
    ROOT,
    SLURM,
    composed,
    composed_job,
    launch_command,
)
from tests.pages import commands
from tests.processes import wait_until, write_program

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]

HERE = ROOT / "examples/pretraining"
README = HERE / "README.md"
TRAININGS = commands(README, "fairseq-hydra-train")


def overrides(words: list[str]) -> tuple[str, list[str]]:
    """Name of the file, and what follows, of `--config-dir DIR --config-name NAME ...`."""
    flag, folder, name_flag, name, *rest = words
    assert (flag, ROOT / folder, name_flag) == ("--config-dir", PRETRAINING, "--config-name")
    return name, rest


@pytest.mark.parametrize("words", [w for w in TRAININGS if not {"-m", "--multirun"} & {*w}])
def test_training_commands_compose(words):
    name, rest = overrides(words[1:])
    cfg = composed(PRETRAINING / f"{name}.yaml", *rest)
    assert cfg.task.data == str(ROOT / "data/bin")
    if name == "base":
        # The paper's 256 sequences an update, on the GPUs that the comment names.
        assert cfg.dataset.batch_size * cfg.optimization.update_freq[0] * 8 == 256


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """The tenth of sixteen tasks on two nodes of eight GPUs."""
    write_program(tmp_path / "srun", 'printf "%s\\n" "$@"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name, value in {
        "SLURM_JOB_ID": "20042",
        "SLURM_NTASKS": "16",
        "SLURM_CPUS_PER_TASK": "8",
        "SLURM_PROCID": "9",
        "SLURM_LOCALID": "1",
        "SLURMD_NODENAME": "node1",
    }.items():
        monkeypatch.setenv(name, value)


def test_slurm_script_starts_what_fairseq_understands(slurm):
    (_, nodes, two, script, *rest), _ = commands(README, "sbatch")
    assert (nodes, two) == ("--nodes", "2")
    run = ["bash", str(ROOT / script), *rest]
    out = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    # Slurm's defaults are to wait for the other tasks if one is killed, and one core for each.
    stops, cores, program, *words = out.splitlines()
    assert (stops, cores) == ("--kill-on-bad-exit=1", "--cpus-per-task=8")
    assert program == "fairseq-hydra-train"
    name, given = overrides(words)
    cfg = composed(PRETRAINING / f"{name}.yaml", *given)
    training = cfg.distributed_training
    assert training.distributed_init_method == "tcp://node1:10042"
    assert (training.distributed_rank, training.distributed_world_size) == (9, 16)
    assert (training.device_id, training.distributed_no_spawn) == (1, True)
    sequences = cfg.dataset.batch_size * cfg.optimization.update_freq[0]
    assert sequences * training.distributed_world_size == 256


def test_slurm_command_for_cpus():
    *_, words = commands(README, "sbatch")
    place = words.index("examples/pretraining/slurm.sh") + 1
    name, given = overrides(words[place:])
    cfg = composed(PRETRAINING / f"{name}.yaml", *given)
    assert cfg.common.cpu
    assert cfg.distributed_training.distributed_backend == "gloo"
    assert words[1:5] == ["--gpus-per-node", "0", "--ntasks-per-node", "2"]
    assert 2 * cfg.dataset.batch_size * cfg.optimization.update_freq[0] == 32


#: Runs until there is a file `end`.
SRUN = """
touch {folder}/started
until [ -e {folder}/end ]; do sleep 0.02; done
exit 7
"""
SCONTROL = """
echo "$@" >>{folder}/asked
exit {status}
"""


@pytest.mark.parametrize("status", [0, 1], ids=["requeued", "refused"])
def test_slurm_script_requeues_its_job_before_the_time_limit(slurm, tmp_path, monkeypatch, status):
    """It asks Slurm for USR1, and still ends with the status of srun, whatever scontrol says."""
    script = HERE / "slurm.sh"
    assert "#SBATCH --signal=B:USR1@" in script.read_text()
    for name, body in {"srun": SRUN, "scontrol": SCONTROL}.items():
        folder = shlex.quote(str(tmp_path))
        write_program(tmp_path / name, body.format(folder=folder, status=status))
    with subprocess.Popen(["bash", script], stderr=subprocess.PIPE, text=True) as job:
        try:
            wait_until(lambda: (tmp_path / "started").exists() or job.poll() is not None)
            job.send_signal(signal.SIGUSR1)
            wait_until(lambda: (tmp_path / "asked").exists() or job.poll() is not None)
            with pytest.raises(subprocess.TimeoutExpired):
                job.wait(0.5)
        finally:
            (tmp_path / "end").touch()
        _, errors = job.communicate()
    assert job.returncode == 7
    assert (tmp_path / "asked").read_text() == "requeue 20042\n"
    assert errors == ("error: job 20042 cannot be requeued\n" if status else "")


(MANY,) = (words for words in TRAININGS if "-m" in words)


@pytest.mark.parametrize(
    ("words", "gpus"), [(launch_command(SLURM[0]), 8), (MANY, 1)], ids=["header", "README"]
)
def test_jobs_of_submitit(words, gpus, monkeypatch):
    """fairseq starts a process for each GPU, and counts those of the machine that submits."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="extra slurm")
    _, _, *words = words
    name, given = overrides(words)
    # The first job of a sweep.
    cfg = composed_job(PRETRAINING / f"{name}.yaml", *(word.partition(",")[0] for word in given))
    launcher = cfg.hydra.launcher
    assert launcher._target_.endswith(".SlurmLauncher")
    assert launcher.tasks_per_node == 1
    monkeypatch.setattr(HydraConfig.instance(), "cfg", cfg)
    assert cfg.distributed_training.distributed_world_size == launcher.gpus_per_node == gpus
