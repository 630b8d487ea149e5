"""The PJRT plugin of the tests beside this file: the CPU's of the wheel xla-cpu-pjrt; or XLA_TEST_PLUGIN on XLA_TEST_DEVICE, for machines with a GPU."""
import os
import sys
import sysconfig

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counting import finish, skip  # noqa: E402

PATH = os.environ.get("XLA_TEST_PLUGIN") or os.path.join(sysconfig.get_paths()["purelib"], "xla_plugins", "xla_cpu_pjrt", "xla_cpu_pjrt.so")
# programs are compiled quickly rather than well
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false"
ENV = {"XLA_FLAGS": QUICK, "MLXCEL_XLA_CACHE": "off", "MLXCEL_XLA_PLUGIN": PATH}
if "XLA_TEST_DEVICE" in os.environ:
    ENV.update(MLXCEL_XLA_DEVICE=os.environ["XLA_TEST_DEVICE"], XLA_FLAGS=os.environ.get("XLA_FLAGS", ""), MLXCEL_PRECISION="f32")
    if os.environ["XLA_TEST_DEVICE"] != "cpu":
        ENV.update(MLXCEL_XLA_PREALLOCATE="false")


def need():
    """Ends the test, as skipped, where there is no such plugin."""
    if not os.path.exists(PATH):
        skip("the xla backend: there is no CPU plugin for this machine (pip install xla-cpu-pjrt)")
        finish()
