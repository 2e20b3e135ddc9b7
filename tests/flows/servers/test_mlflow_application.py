"""MLflow's first page; tests/browser looks at where it leads."""

import subprocess
import sys

PROGRAM = """
from starlette.testclient import TestClient
from flows.servers.mlflow_application import create_app

pages = TestClient(create_app(), base_url="http://127.0.0.1:5000")
assert pages.get("/health").text == "OK"
print(pages.get("/").text)
"""


def test_the_first_page_is_mlflows_with_the_way_to_the_experiment():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "experiment_name=domain-adaptation" in done.stdout
    assert '<div id="root"' in done.stdout
