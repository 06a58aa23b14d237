"""A published source with a few figures, for tests of their uses."""

from __future__ import annotations

from runner.results.published.model import Published


def source(*tables: dict, findings: tuple = (), contradictions: tuple = (), **hardware: object) -> Published:
    """A source with one kind of GPU, `v100`, and these tables."""
    return Published.model_validate(
        {
            "id": "made-up",
            "source": {"title": "Made up", "authors": ["Nobody"], "date": "2020-05", "kind": "test"},
            "hardware": {"gpus": [{"id": "v100", "model": "V100"}], **hardware},
            "tables": tables,
            "findings": findings,
            "contradictions": contradictions,
        }
    )


def table(*rows: dict, metric: str = "throughput", unit: str = "images/s", **conditions: object) -> dict:
    """A table on V100s with a ResNet-50; each row has at least an id and a value."""
    shared = {"gpu": "v100", "model": "resnet50", **conditions}
    return {"metric": metric, "unit": unit, "where": "Table 1", "conditions": shared, "rows": rows}


def rate(devices: int, value: float, **conditions: object) -> dict:
    """A row of throughput; by default its id is `g` and the number of devices."""
    return {"id": f"g{devices}", "gpus": devices, "value": value, **conditions}
