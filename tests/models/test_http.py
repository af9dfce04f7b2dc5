"""Models behind the Open Inference Protocol, served by threads of this process."""

import json
import socket
import threading
from contextlib import contextmanager, suppress

import numpy as np
import pytest
import torch

from _inference_server import InferenceServer
from _served import IMAGE, linear, open_model, random_inputs, total
from brinell.core.domain import Column, Domain
from brinell.core.errors import ModelError, RequestError, UnreachableError
from brinell.core.model import Access
from brinell.models._answers import recognise_answers
from brinell.testing import check_model

# What goes out and what comes back


def test_a_linear_model_answers_what_it_would_here():
    with InferenceServer(linear).running() as url:
        model = open_model(url)
        x = random_inputs(150)
        assert torch.equal(model.predict(x), torch.from_numpy(linear(x.numpy()))), (
            "no digit is lost on the way"
        )
        check_model(model)
    assert (model.classes, model.access, model.name) == (3, Access.SCORES, "net")
    assert model.remarks() == []


def test_datatypes_ranges_and_normalisation():
    x = torch.tensor([[0.0, 1.0], [0.2, 0.6]])
    for datatype, kind in (("FP16", np.float16), ("FP64", np.float64), ("UINT8", np.uint8)):
        server = InferenceServer(total, (2,), datatype=datatype)
        with server.running() as url:
            model = open_model(url)
            model.predict(x)
        expected = (
            np.array([[0, 255], [51, 153]], np.uint8)
            if kind is np.uint8
            else x.numpy().astype(kind)
        )
        assert server.inputs[-1].dtype == kind and np.array_equal(server.inputs[-1], expected)
        assert ("rounded" in [remark.code for remark in model.remarks()]) == (kind is np.uint8)
    server = InferenceServer(total)
    with server.running() as url:
        open_model(url, mean=(0.5,), std=(0.5,)).predict(torch.tensor([[0.0, 0.75]]))
        assert server.inputs[-1].tolist() == [[-1, 0.5]]
    server = InferenceServer(total, (3, 2, 4))
    with server.running() as url:
        open_model(url, IMAGE, mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 1.0)).predict(
            torch.full((1, 3, 2, 4), 0.5)
        )
    assert server.inputs[-1][0, :, 0, 0].tolist() == [0, 1, 0.5]


def test_columns_are_sent_in_their_own_units():
    columns = (Column("age", 20.0, 70.0), Column("kind", fixed=True, values=("a", "b", "c")))
    domain = Domain(kind="vector", shape=(2,), low=(0.0, 0.0), high=(1.0, 2.0), columns=columns)
    server = InferenceServer(total)
    with server.running() as url:
        open_model(url, domain).predict(torch.tensor([[0.5, 2.0]]))
        assert server.inputs[-1].tolist() == [[45, 2]]
        assert set(np.concatenate(server.inputs)[:, 1].tolist()) <= {0, 1, 2}, (
            "a category is never in between"
        )


def test_layouts():
    rows = [
        ([-1, 3, 2, 4], {}, lambda x: x),
        ([-1, 2, 4, 3], {"layout": "last"}, lambda x: x.permute(0, 2, 3, 1)),
        ([-1, -1, -1, 3], {"layout": "last"}, lambda x: x.permute(0, 2, 3, 1)),
        ([-1, 3, -1, -1], {}, lambda x: x),
        ([-1, -1, -1, -1], {"layout": "last"}, lambda x: x.permute(0, 2, 3, 1)),
        ([-1, 24], {"layout": "last"}, lambda x: x.permute(0, 2, 3, 1).flatten(1)),
        ([-1, 24], {"layout": "first"}, lambda x: x.flatten(1)),
        ([], {"layout": "last"}, lambda x: x.permute(0, 2, 3, 1)),
    ]
    for stated, options, sent in rows:
        metadata = {"name": "net", "inputs": [{"name": "x", "datatype": "FP32", "shape": stated}]}
        server = InferenceServer(total, metadata=metadata)
        x = random_inputs(5, IMAGE)
        with server.running() as url:
            open_model(url, IMAGE, **options).predict(x)
        assert np.array_equal(server.inputs[-1], sent(x).numpy())


def test_a_fixed_batch_is_filled_and_the_filling_counts_for_nothing():
    metadata = {"name": "net", "inputs": [{"name": "x", "datatype": "FP32", "shape": [4, 2]}]}
    server = InferenceServer(linear, metadata=metadata)
    x = random_inputs(6)
    with server.running() as url:
        model = open_model(url)
        assert torch.equal(model.predict(x), torch.from_numpy(linear(x.numpy())))
    assert {len(batch) for batch in server.inputs} == {4} and model.traffic() == {
        "inputs": 6,
        "requests": 2,
    }


# What the answers are


