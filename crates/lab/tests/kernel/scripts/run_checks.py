"""See checks.py."""
import importlib
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import checks

if __name__ == "__main__":
    split = sys.argv.index("--")
    for module in sys.argv[1:split]:
        importlib.import_module(module)
    sys.exit(checks.main(sys.argv[split + 1 :]))
