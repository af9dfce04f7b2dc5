"""Models behind the Open Inference Protocol, served by threads of this process."""

import json
import socket
import threading
import time
from contextlib import contextmanager, suppress

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from _inference_server import InferenceServer
from brinell import plugins
from brinell.core.domain import Column, Domain
from brinell.core.errors import ModelError, RequestError, SampleError, UnreachableError
from brinell.core.model import Access
from brinell.models._channel import Channel
from brinell.models._protocol import AnswerError, Slot, answer, request
from brinell.models.http import Http
from brinell.testing import check_model

VECTOR = Domain(kind="vector", shape=(2,))
IMAGE = Domain(kind="image", shape=(3, 2, 4), levels=256)
QUICK = {"backoff": 0.001, "timeout": 5.0, "retries": 4}


def linear(x):
    """Logits x0 - x1, x1 - x0 and 0 of vectors, exact in float32."""
    lead = x[:, 0] - x[:, 1]
    return np.stack([lead, -lead, np.zeros_like(lead)], 1).astype(np.float32)


def total(x):
    """Two logits of inputs of any shape: the sum of each one's values, weighted so that their order shows, and its negative."""
    flat = x.reshape(len(x), -1).astype(np.float64)
    z = flat @ np.arange(1, flat.shape[1] + 1)
    return np.stack([z, -z], 1).astype(np.float32)


@pytest.fixture(autouse=True)
def _no_token(monkeypatch):
    monkeypatch.delenv("BRINELL_TOKEN", raising=False)


def opened(url, domain=VECTOR, **options):
    return Http(path=url, **(QUICK | options))(domain)


def some(n, domain=VECTOR, seed=1):
    return torch.rand(n, *domain.shape, generator=torch.Generator().manual_seed(seed))


# What goes out and what comes back


@pytest.mark.parametrize("binary", [True, False])
def test_a_linear_model_answers_what_it_would_here(binary):
    server = InferenceServer(linear, binary=binary)
    with server.running() as url:
        model = opened(url)
        x = some(150)
        assert torch.equal(model.predict(x), torch.from_numpy(linear(x.numpy()))), "no digit is lost on the way"
        check_model(model)
    assert (model.classes, model.access, model.name) == (3, Access.SCORES, "net")
    assert model.served["encoding"] == ("binary" if binary else "json")
    assert [one.code for one in model.remarks()] == ([] if binary else ["json"])
    if not binary:
        assert "no binary tensors here" in model.remarks()[0].text


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=8).filter(lambda v: not len(v) % 2),
    st.booleans(),
)
def test_every_float_comes_through(values, binary):
    x = np.array(values, np.float32).reshape(-1, 2)
    body, headers = request(Slot("x", "FP32", (2,)), x, binary=binary)
    server = InferenceServer(lambda given: given)
    back, told = server.infer(body, headers.get("Inference-Header-Content-Length"))
    assert np.array_equal(server.seen[0], x)
    assert np.array_equal(answer(back, told), x)


@pytest.mark.parametrize(("datatype", "kind"), [("FP16", np.float16), ("FP64", np.float64), ("UINT8", np.uint8)])
@pytest.mark.parametrize("encoding", ["binary", "json"])
def test_datatypes(datatype, kind, encoding):
    server = InferenceServer(total, (2,), datatype=datatype)
    x = torch.tensor([[0.0, 1.0], [0.2, 0.6]])
    with server.running() as url:
        opened(url, encoding=encoding).predict(x)
    sent = server.seen[-1]
    expected = np.array([[0, 255], [51, 153]], np.uint8) if kind is np.uint8 else x.numpy().astype(kind)
    assert sent.dtype == kind and np.array_equal(sent, expected)


def test_bytes_are_remarked_and_any_range_can_be_asked_for():
    with InferenceServer(total, (2,), datatype="UINT8").running() as url:
        assert "rounded" in [one.code for one in opened(url).remarks()]
    server = InferenceServer(total)
    with server.running() as url:
        opened(url, low=-1.0, high=1.0).predict(torch.tensor([[0.0, 0.75]]))
        assert server.seen[-1].tolist() == [[-1, 0.5]]