def test_probabilities_become_their_logarithm():
    def softmax(x):
        return torch.from_numpy(linear(30 * x)).softmax(1).numpy()

    x = random_inputs(20)
    with InferenceServer(softmax).running() as url:
        for model in (
            open_model(url, answers="probabilities"),
            recognise_answers(open_model(url), x),
        ):
            logits = model.predict(x)
            assert torch.allclose(
                logits.softmax(1), torch.from_numpy(softmax(x.numpy())), atol=1e-6
            )
            assert bool(torch.isfinite(logits).all())
        assert torch.equal(
            open_model(url, answers="logits").predict(x), torch.from_numpy(softmax(x.numpy()))
        )


def test_labels():
    x = random_inputs(9)
    for form, options, words in (
        (lambda labels: labels, {}, "classes="),
        (lambda labels: labels[:, None], {}, "classes="),
        (
            lambda labels: labels.astype(np.float32),
            {"answers": "labels"},
            "answers=labels&classes=",
        ),
    ):
        with InferenceServer(lambda x, form=form: form(linear(x).argmax(1))).running() as url:
            with pytest.raises((RequestError, ModelError), match=words):
                open_model(url)
            model = open_model(url, classes=4, **options)
            assert model.access == Access.LABELS and model.classes == 4
            assert model.predict(x).argmax(1).tolist() == linear(x.numpy()).argmax(1).tolist()
            check_model(model)


def test_one_of_several_outputs():
    def reply(x, y):
        output = {"datatype": "FP32", "shape": list(y.shape), "data": y.tolist()}
        return {"outputs": [output | {"name": "a"}, output | {"name": "b", "data": (-y).tolist()}]}

    server = InferenceServer(linear, reply=reply)
    x = random_inputs(3)
    with server.running() as url:
        with pytest.raises(
            ModelError, match=r"2 outputs \(a, b\): name one with the option output="
        ):
            open_model(url)
        assert torch.equal(
            open_model(url, output="b").predict(x), -torch.from_numpy(linear(x.numpy()))
        )
    assert json.loads(server.bodies[-1])["outputs"] == [{"name": "b"}]


# How much at once


def test_requests_fly_together_and_never_more_than_said():
    server = InferenceServer(linear, faults=lambda number: "delay0.02")
    with server.running() as url:
        open_model(url, rows=5, concurrency=3).predict(random_inputs(60))
    assert (
        server.peak == 3
        and max(len(x) for x in server.inputs[-12:]) == 5
        and len(server.inputs[-12:]) == 12
    )


# The token


def test_the_token_is_sent_and_stands_nowhere(monkeypatch):
    secret = "s3cret-t0ken"
    with InferenceServer(linear, token=secret).running() as url:
        with pytest.raises(UnreachableError, match="BRINELL_TOKEN") as error:
            open_model(url)
        monkeypatch.setenv("BRINELL_TOKEN", secret)
        model = open_model(url)
        assert model.classes == 3
        texts = repr([model.served, model.remarks(), model.digest(), vars(model)])
        assert secret not in texts + str(error.value)
        monkeypatch.setenv("BRINELL_OTHER", "wr0ng")
        with pytest.raises(UnreachableError) as error:
            open_model(url, token_env="BRINELL_OTHER")
        assert "wr0ng" not in str(error.value) and "BRINELL_OTHER" in str(error.value)
        for token in ("two words", "line\nbreak", "ümlaut"):
            monkeypatch.setenv("BRINELL_TOKEN", token)
            with pytest.raises(RequestError, match="no valid bearer token") as error:
                open_model(url)
            assert token not in str(error.value)


@pytest.mark.parametrize("escaped", [False, True])
def test_a_token_that_the_server_says_again_is_masked(monkeypatch, escaped):
    secret = "s3cret-token-of-mine"
    monkeypatch.setenv("BRINELL_TOKEN", secret)
    echoed = "\\u0073" + secret[1:] if escaped else secret
    with answering(
        lambda line: answered(
            f'{{"platform": "{echoed}", "versions": ["{echoed}"], "inputs": "{echoed}"}}'
        )
    ) as url:
        with pytest.raises(RequestError) as error:
            open_model(url)
        assert secret not in str(error.value)
    slot = f'{{"name": "{echoed}", "datatype": "FP32", "shape": [-1, 2]}}'
    metadata = f'{{"platform": "{echoed}", "versions": ["{echoed}"], "inputs": [{slot}]}}'
    with answering(lambda line: answered(metadata)) as url, pytest.raises(ModelError) as error:
        open_model(url, retries=0)
    assert secret not in str(error.value)


def answered(body):
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
        f"{len(body.encode())}\r\n\r\n"
    )
    return head.encode() + body.encode()


@contextmanager
def answering(answer):
    """A server on this machine that answers every connection by the same bytes."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve():
            while True:
                try:
                    line, _ = door.accept()
                except OSError:
                    return
                with line, suppress(OSError):
                    line.recv(65536)
                    line.sendall(answer(line))

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{door.getsockname()[1]}/v2/models/m"
        door.shutdown(socket.SHUT_RDWR)
