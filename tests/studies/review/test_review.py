"""A review end to end: pairs, server, stored answers, figures, and the page in a browser."""

import itertools
import json
import math
import random
import shutil
import socket
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

import jsonschema
import numpy as np
import pytest
import torch

import brinell
import brinell.cli
from _browser import check_everywhere, chromium
from _mutations import count_refused
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, StoppedError
from brinell.datasets._memory import ArrayDataset
from brinell.engine.progress import SilentProgress
from brinell.engine.sources import open_data
from brinell.studies.review import page as page
from brinell.studies.review.analysis import summarise
from brinell.studies.review.records import Answer, Review
from brinell.studies.review.request import ReviewRequest
from brinell.studies.review.run import make_review
from brinell.studies.review.server import ReviewServer
from brinell.testing.pages import page_faults


def new_review(folder, **settings):
    return make_review(ReviewRequest(**{"data": "digits", "trials": 20, **settings}), open_data("digits"), folder)


@contextmanager
def run_server(review, reviewer=""):
    server = ReviewServer(review, page.trial_page(review), reviewer)
    thread = threading.Thread(target=server.serve, args=(lambda text: None,))
    thread.start()
    try:
        yield server
    finally:
        server.finished.set()
        thread.join(30)
        assert not thread.is_alive()


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def post(url, content, kind="application/json"):
    request = urllib.request.Request(url + "answer", json.dumps(content).encode(), {"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


# The pairs


def test_sizes_are_those_of_what_is_shown(tmp_path):
    for norm, change in itertools.product(("linf", "l2"), ("crafted", "noise")):
        review = new_review(tmp_path / norm / change, norm=norm, change=change, eps="0.1,0.4")
        clean, changed = (pixels.astype(float) / 255 for pixels in review.pairs())
        flat = (changed - clean).reshape(len(clean), -1)
        sizes = np.abs(flat).max(1) if norm == "linf" else np.linalg.norm(flat, axis=1)
        np.testing.assert_allclose(sizes, [trial.eps for trial in review.trials], atol=1e-12)
        changed_trials = [trial for trial in review.trials if trial.eps > 0]
        assert len(changed_trials) == 16 and len(review.trials) == 20
        # Clipping only shrinks a change; rounding moves each picture by at most half a level.
        room = 1 / 255 * (1 if norm == "linf" else 8)
        assert all(trial.eps <= 0.4 + room for trial in changed_trials)
        assert {label: sum(t.label == label for t in review.trials) for label in range(10)} == dict.fromkeys(range(10), 2)


def test_the_crafted_change_by_hand(tmp_path):
    """With black and white pictures, Linf adds eps to black and cannot change white; L2 moves black by eps along the diagonal."""
    x = torch.stack([torch.zeros(1, 2, 2), torch.ones(1, 2, 2)] * 4)
    data = ArrayDataset(x, np.array([0, 1] * 4), domain=Domain(kind="image", shape=(1, 2, 2), levels=256))
    request = ReviewRequest(data="x", norm="l2", eps="0.4", trials=8, catch=0.25)
    review = make_review(request, data, tmp_path / "r")
    clean, changed = review.pairs()
    for trial in review.trials:
        if trial.eps:
            expected = 51 if trial.label == 0 else 204  # 0.4 / sqrt(4) = 0.2 of each pixel
            assert (changed[trial.number] == expected).all() and (clean[trial.number] == 255 * trial.label).all()


def test_pairs_of_a_run_have_its_distances(audit_run, patterns, tmp_path):
    request = ReviewRequest(data=patterns.data, change=f"run:{audit_run}", trials=10)
    review = make_review(request, open_data(patterns.data), tmp_path / "r")
    sizes = [trial.eps for trial in review.trials]
    assert sum(size == 0 for size in sizes) == 2 and max(sizes) <= 7.001 / 255
    with pytest.raises(RequestError, match="other data"):
        make_review(
            ReviewRequest(data="x", change=f"run:{audit_run}"),
            ArrayDataset(torch.rand(9, 1, 8, 8), np.arange(9)),
            tmp_path / "s",
        )


def test_bad_requests(tmp_path):
    for settings, message in (
        ({"eps": "0"}, "at least one size above 0"),
        ({"eps": "0.0001"}, "changes nothing on a screen"),
        ({"change": "blur"}, "crafted, noise or run:FOLDER"),
        ({"change": "run:nowhere"}, "is no run folder"),
    ):
        with pytest.raises(RequestError, match=message):
            new_review(tmp_path / "r", **settings)
    assert not (tmp_path / "r").exists()


def test_vectors_have_no_picture(tmp_path):
    data = ArrayDataset(torch.rand(6, 5), np.array([0, 1] * 3))
    with pytest.raises(RequestError, match="shows pictures"):
        make_review(ReviewRequest(data="x"), data, tmp_path / "r")


# The server


def test_the_page_is_not_told_what_it_must_not_show(tmp_path):
    review = new_review(tmp_path / "r")
    with run_server(review) as server:
        trial = get(server.url + "next")
        assert set(trial) == {"done", "total", "remaining", "trial", "pictures", "marked"}
        assert trial["total"] == trial["remaining"] == 20 and trial["trial"] == 0
        assert get(server.url + "next") == trial, "a repeated request must not skip a pair"


def test_answers_are_kept_and_a_wrong_one_is_refused(tmp_path):
    review = new_review(tmp_path / "r")
    good = {"trial": 0, "differs": True, "named": 3, "seconds": 1.5}
    with run_server(review, "ann") as server:
        for bad in ({}, [], good | {"differs": 1}, good | {"named": 10}, good | {"named": True}, good | {"trial": 1}):
            assert post(server.url, bad)[0] == 409
        assert post(server.url, good, kind="text/plain")[0] == 400
        assert post(server.url, good) == (200, {})
        assert post(server.url, good)[0] == 409, "the same pair twice"
    assert review.answers() == [Answer(trial=0, reviewer="ann", differs=True, named=3, seconds=1.5)]
    with run_server(Review.open(tmp_path / "r"), "ann") as server:
        assert get(server.url + "next")["trial"] == 1
    with run_server(Review.open(tmp_path / "r"), "bob") as server:
        assert get(server.url + "next")["trial"] == 0


def test_another_name_for_this_machine_is_refused(tmp_path):
    with run_server(new_review(tmp_path / "r")) as server:
        request = urllib.request.Request(server.url + "next", headers={"Host": "elsewhere.example:80"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request, timeout=10)


def test_a_line_that_was_cut_is_written_again(tmp_path):
    review = new_review(tmp_path / "r")
    for i in range(3):
        review.add(Answer(trial=i, reviewer="", differs=True, named=None, seconds=1.0))
    file = tmp_path / "r" / "answers.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    assert [answer.trial for answer in review.answers()] == [0, 1]
    review.add(Answer(trial=2, reviewer="", differs=False, named=None, seconds=2.0))
    assert [(answer.trial, answer.differs) for answer in review.answers()] == [(0, True), (1, True), (2, False)]
    file.write_text("{\n" + file.read_text())
    with pytest.raises(RequestError, match="line 1, is damaged"):
        review.answers()


# Results


def judge_pairs(url, review, threshold, seed=0):
    """Answer every pair like a person who notices half of the changes of size `threshold`."""
    rng, trials = random.Random(seed), {trial.number: trial for trial in review.trials}
    while not (response := get(url + "next"))["done"]:
        trial = trials[response["trial"]]
        probability = 1 / (1 + math.exp(-math.log(trial.eps / threshold) / 0.25)) if trial.eps else 0.0
        class_index = trial.label if trial.eps < 0.1 else None
        assert (
            post(url, {"trial": trial.number, "differs": rng.random() < probability, "named": class_index, "seconds": 0.1})[0]
            == 200
        )


def test_a_whole_review(tmp_path, monkeypatch):
    monkeypatch.setattr("brinell.studies.review.psychometric.POINTS", 25)
    threads, out = [], tmp_path / "r"

    class Judge(SilentProgress):
        """Starts to judge when a message announces the address of the page."""

        def note(self, text):
            url = text.split()[1]
            threads.append(threading.Thread(target=lambda: judge_pairs(url, Review.open(out), 0.06)))
            threads[0].start()

    result = brinell.review("digits", out=out, trials=60, progress=Judge())
    threads[0].join(10)
    assert result.answers == 60 and result.false_alarms == 0 and result.catch == 12
    assert result.overall.low < 0.06 < result.overall.high
    assert len(result.per_class) == 10 and sum(group.n for group in result.per_class) == 48
    assert result.by_size[0].eps == 0 and result.by_size[0].right.value == 1
    assert result.by_size[-1].right.value == 0, "changes above 0.1 hide the class"
    html = (out / "report.html").read_text()
    assert f"{result.overall.threshold:.3g}" in html and "http:" not in html and "https:" not in html
    resumed = brinell.review("digits", out=out, trials=60, resume=True, progress=SilentProgress())
    assert resumed == result
    with pytest.raises(RequestError, match="holds another review .trials was 60 and is 59."):
        brinell.review("digits", out=out, trials=59, resume=True)
    with pytest.raises(RequestError, match="holds a review"):
        brinell.review("digits", out=out, trials=60)


def test_nobody_has_judged_yet(tmp_path):
    review = new_review(tmp_path / "r")
    assert summarise(review).overall is None
    assert "No changed pair has been judged yet" in page.render(review)


# In a browser


@pytest.mark.slow
@pytest.mark.browser
def test_in_a_browser(tmp_path):
    review = new_review(tmp_path / "r", trials=4, catch=0.25)
    with run_server(review, "eve") as server, chromium() as browser:
        tab = browser.new_page()
        complaints = []
        tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto(server.url)
        for i, (first, second) in enumerate([("y", "3"), ("n", "x"), (None, None), ("y", "0")]):
            tab.wait_for_selector("#first:not([hidden])")
            assert tab.inner_text("#count") == f"Pair {i + 1} of 4"
            assert tab.evaluate("document.getElementById('left').naturalWidth") == 8
            tab.locator("#same").click() if first is None else tab.keyboard.press(first)
            tab.wait_for_selector("#second:not([hidden])")
            side = "left" if review.trials[i].changed_left else "right"
            assert tab.inner_text("#which") == f"What does the {side} picture show?"
            tab.locator("[data-class='7']").click() if second is None else tab.keyboard.press(second)
        tab.wait_for_selector("#done:not([hidden])")
    assert not complaints
    answers = [(answer.trial, answer.differs, answer.named) for answer in review.answers()]
    assert answers == [(0, True, 3), (1, False, None), (2, False, 7), (3, True, 0)]
    shutil.rmtree(tmp_path / "r")


@pytest.mark.slow
@pytest.mark.browser
def test_the_results_in_a_browser(tmp_path):
    review = new_review(tmp_path / "r", trials=60, norm="linf", change="noise")
    for trial in review.trials:
        differs = trial.eps >= 0.06
        review.add(Answer(trial=trial.number, reviewer="ann", differs=differs, named=trial.label, seconds=1.0))
    with chromium() as browser:
        check_everywhere(browser, page.write(review.path))
    assert page_faults(review.path / "report.html") == []


# The command line


@pytest.mark.slow
def test_the_command(tmp_path, capsys, monkeypatch, root):
    out = tmp_path / "r"

    def judge(progress, text):
        threading.Thread(target=lambda: judge_pairs(text.split()[1], Review.open(out), 0.06)).start()

    monkeypatch.setattr("brinell.runners.progress.LiveProgress.note", judge)
    arguments = ["review", "digits", "--trials", "24", "--norm", "linf", "--eps", "0.05,0.3", "--out", str(out)]
    assert brinell.cli.run(arguments) == 0
    output = capsys.readouterr()
    assert "24 of 24 pairs judged" in output.out and "all classes" in output.out and "report.html" in output.out
    assert brinell.cli.run([*arguments, "--resume", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, json.loads((root / "docs/schema/review.json").read_text()))
    assert answer["answers"] == 24


# Malformed requests


def send_bytes(server, text, wait=10.0):
    """Send bytes; returns the response once the server closes the connection."""
    with socket.create_connection(("127.0.0.1", int(server.url.rstrip("/").rpartition(":")[2])), timeout=wait) as line:
        line.sendall(text)
        response = b""
        while chunk := line.recv(4096):
            response += chunk
    return response


HEAD = b"POST /answer HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Type: application/json\r\n"


def test_a_length_that_is_none_is_refused_unread(tmp_path):
    with run_server(new_review(tmp_path / "r")) as server:
        for length in (b"-1", b"99999999999", b"10001", b"1e3", b"", "٣".encode()):
            assert b" 400 " in send_bytes(server, HEAD + b"Content-Length: " + length + b"\r\n\r\n").splitlines()[0], length


def test_no_answer_takes_a_time_that_is_none(tmp_path, capfd):
    review = new_review(tmp_path / "r")
    with run_server(review) as server:
        for seconds in ("NaN", "Infinity", "-1", "1e400", "1" + "0" * 400, "true", '"1"'):
            body = f'{{"trial": 0, "differs": true, "named": null, "seconds": {seconds}}}'.encode()
            answer = send_bytes(server, HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert b" 409 " in answer.splitlines()[0], seconds
        deep = b"[" * 9000
        assert b"no JSON" in send_bytes(server, HEAD + b"Content-Length: %d\r\n\r\n" % len(deep) + deep)
    assert review.answers() == [] and capfd.readouterr() == ("", "")


def test_a_request_byte_by_byte_is_given_up(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("brinell.studies.review.server.REQUEST_TIMEOUT", 0.3)
    with run_server(new_review(tmp_path / "r")) as server:
        send_bytes(server, HEAD + b"Content-Length: 50\r\n\r\n{", wait=8)  # which ends before the wait does
        assert get(server.url + "next")["trial"] == 0
    assert capfd.readouterr() == ("", "")


def test_two_servers_on_one_folder(tmp_path):
    review = new_review(tmp_path / "r")
    with run_server(review), pytest.raises(RequestError, match="another process is writing to"):
        ReviewServer(review, "", "bob")
    with run_server(review) as server:
        assert get(server.url + "next")["trial"] == 0


def test_an_answer_that_cannot_be_stored_ends_the_review(tmp_path, monkeypatch):
    review = new_review(tmp_path / "r")
    errors = []

    def raise_full_disk(self, answer):
        raise StoppedError("the disk is full")

    monkeypatch.setattr(Review, "add", raise_full_disk)
    server = ReviewServer(review, "")

    def serve():
        with pytest.raises(StoppedError, match="the disk is full"):
            server.serve(lambda text: None)
        errors.append(True)

    thread = threading.Thread(target=serve)
    thread.start()
    status, response = post(server.url, {"trial": 0, "differs": True, "named": None, "seconds": 1.0})
    thread.join(20)
    assert status == 500 and response == {"error": "the disk is full"} and errors


@pytest.mark.parametrize("count", [120, pytest.param(None, marks=pytest.mark.slow)])
def test_a_manifest_of_another_form(tmp_path, count):
    review = new_review(tmp_path / "r")
    review.add(Answer(trial=0, reviewer="", differs=True, named=3, seconds=1.0))
    assert count_refused(count, tmp_path / "r/manifest.json", lambda: page.render(Review.open(tmp_path / "r"))) > 20


def review_with_answers(folder, n=4):
    review = new_review(folder)
    for i in range(n):
        review.add(Answer(trial=i, reviewer="ann", differs=i % 2 == 0, named=None, seconds=1.0 + i))
    return review, folder / "answers.jsonl"


def test_no_flipped_bit_of_an_answer_is_read_in_silence(tmp_path):
    """A flipped bit is an error, or makes the last line an incomplete one, which is answered again."""
    review, file = review_with_answers(tmp_path / "r")
    content, answers, accepted = file.read_bytes(), review.answers(), 0
    for place in range(0, len(content), 2):
        for bit in (place % 3, 6):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            file.write_bytes(bytes(flipped))
            try:
                assert review.answers() == answers[:-1] and b"\n" not in bytes(flipped)[place:], (place, bit)
                accepted += 1
            except RequestError as error:
                assert "answers.jsonl, line" in str(error) and "damaged" in str(error) and "\n" not in str(error)
    assert accepted == 0


def test_answers_that_were_moved_taken_out_or_made_up_are_refused(tmp_path):
    review, file = review_with_answers(tmp_path / "r")
    lines = file.read_text().splitlines(keepends=True)
    for changed in (lines[1:], [lines[0], *lines[2:]], [lines[1], lines[0], *lines[2:]], [*lines, lines[-1]], [*lines, "{}\n"]):
        file.write_text("".join(changed))
        with pytest.raises(RequestError, match="answers.jsonl, line"):
            review.answers()
    strange = dict(trial=99, reviewer="", differs=True, named=None, seconds=1.0)
    for answer in (strange, strange | {"trial": "0"}, strange | {"trial": 0, "more": 1}, [], 7):
        file.write_text(json.dumps(answer) + "\n")
        with pytest.raises(RequestError, match="line 1,"):
            review.answers()
    for content in (b"\xff\xfe\n", b"[" * 100_000 + b"\n"):
        file.write_bytes(content)
        with pytest.raises(RequestError, match="line 1, is damaged"):
            review.answers()


def test_answers_from_before_there_were_hashes_are_read_and_gone_on_with(tmp_path):
    review, file = review_with_answers(tmp_path / "r", 2)
    contents = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text(
        "".join(json.dumps({key: value for key, value in content.items() if key != "digest"}) + "\n" for content in contents)
    )
    review.add(Answer(trial=2, reviewer="ann", differs=True, named=None, seconds=2.0))
    assert [answer.trial for answer in review.answers()] == [0, 1, 2]
    lines = file.read_text().splitlines()
    assert ["digest" in json.loads(line) for line in lines] == [False, False, True]
    file.write_text("\n".join([*lines, lines[0]]) + "\n")
    with pytest.raises(RequestError, match="line 4,"):
        review.answers()
