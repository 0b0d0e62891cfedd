"""Each variable that can change a result is taken away or written down; a secret is neither."""

from __future__ import annotations

import pytest

from gallery_recorder.run import environment

REMOVED = (
    *("PYTHONOPTIMIZE", "PYTHONDEVMODE", "PYTHONWARNINGS", "PYTHONINSPECT", "PYTHONSTARTUP"),
    *("PYTHONPATH", "PYTHONHASHSEED", "PYTHONPROFILEIMPORTTIME", "PYTHONVERBOSE", "PYTHONDEBUG"),
    *("PYTHONBREAKPOINT", "PYTHONASYNCIODEBUG", "PYTHONTRACEMALLOC", "PYTHONSAFEPATH"),
    *("PYTHONIOENCODING", "PYTHONNODEBUGRANGES", "PYTHONCASEOK", "PYTHONWARNDEFAULTENCODING"),
    *("MPLBACKEND", "FORCE_COLOR", "PYTEST_CURRENT_TEST"),
    *("NVIDIA_REQUIRE_CUDA", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
    "NVIDIA_PRODUCT_NAME",
)
KEPT = (
    *(
        "CUDA_LAUNCH_BLOCKING",
        "NVIDIA_TF32_OVERRIDE",
        "PYTORCH_CUDA_ALLOC_CONF",
        "CUDA_MODULE_LOADING",
    ),
    *("PYTORCH_NO_CUDA_MEMORY_CACHING", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_LOGS"),
    *("TRITON_INTERPRET", "TRITON_CACHE_DIR", "HIP_LAUNCH_BLOCKING", "HIP_FORCE_DEV_KERNARG"),
    *("AMD_LOG_LEVEL", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG"),
    *("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "NVTE_FUSED_ATTN"),
    *("TORCHINDUCTOR_MAX_AUTOTUNE", "LD_PRELOAD", "LD_LIBRARY_PATH", "MALLOC_ARENA_MAX"),
    *("HSA_OVERRIDE_GFX_VERSION", "KMP_AFFINITY", "NCCL_DEBUG", "PYTHONMALLOC"),
)
SECRET = (
    *("NVIDIA_API_KEY", "TORCH_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "GH_TOKEN", "HF_TOKEN"),
    *("DB_PASSWORD", "CUDA_REGISTRY_PASSWORD", "GOOGLE_APPLICATION_CREDENTIALS", "api_key"),
)
FREE = ("HOME", "PATH", "PYTHONHOME", "PYTHONUSERBASE", "USER", "MONKEY", "KEYBOARD", "LANG")


@pytest.mark.parametrize("name", REMOVED)
def test_what_changes_python_is_taken_away(name):
    assert environment.inherited({name: "1"}) == {}


@pytest.mark.parametrize("name", KEPT)
def test_what_changes_results_is_written_down(name):
    assert environment.inherited({name: "1"}) == {name: "1"}
    assert environment.kept({name: "1"}) == {name: "1"}


@pytest.mark.parametrize("name", SECRET)
def test_a_secret_is_neither_handed_on_nor_written_down(name):
    assert environment.inherited({name: "1"}) == {}
    assert environment.kept({name: "1"}, (name,)) == {}


@pytest.mark.parametrize("name", FREE)
def test_the_rest_is_handed_on_and_not_written_down(name):
    assert environment.inherited({name: "1"}) == {name: "1"}
    assert environment.kept({name: "1"}) == {}
    assert environment.kept({name: "1"}, (name,)) == {name: "1"}
