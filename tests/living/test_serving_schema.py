"""The server against its own description: made-up requests, right and wrong ones, for each path."""

import io
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from PIL import Image

import mdmt
from mdmt.living.jobs import Jobs
from support.deliveries import delivery

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

from schemathesis.checks import load_all_checks  # noqa: E402
from schemathesis.python.asgi import shutdown_lifespans  # noqa: E402
from schemathesis.specs.openapi.checks import positive_data_acceptance  # noqa: E402

from mdmt.living.serving import Serving  # noqa: E402
from mdmt.living.web_app import make_app  # noqa: E402

TOKEN = "secret"
EXAMPLES = 20
SETTINGS = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def picture():
    content = io.BytesIO()
    Image.fromarray(np.full((5, 5), 90, np.uint8)).save(content, "PNG")
    return content.getvalue()


def numbers(folder):
    model = mdmt.LivingModel(folder)
    model.learn(delivery(["owl", "kite"], size=4), name="january")
    return model


def pixels(folder):
    model = mdmt.LivingModel(folder)
    x = np.random.default_rng(0).integers(0, 256, (20, 1, 4, 4)).astype(np.uint8)
    model.learn((x, ["owl", "kite"] * 10), name="january", epochs=1)
    return model


def that_fits(case):
    """Replace what no description can say: that a file is an image, what a version's number is."""
    if isinstance(case.body, dict):
        case.body.update({"files": [picture()]} if "files" in case.body else {})
        case.body.update({"version": 1} if "version" in case.body else {})
        if "labels" in case.body:
            case.body["labels"] = ["wren"] * len(case.body["inputs"])
    if "number" in case.path_parameters:
        case.path_parameters["number"] = 1
    return case


def ask(operation, mode):
    """How often each status came; every answer was checked against the description."""
    statuses = Counter()
    auth = {"Authorization": f"Bearer {TOKEN}"}
    right = mode.is_positive

    @SETTINGS
    @given(operation.as_strategy(generation_mode=mode, headers=auth), st.booleans())
    def asked(case, fits):
        response = (that_fits(case) if right and fits else case).call()
        statuses[response.status_code] += 1
        case.validate_response(response, excluded_checks=[positive_data_acceptance])

    asked()
    return statuses


@pytest.mark.parametrize(
    ("make", "learn"), [(numbers, False), (pixels, True)], ids=["answers", "learns"]
)
def test_every_answer_is_as_described(tmp_path, monkeypatch, make, learn):
    """No error of the server, no status or body that it does not announce, no bad data accepted."""
    monkeypatch.setattr(Jobs, "start", lambda jobs: None)  # accepted is enough
    load_all_checks()
    app = make_app(Serving(make(tmp_path / "m"), learn=learn), token=TOKEN)
    try:
        schema = schemathesis.openapi.from_asgi("/openapi.json", app)
        operations = [found.ok() for found in schema.get_all_operations()]
        assert len(operations) == (12 if learn else 7)
        for operation in operations:
            right = ask(operation, schemathesis.GenerationMode.POSITIVE)
            is_images = operation.path == "/predict/images"
            assert learn or not is_images or set(right) == {422}
            assert {200, 202} & set(right) or (is_images and not learn), (operation.label, right)
            if operation.method == "post" or operation.path_parameters:
                wrong = ask(operation, schemathesis.GenerationMode.NEGATIVE)
                assert not {200, 202} & set(wrong), (operation.label, wrong)
    finally:
        shutdown_lifespans()