def test_normalisation_is_done_on_the_way_out():
    server = InferenceServer(total, (3, 2, 4))
    with server.running() as url:
        opened(url, IMAGE, mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 1.0)).predict(torch.full((1, 3, 2, 4), 0.5))
    assert server.seen[-1][0, :, 0, 0].tolist() == [0, 1, 0.5]


def test_columns_are_sent_in_their_own_units():
    columns = (Column("age", 20.0, 70.0), Column("kind", fixed=True, values=("a", "b", "c")))
    domain = Domain(kind="vector", shape=(2,), low=(0.0, 0.0), high=(1.0, 2.0), columns=columns)
    server = InferenceServer(total)
    with server.running() as url:
        opened(url, domain).predict(torch.tensor([[0.5, 2.0]]))
        assert server.seen[-1].tolist() == [[45, 2]]
        assert set(np.concatenate(server.seen)[:, 1].tolist()) <= {0, 1, 2}, "a category is never in between"
        with pytest.raises(RequestError, match="units of their table"):
            opened(url, domain, low=0.0, high=1.0)


@pytest.mark.parametrize(
    ("stated", "options", "sent"),
    [
        ([-1, 3, 2, 4], {}, lambda x: x),
        ([-1, 2, 4, 3], {}, lambda x: x.permute(0, 2, 3, 1)),
        ([-1, -1, -1, 3], {}, lambda x: x.permute(0, 2, 3, 1)),
        ([-1, 3, -1, -1], {}, lambda x: x),
        ([-1, -1, -1, -1], {"layout": "last"}, lambda x: x.permute(0, 2, 3, 1)),
        ([-1, 24], {"layout": "last"}, lambda x: x.permute(0, 2, 3, 1).flatten(1)),
        ([-1, 24], {"layout": "first"}, lambda x: x.flatten(1)),
        ([], {"layout": "last"}, lambda x: x.permute(0, 2, 3, 1)),
    ],
)
def test_layouts(stated, options, sent):
    metadata = {"name": "net", "inputs": [{"name": "x", "datatype": "FP32", "shape": stated}]}
    server = InferenceServer(total, metadata=metadata)
    x = some(5, IMAGE)
    with server.running() as url:
        opened(url, IMAGE, **options).predict(x)
    assert np.array_equal(server.seen[-1], sent(x).numpy())


def test_a_grey_image_needs_no_channel():
    domain = Domain(kind="image", shape=(1, 2, 4))
    server = InferenceServer(total, (2, 4))
    with server.running() as url:
        opened(url, domain).predict(some(3, domain))
    assert server.seen[-1].shape == (3, 2, 4)


def test_a_fixed_batch_is_filled_and_the_filling_counts_for_nothing():
    metadata = {"name": "net", "inputs": [{"name": "x", "datatype": "FP32", "shape": [4, 2]}]}
    server = InferenceServer(linear, metadata=metadata)
    x = some(6)
    with server.running() as url:
        model = opened(url)
        assert torch.equal(model.predict(x), torch.from_numpy(linear(x.numpy())))
    assert {len(one) for one in server.seen} == {4} and model.traffic() == {"inputs": 6, "requests": 2}


# What the answers are


def test_probabilities_become_their_logarithm():
    def softmax(x):
        return torch.from_numpy(linear(30 * x)).softmax(1).numpy()

    x = some(20)
    with InferenceServer(softmax).running() as url:
        model = opened(url)
        logits = model.predict(x)
        assert torch.allclose(logits.softmax(1), torch.from_numpy(softmax(x.numpy())), atol=1e-6)
        assert "probabilities" in [one.code for one in model.remarks()] and bool(torch.isfinite(logits).all())
        assert torch.equal(opened(url, answers="logits").predict(x), torch.from_numpy(softmax(x.numpy())))


@pytest.mark.parametrize("form", [lambda labels: labels, lambda labels: labels[:, None]])
def test_labels(form):
    with InferenceServer(lambda x: form(linear(x).argmax(1))).running() as url:
        with pytest.raises(RequestError, match="classes="):
            opened(url)
        model = opened(url, classes=4)
        x = some(9)
        assert model.access == Access.LABELS and model.classes == 4
        assert model.predict(x).argmax(1).tolist() == linear(x.numpy()).argmax(1).tolist()
        check_model(model)


