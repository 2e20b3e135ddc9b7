"""Clicks beside a run that writes: the UI sends each once, so each must be taken."""

import asyncio
import itertools
import os
import uuid
from collections import Counter

import httpx

STARTS, WRITERS, EACH = 4, 3, 12


async def answers_to_clicks_beside_writers():
    """The answers' codes to requests that start runs, which come beside requests that write logs. No retries."""
    client = str(uuid.uuid4())
    async with httpx.AsyncClient(base_url=os.environ["PREFECT_API_URL"], timeout=90) as api:
        token = await api.get("/csrf-token", params={"client": client})
        api.headers = {"Prefect-Csrf-Client": client, "Prefect-Csrf-Token": token.json()["token"]}
        flow = (await api.post("/flows/", json={"name": client})).json()["id"]
        deployment = (await api.post("/deployments/", json={"name": client, "flow_id": flow})).json()["id"]
        line = {"name": "test", "level": 20, "message": "a line", "timestamp": "2026-01-01T00:00:00Z"}

        async def sent(address, body):
            return [(await api.post(address, json=body)).status_code for _ in range(EACH)]

        clicks = [sent(f"/deployments/{deployment}/create_flow_run", {}) for _ in range(STARTS)]
        logs = [sent("/logs/", [line] * 20) for _ in range(WRITERS)]
        codes = await asyncio.gather(*clicks, *logs)
        question = {"deployments": {"id": {"any_": [deployment]}}}
        runs = (await api.post("/flow_runs/count", json=question)).json()
        return Counter(itertools.chain(*codes)), runs


def test_every_click_starts_a_run_while_others_write(prefect_home):
    codes, runs = asyncio.run(answers_to_clicks_beside_writers())
    assert codes == {201: (STARTS + WRITERS) * EACH}
    assert runs == STARTS * EACH
