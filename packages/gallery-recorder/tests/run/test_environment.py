"""Each variable that can change a result is removed or recorded; a secret is neither passed on."""

import pytest

from gallery_recorder.run import environment

REMOVED = """
PYTHONOPTIMIZE PYTHONWARNINGS PYTHONPATH PYTHONHASHSEED PYTHONIOENCODING PYTHONSAFEPATH MPLBACKEND
FORCE_COLOR PYTEST_CURRENT_TEST NVIDIA_REQUIRE_CUDA NVIDIA_VISIBLE_DEVICES NVIDIA_PRODUCT_NAME
"""
KEPT = """
CUDA_LAUNCH_BLOCKING NVIDIA_TF32_OVERRIDE PYTORCH_CUDA_ALLOC_CONF TORCH_LOGS TRITON_INTERPRET
HIP_LAUNCH_BLOCKING OMP_NUM_THREADS CUBLAS_WORKSPACE_CONFIG ONEDNN_MAX_CPU_ISA LD_PRELOAD
MALLOC_ARENA_MAX HSA_OVERRIDE_GFX_VERSION NCCL_DEBUG PYTHONMALLOC LLVM_PASS_PLUGIN_PATH
"""
SECRET = """
NVIDIA_API_KEY TORCH_HUB_TOKEN AWS_SECRET_ACCESS_KEY GH_TOKEN GITHUB_TOKENS DB_PASSWORD PGPASSWORD
CUDA_REGISTRY_PASSWORD GOOGLE_APPLICATION_CREDENTIALS api_key API_KEYS DB_PASS SSHPASS MYSQL_PWD
SIGNING_PASSPHRASE CI_JOB_JWT CI_JOB_JWT_V2 SSH_PRIVATE_KEY PRIVATEKEY SESSION_COOKIE GITHUB_PAT
NPM_AUTH SENTRY_DSN AWS_CREDS
"""
FREE = """
HOME PATH PYTHONHOME PYTHONUSERBASE USER MONKEYPATCH KEYBOARD LANG PWD OLDPWD
TOKENIZERS_PARALLELISM PASSENGER_APP_ENV COMPASS BYPASS SSH_AUTH_SOCK
"""


@pytest.mark.parametrize("name", REMOVED.split())
def test_a_variable_that_changes_python_is_removed(name):
    assert environment.inherited({name: "1"}) == {}


@pytest.mark.parametrize("name", KEPT.split())
def test_a_variable_that_changes_results_is_recorded(name):
    assert environment.inherited({name: "1"}) == {name: "1"}
    assert environment.kept({name: "1"}) == {name: "1"}


@pytest.mark.parametrize("name", SECRET.split())
def test_a_secret_is_neither_passed_on_nor_recorded(name):
    assert environment.inherited({name: "1"}) == {}
    assert environment.kept({name: "1"}, (name,)) == {}


@pytest.mark.parametrize("name", FREE.split())
def test_other_variables_are_passed_on_and_recorded_only_on_demand(name):
    assert environment.inherited({name: "1"}) == {name: "1"}
    assert environment.kept({name: "1"}) == {}
    assert environment.kept({name: "1"}, (name,)) == {name: "1"}


def test_which_of_equal_gpus_was_used_is_not_recorded():
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        assert environment.kept({name: "1"}, (name,)) == {}