def test_labels_as_floats_have_to_be_named():
    with InferenceServer(lambda x: linear(x).argmax(1).astype(np.float32)).running() as url:
        with pytest.raises(ModelError, match="answers=labels&classes="):
            opened(url)
        assert opened(url, answers="labels", classes=3).access == Access.LABELS


def test_one_of_several_outputs():
    def reply(x, y):
        one = {"datatype": "FP32", "shape": list(y.shape), "data": y.tolist()}
        return {"outputs": [one | {"name": "a"}, one | {"name": "b", "data": (-y).tolist()}]}

    server = InferenceServer(linear, reply=reply)
    x = some(3)
    with server.running() as url:
        with pytest.raises(ModelError, match=r"2 outputs \(a, b\): name one with the option output="):
            opened(url)
        assert torch.equal(opened(url, output="b").predict(x), -torch.from_numpy(linear(x.numpy())))
    head = json.loads(server.bodies[-1][: int(server.headers[-1]["Inference-Header-Content-Length"])])
    assert head["outputs"] == [{"name": "b", "parameters": {"binary_data": True}}]


# How much at once


def test_requests_fly_together_and_never_more_than_said():
    server = InferenceServer(linear, faults=lambda number: "delay0.02")
    with server.running() as url:
        opened(url, rows=5, concurrency=3).predict(some(60))
    assert server.most == 3 and max(len(x) for x in server.seen[-12:]) == 5 and len(server.seen[-12:]) == 12


# The token


def test_the_token_is_sent_and_stands_nowhere(monkeypatch):
    secret = "s3cret-t0ken"
    with InferenceServer(linear, token=secret).running() as url:
        with pytest.raises(UnreachableError, match="BRINELL_TOKEN") as refused:
            opened(url)
        monkeypatch.setenv("BRINELL_TOKEN", secret)
        model = opened(url)
        assert model.classes == 3
        told = repr([model.served, model.remarks(), model.digest(), vars(model)])
        assert secret not in told + str(refused.value)
        monkeypatch.setenv("BRINELL_OTHER", "wr0ng")
        with pytest.raises(UnreachableError) as refused:
            opened(url, token_env="BRINELL_OTHER")
        assert "wr0ng" not in str(refused.value) and "BRINELL_OTHER" in str(refused.value)


@pytest.mark.parametrize("escaped", [False, True])
def test_a_token_that_the_server_says_again_is_masked(monkeypatch, escaped):
    secret = "s3cret-token-of-mine"
    monkeypatch.setenv("BRINELL_TOKEN", secret)
    said = "\\u0073" + secret[1:] if escaped else secret
    with dripping(lambda line: answered(f'{{"platform": "{said}", "versions": ["{said}"], "inputs": "{said}"}}')) as url:
        with pytest.raises(RequestError) as refused:
            opened(url)
        assert secret not in str(refused.value)
    slot = f'{{"name": "{said}", "datatype": "FP32", "shape": [-1, 9]}}'
    told = f'{{"platform": "{said}", "versions": ["{said}"], "inputs": [{slot}]}}'
    with dripping(lambda line: answered(told)) as url, pytest.raises(RequestError, match="takes inputs of shape") as refused:
        opened(url)
    assert secret not in str(refused.value)
    channel = Channel("model", "BRINELL_TOKEN", timeout=1, retries=0, backoff=0, concurrency=1)
    assert channel.masked({"platform": f"a {secret}", "versions": [secret, 1]}) == {"platform": "a ***", "versions": ["***", 1]}


def answered(body):
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body.encode())}\r\n\r\n"
    return head.encode() + body.encode()


