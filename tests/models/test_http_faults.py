"""Servers that fail, mislead or make no sense, and what is said of them."""

import socket

import numpy as np
import pytest
import torch

from _inference_server import InferenceServer
from _refusals import refused
from _served import linear, open_model, random_inputs
from brinell import plugins
from brinell.core.errors import ModelError, RequestError, SampleError, UnreachableError


def test_a_fault_is_asked_again_and_counted_apart():
    """Requests 5, 8, 11 go wrong; the probes are those before."""
    for fault in ["503", "429", "500", "closed", "html", "delay9"]:
        server = InferenceServer(
            linear, faults=lambda number, fault=fault: fault if number in (5, 8, 11) else ""
        )
        x = random_inputs(40)
        with server.running() as url:
            model = open_model(url, rows=4, timeout=1.0 if fault.startswith("delay") else 5.0)
            assert torch.equal(model.predict(x), torch.from_numpy(linear(x.numpy())))
        traffic = model.traffic()
        assert (traffic.pop("inputs"), traffic.pop("requests"), sum(traffic.values())) == (
            40,
            10,
            3,
        ) and server.fault_counts[fault] == 3


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_a_server_that_is_down_or_slow_or_without_the_model():
    with pytest.raises(UnreachableError, check=refused("models.http.Server.ask")) as error:
        open_model(f"http://127.0.0.1:{free_port()}/v2/models/net", retries=2)
    assert error.value.exit_code == 3 and "\n" not in str(error.value)
    with InferenceServer(linear, faults=lambda number: "delay0.3").running() as url:
        with pytest.raises(UnreachableError, check=refused("models.http.Server.ask")):
            open_model(url, retries=1, timeout=0.05)
        with pytest.raises(RequestError, check=refused("models.http.RemoteModel.__init__")):
            open_model(url + "x")


@pytest.mark.parametrize("fault", ["html", "500"])
def test_a_server_that_stops_making_sense_is_no_failed_sample(fault):
    server = InferenceServer(linear, faults=lambda number: fault if number > 1 else "")
    with server.running() as url:
        model = open_model(url)
        with pytest.raises(UnreachableError, check=refused("models.http.RemoteModel.predict")):
            model.predict(random_inputs(3))


def test_an_input_that_the_server_refuses():
    def picky(x):
        if (x[:, 0] > 0.99).any():
            raise ValueError("value too large")
        return linear(x)

    with InferenceServer(picky).running() as url:
        model = open_model(url)
        x = torch.full((3, 2), 0.5)
        x[1, 0] = 1
        with pytest.raises(SampleError, check=refused("models.http.RemoteModel.predict")):
            model.predict(x)
        assert len(model.predict(x[::2])) == 2, "the others go on"


def test_a_refusal_calls_off_what_waits_behind_it():
    """Forty requests, two at once; the second is refused while the third is under way and the
    others have not begun.
    """

    def picky(x):
        if (x[:, 0] == 1).any():
            raise ValueError("value too large")
        return linear(x)

    server = InferenceServer(picky)
    with server.running() as url:
        model = open_model(url, rows=1, concurrency=2)
        server.faults = lambda number: "delay0.02"
        x = torch.full((40, 2), 0.5)
        x[1, 0] = 1
        before = server.requests
        with pytest.raises(SampleError):
            model.predict(x)
        assert server.requests - before < 10
        assert model.traffic()["requests"] < 10 and len(model.predict(x[2:])) == 38


def test_answers_that_no_classifier_gives():
    rows = [
        (lambda x: linear(x) * np.float32("nan"), {}, "NaN or infinity"),
        (lambda x: linear(x)[:1], {}, "to 4 inputs"),
        (lambda x: linear(x)[:, :, None], {}, "not a row of scores for each"),
        (linear, {"classes": 2}, r"shape \(4, 3\), not \(4, 2\)"),
    ]
    for function, options, line in rows:
        with (
            InferenceServer(function).running() as url,
            pytest.raises(ModelError, match=line) as error,
        ):
            open_model(url, **options)
        assert "\n" not in str(error.value)


def test_other_classes_than_at_the_beginning():
    server = InferenceServer(linear)
    with server.running() as url:
        model = open_model(url)
        server.function = lambda x: linear(x).repeat(2, 1)
        with pytest.raises(UnreachableError, check=refused("models.http.RemoteModel.predict")):
            model.predict(random_inputs(3))


def test_metadata_that_do_not_fit():
    rows = [
        (
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]},
            {},
            r"shape \(3,\), and the data",
        ),
        (
            {"inputs": [{"name": n, "datatype": "FP32", "shape": [-1, 2]} for n in "ab"]},
            {},
            "has the inputs a, b",
        ),
        (
            {"inputs": [{"name": "a", "datatype": "FP32", "shape": [-1, 2]}]},
            {"input": "b"},
            "has the inputs a",
        ),
        ({"inputs": [{"name": "x", "datatype": "BYTES", "shape": [-1, 2]}]}, {}, "datatype BYTES"),
        ({"inputs": []}, {}, "input=NAME"),
        ({"inputs": 7}, {}, "in another way than the protocol"),
        ({"inputs": [{"datatype": "FP32"}]}, {}, "in another way than the protocol"),
    ]
    for metadata, options, line in rows:
        with (
            InferenceServer(linear, metadata={"name": "net"} | metadata).running() as url,
            pytest.raises(RequestError, match=line) as error,
        ):
            open_model(url, **options)
        assert "\n" not in str(error.value)


def test_addresses():
    rows = [
        ("http://127.0.0.1:1/v1/models/net", "write http://HOST:PORT/v2/models/NAME"),
        ("http://127.0.0.1:1/v2/models/", "write http://HOST:PORT/v2/models/NAME"),
        ("ftp://127.0.0.1/v2/models/net", "write http://HOST:PORT/v2/models/NAME"),
        ("http://me:pw@127.0.0.1:1/v2/models/net", "password"),
        ("", "write http://HOST:PORT/v2/models/NAME"),
    ]
    for path, line in rows:
        with pytest.raises(RequestError, match=line) as error:
            open_model(path)
        assert "pw" not in str(error.value)
    for options in ({"rows": 0}, {"timeout": 0}, {"retries": -1}):
        with pytest.raises(RequestError):
            plugins.build("model", "http", options)
