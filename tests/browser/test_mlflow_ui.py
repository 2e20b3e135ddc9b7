"""What a person sees in MLflow, and the report as a page."""

import pytest
from playwright.sync_api import expect

from model.tracking.registry import REGISTERED, Registry

pytestmark = pytest.mark.timeout(2400)


def test_mlflow_has_the_run_its_nested_runs_and_their_curves(adapted, page, picture):
    servers = adapted
    import mlflow

    client = mlflow.MlflowClient(servers.mlflow)
    experiment = client.get_experiment_by_name("domain-adaptation")
    runs = client.search_runs([experiment.experiment_id])
    [training] = [
        r for r in runs if r.info.run_name == "pre-training" and r.info.status == "FINISHED"
    ]
    page.goto(f"{servers.mlflow}/#/experiments/{experiment.experiment_id}/runs")
    expect(page.get_by_text("sample-600").first).to_be_visible()
    picture(page, "mlflow-runs")
    page.goto(
        f"{servers.mlflow}/#/experiments/{experiment.experiment_id}/runs/{training.info.run_id}/model-metrics"
    )
    expect(page.get_by_text("discriminator_loss").first).to_be_visible()
    page.wait_for_timeout(4000)
    picture(page, "mlflow-curves")
    page.goto(
        f"{servers.mlflow}/#/experiments/{experiment.experiment_id}/runs/{training.info.run_id}/system-metrics"
    )
    expect(page.get_by_text("cpu_utilization_percentage").first).to_be_visible()
    picture(page, "mlflow-system")


def test_the_registry_shows_the_champion(adapted, page, picture):
    registry = Registry(adapted.mlflow)
    if not registry.get_by_alias("champion"):
        registry.promote("1", "by hand")
    page.goto(f"{adapted.mlflow}/#/models/{REGISTERED}")
    expect(page.get_by_text("champion").first).to_be_visible()
    picture(page, "mlflow-champion")


def test_the_report_is_a_page_of_its_own(adapted, page, picture):
    report = max(adapted.store.glob("report/*/report.html"), key=lambda path: path.stat().st_mtime)
    page.goto(f"file://{report}")
    expect(page.get_by_text("polarity").first).to_be_visible()
    picture(page, "report")
