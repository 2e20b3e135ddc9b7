"""MLflow's own server, whose first page is the experiment of the runs.

MLflow's own first page is a tour with a notice about telemetry, which is off here, and a panel that
asks for the key of a language model. Addresses of other pages lead where they did.
"""

from pathlib import Path
from typing import Any

from model.tracking.mlflow_run import EXPERIMENT

FIRST_PAGE = f"""
<style>[data-assistant-ui] {{ display: none !important }}</style>
<script>
  for (const seen of ["mlflow.assistant.fab.autoOpenedOnFirstLoad_v1",
                      "mlflow.telemetry.info.alert.dismissed_v1"])
    localStorage.setItem(seen, "true");
  if (["", "#/"].includes(location.hash))
    fetch("ajax-api/2.0/mlflow/experiments/get-by-name?experiment_name={EXPERIMENT}")
      .then(answer => answer.ok ? answer.json() : Promise.reject())
      .then(found => location.replace(`#/experiments/${{found.experiment.experiment_id}}/runs`))
      .catch(() => {{}});  // no run yet: MLflow's own first page
</script>
"""


def create_app() -> Any:
    """Return MLflow's application with our first page (entry point `mlflow.app`)."""
    from mlflow.server import app as pages
    from mlflow.server.fastapi_app import app

    page = Path(str(pages.static_folder), "index.html").read_text(encoding="utf-8")
    first_page = page.replace("<head>", f"<head>{FIRST_PAGE}", 1)
    pages.view_functions["serve"] = lambda: first_page
    return app
