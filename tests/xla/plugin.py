"""The CPU plugin of the wheel xla-cpu-pjrt, for the tests beside this file."""
import os
import sys
import sysconfig

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from counting import finish, skip  # noqa: E402

PATH = os.path.join(sysconfig.get_paths()["purelib"], "xla_plugins", "xla_cpu_pjrt", "xla_cpu_pjrt.so")
# programs are compiled quickly rather than well
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false"
ENV = {"XLA_FLAGS": QUICK, "MLXCEL_XLA_CACHE": "off", "MLXCEL_XLA_PLUGIN": PATH}


def need():
    """Ends the test, as skipped, where there is no such plugin."""
    if not os.path.exists(PATH):
        skip("the xla backend: there is no CPU plugin for this machine (pip install xla-cpu-pjrt)")
        finish()