@contextmanager
def dripping(answer, pause=0.0):
    """A server on this machine that answers every connection by the same bytes, one at a time where there is a pause."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve():
            while True:
                try:
                    line, _ = door.accept()
                except OSError:
                    return
                with line, suppress(OSError):
                    line.recv(65536)
                    content = answer(line)
                    for start in range(len(content)) if pause else ():
                        line.sendall(content[start : start + 1])
                        time.sleep(pause)
                    if not pause:
                        line.sendall(content)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{door.getsockname()[1]}/v2/models/m"
        door.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("part", ["status", "header", "body"])
def test_a_server_that_sends_a_byte_at_a_time_does_not_outlast_the_timeout(part):
    long = {"status": b"HTTP/1.1 200 " + b"O" * 999, "header": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 999}
    content = long.get(part, answered(" " * 999)[:-1])
    started = time.monotonic()
    with dripping(lambda line: content, pause=0.05) as url, pytest.raises(UnreachableError, match="no answer within 0.5 s"):
        opened(url, retries=0, timeout=0.5)
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "ümlaut"])
def test_a_token_that_is_none(monkeypatch, token):
    monkeypatch.setenv("BRINELL_TOKEN", token)
    with InferenceServer(linear).running() as url, pytest.raises(RequestError, match="no bearer token") as refused:
        opened(url)
    assert token not in str(refused.value)


# Faults


@pytest.mark.parametrize("fault", ["503", "429", "500", "closed", "html", "delay0.4"])
def test_a_fault_is_asked_again_and_counted_apart(fault):
    """Requests 5, 8, 11 go wrong; the probes are those before."""
    server = InferenceServer(linear, faults=lambda number: fault if number in (5, 8, 11) else "")
    x = some(40)
    with server.running() as url:
        model = opened(url, rows=4, timeout=0.15 if fault.startswith("delay") else 5.0)
        assert torch.equal(model.predict(x), torch.from_numpy(linear(x.numpy())))
    told = model.traffic()
    assert (told.pop("inputs"), told.pop("requests"), sum(told.values())) == (40, 10, 3) and server.done[fault] == 3


def test_a_kept_connection_that_the_server_has_closed_is_no_attempt():
    """As many as may be kept are asked again at once, with no attempt to spare and a wait that would be noticed."""
    server, x = InferenceServer(linear), some(4)
    with server.running() as url:
        model = opened(url, retries=0, backoff=600.0, concurrency=3)
        before = server.requests
        server.faults = lambda number: "closed" if number <= before + 3 else ""
        assert torch.equal(model.predict(x), torch.from_numpy(linear(x.numpy())))
    told = model.traffic()
    assert (told.pop("inputs"), told.pop("requests"), sum(told.values())) == (4, 1, 3) and server.done["closed"] == 3


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def test_a_server_that_is_down():
    with pytest.raises(UnreachableError, match="does not answer .*attempts.*see to the server, then try again") as refused:
        opened(f"http://127.0.0.1:{free_port()}/v2/models/net", retries=2)
    assert refused.value.exit_code == 3 and "\n" not in str(refused.value)


def test_a_server_that_is_slow():
    with (
        InferenceServer(linear, faults=lambda number: "delay0.3").running() as url,
        pytest.raises(UnreachableError, match=r"2 attempts, no answer within 0.05 s"),
    ):
        opened(url, retries=1, timeout=0.05)


@pytest.mark.parametrize("fault", ["html", "500"])
def test_a_server_that_stops_making_sense_is_no_failed_sample(fault):
    server = InferenceServer(linear, faults=lambda number: fault if number > 2 else "")
    with server.running() as url:
        model = opened(url)
        with pytest.raises(UnreachableError, match="no longer works: it answers .*see to the server"):
            model.predict(some(3))


def test_an_input_that_the_server_refuses():
    def picky(x):
        if (x[:, 0] > 0.99).any():
            raise ValueError("value too large")
        return linear(x)

    with InferenceServer(picky).running() as url:
        model = opened(url)
        x = torch.full((3, 2), 0.5)
        x[1, 0] = 1
        with pytest.raises(SampleError, match="HTTP 400, value too large"):
            model.predict(x)
        assert len(model.predict(x[::2])) == 2, "the others go on"


def test_a_refusal_calls_off_what_waits_behind_it():
    """Forty requests, two at once; the second is refused while the third is under way and the others have not begun."""

    def picky(x):
        if (x[:, 0] == 1).any():
            raise ValueError("value too large")
        return linear(x)

    server = InferenceServer(picky)
    with server.running() as url:
        model = opened(url, rows=1, concurrency=2)
        server.faults = lambda number: "delay0.02"
        x = torch.full((40, 2), 0.5)
        x[1, 0] = 1
        before = server.requests
        with model.session():
            with pytest.raises(SampleError):
                model.predict(x)
            assert server.requests - before < 10
            assert model.traffic()["requests"] < 10 and len(model.predict(x[2:])) == 38


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (lambda x: linear(x) * np.float32("nan"), "NaN or infinity"),
        (lambda x: linear(x)[:, :1], "not one number per class"),
        (lambda x: linear(x)[:1], "to 4 inputs"),
        (lambda x: linear(x)[:, :, None], "not one number per class"),
    ],
)
def test_answers_that_no_classifier_gives(function, line):
    with InferenceServer(function).running() as url, pytest.raises(ModelError, match=line) as refused:
        opened(url)
    assert "\n" not in str(refused.value)


def test_more_classes_than_said():
    with InferenceServer(linear).running() as url, pytest.raises(ModelError, match="answers 3 classes, and classes=2 was given"):
        opened(url, classes=2)


def test_other_classes_than_at_the_beginning():
    server = InferenceServer(linear)
    with server.running() as url:
        model = opened(url)
        server.function = lambda x: linear(x).repeat(2, 1)
        with pytest.raises(UnreachableError, match=r"shape \(3, 6\), not \(3, 3\)"):
            model.predict(some(3))


@pytest.mark.parametrize(
    ("metadata", "options", "line"),
    [
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]}, {}, r"shape \(3,\), and the data are vectors"),
        ({"inputs": [{"name": n, "datatype": "FP32", "shape": [-1, 2]} for n in "ab"]}, {}, r"2 inputs \(a, b\)"),
        ({"inputs": [{"name": "a", "datatype": "FP32", "shape": [-1, 2]}]}, {"input": "b"}, "has input a"),
        ({"inputs": [{"name": "x", "datatype": "BYTES", "shape": [-1, 2]}]}, {}, "datatype BYTES"),
        ({"inputs": []}, {}, "input=NAME"),
        ({"inputs": 7}, {}, "in another way than the protocol"),
        ({"inputs": [{"name": "x"}]}, {}, "in another way than the protocol"),
    ],
)
def test_metadata_that_do_not_fit(metadata, options, line):
    with (
        InferenceServer(linear, metadata={"name": "net"} | metadata).running() as url,
        pytest.raises(RequestError, match=line) as refused,
    ):
        opened(url, **options)
    assert "\n" not in str(refused.value)


def test_channels_that_could_be_first_or_last():
    with InferenceServer(total, (24,)).running() as url, pytest.raises(RequestError, match="layout=first or layout=last"):
        opened(url, IMAGE)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("http://127.0.0.1:1/v1/models/net", "write http://HOST:PORT/v2/models/NAME"),
        ("http://127.0.0.1:1/v2/models/", "write http://HOST:PORT/v2/models/NAME"),
        ("ftp://127.0.0.1/v2/models/net", "write http://HOST:PORT/v2/models/NAME"),
        ("http://me:pw@127.0.0.1:1/v2/models/net", "password"),
        ("", "write http://HOST:PORT/v2/models/NAME"),
    ],
)
def test_addresses(path, line):
    with pytest.raises(RequestError, match=line) as refused:
        opened(path)
    assert "pw" not in str(refused.value)


def test_a_model_that_is_not_there():
    with InferenceServer(linear).running() as url, pytest.raises(RequestError, match="HTTP 404, no such model.*check the URL"):
        opened(url + "x")


@pytest.mark.parametrize("options", [{"rows": 0}, {"timeout": 0}, {"retries": -1}, {"datatype": "INT3"}, {"low": 0.0}])
def test_options_out_of_range(options):
    with pytest.raises(RequestError):
        plugins.build("model", "http", options)


@given(st.binary(max_size=200), st.none() | st.text(max_size=4) | st.integers(0, 300).map(str))
def test_no_answer_breaks_the_reader(body, length):
    """Whatever a server sends is read or refused in one line."""
    headers = {} if length is None else {"Inference-Header-Content-Length": length}
    try:
        answer(body, headers)
    except AnswerError as error:
        assert "\n" not in str(error)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["binary_data_size", "x"]), inner, max_size=2),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "name": json_values,
            "datatype": st.sampled_from(["FP32", "INT64", "BYTES"]) | json_values,
            "shape": st.lists(st.integers(-2, 4), max_size=3) | json_values,
            "data": json_values,
            "parameters": json_values,
        },
    )
)
def test_no_output_breaks_the_reader(output):
    try:
        answer(json.dumps({"outputs": [output]}).encode(), {})
    except AnswerError as error:
        assert "\n" not in str(error)
