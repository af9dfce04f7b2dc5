"""Folders of pictures, by subfolder and by list."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from _refusals import refused
from brinell.core.errors import RequestError
from brinell.datasets.image_folder import ImageFolder
from brinell.testing.others import check_dataset

RNG = np.random.default_rng(0)


def picture(file: Path, size: tuple[int, int] = (6, 4), mode: str = "RGB") -> np.ndarray[Any, Any]:
    """A lossless picture of noise, width x height; its pixels are returned."""
    file.parent.mkdir(parents=True, exist_ok=True)
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], len(mode))
    pixels = RNG.integers(0, 256, shape, np.uint8)
    Image.fromarray(pixels, mode=None).save(file)
    return pixels


def tree(tmp_path: Path) -> dict[str, np.ndarray[Any, Any]]:
    return {
        name: picture(tmp_path / name)
        for name in ("dog/b.png", "dog/a.png", "cat/z.png", "cat/deeper/y.png")
    }


def test_subfolders_are_classes_and_all_pictures_get_one_mode_and_size(tmp_path: Path) -> None:
    pixels = tree(tmp_path)
    (tmp_path / "dog" / "notes.txt").touch()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "empty").mkdir()
    data = ImageFolder(path=str(tmp_path))()
    check_dataset(data)
    assert (data.classes, data.labels().tolist(), data.domain.shape) == (
        ("cat", "dog"),
        [0, 0, 1, 1],
        (3, 4, 6),
    )
    assert np.array_equal(
        (data.load([2, 1]) * 255).round().byte()[0].permute(1, 2, 0), pixels["dog/a.png"]
    )
    grey = picture(tmp_path / "ape" / "1.png", mode="L")
    picture(tmp_path / "ape" / "2.png", mode="RGBA")
    x = ImageFolder(path=str(tmp_path))().load([0, 1])
    assert x.shape == (2, 3, 4, 6) and np.array_equal((x[0, 1] * 255).round().byte(), grey)
    assert ImageFolder(path=str(tmp_path), mode="L")().load([0]).shape == (1, 1, 4, 6)
    picture(tmp_path / "dog" / "c.png", (7, 4))
    with pytest.raises(RequestError, check=refused("datasets._listing.one_size")):
        ImageFolder(path=str(tmp_path))()


def test_size_brings_the_shorter_side_and_crops_the_centre(tmp_path: Path) -> None:
    flat = np.zeros((10, 30, 3), np.uint8)
    flat[:, 10:20] = 255
    (tmp_path / "a").mkdir()
    Image.fromarray(flat).save(tmp_path / "a" / "wide.png")
    Image.fromarray(flat.transpose(1, 0, 2).copy()).save(tmp_path / "a" / "tall.png")
    data = ImageFolder(path=str(tmp_path), size=10)()
    assert data.domain.shape == (3, 10, 10)
    assert torch.equal(data.load([0, 1]), torch.ones(2, 3, 10, 10))
    assert ImageFolder(path=str(tmp_path), size=7)().load([0]).shape == (1, 3, 7, 7)


def write_listing(
    tmp_path: Path, rows: str, header: str = "file,label,name", below: str = "images"
) -> str:
    for name in ("a.png", "b.png", "c.png"):
        picture(tmp_path / below / name)
    (tmp_path / "labels.csv").write_text(header + "\n" + rows)
    return str(tmp_path)


def test_a_list_gives_order_labels_and_names(tmp_path: Path) -> None:
    for column in ("label", "imagenet_index", "class_index", "index"):
        path = write_listing(tmp_path, "c.png,2,dog\na.png,0,cat\n", f"file,{column},name")
        data = ImageFolder(path=path)()
        check_dataset(data)
        assert (data.labels().tolist(), data.classes) == ([2, 0], ("cat", "1", "dog"))
    path = write_listing(tmp_path, "c.png,dog\na.png,cat\n", "file,label", below=".")
    assert ImageFolder(path=path)().labels().tolist() == [1, 0]
    (tmp_path / "my_classes.json").write_text(json.dumps(["emu", "dog", "cat"]))
    data = ImageFolder(path=path)()
    assert (data.labels().tolist(), data.classes) == ([1, 2], ("emu", "dog", "cat"))
    write_listing(tmp_path, "c.png,2,dog\n")
    entries = [
        {"index": 3, "name": "emu", "wnid": "n3"},
        {"index": 2, "name": "hound", "wnid": "n2"},
    ]
    (tmp_path / "my_classes.json").write_text(json.dumps(entries))
    assert ImageFolder(path=path)().classes == ("0", "1", "hound", "emu")


def test_bad_lists_and_folders_give_one_line(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="one subfolder per class"):
        ImageFolder(path=str(tmp_path))()
    for rows, header, names, words in (
        ("", "file,label", "", "lists nothing"),
        ("a.png,0\n", "picture,label", "", "it needs file and one of"),
        ("a.png,0\n", "file,class", "", "it needs file and one of"),
        ("none.png,0\n", "file,label", "", "'none.png', which is neither"),
        ("a.png\n", "file,label", "", "the label ''"),
        ("a.png,5\n", "file,label", '["a"]', "1 names"),
        ("a.png,5\n", "file,label", '{"a": 1}', "names"),
        ("a.png,5\n", "file,label", "[", "no JSON"),
    ):
        path = write_listing(tmp_path, rows, header)
        if names:
            (tmp_path / "classes.json").write_text(names)
        with pytest.raises(RequestError, match=words):
            ImageFolder(path=path)()
    (tmp_path / "more_classes.json").write_text("[]")
    with pytest.raises(RequestError, match="leave one list"):
        ImageFolder(path=path)()
    with pytest.raises(ValueError, match="size is -1"):
        ImageFolder(size=-1)


def test_subfolders_are_looked_up_in_the_list_of_classes(tmp_path: Path) -> None:
    picture(tmp_path / "n3" / "a.png")
    picture(tmp_path / "cat" / "a.png")
    entries = [{"index": 3, "name": "emu", "wnid": "n3"}, {"index": 1, "name": "cat", "wnid": "n1"}]
    (tmp_path / "classes.json").write_text(json.dumps(entries))
    assert ImageFolder(path=str(tmp_path))().labels().tolist() == [1, 3]
    picture(tmp_path / "dog" / "a.png")
    with pytest.raises(RequestError, match="'dog' is no class"):
        ImageFolder(path=str(tmp_path))()


def test_the_digest_sees_bytes_labels_order_and_class_names_not_names_of_files(
    tmp_path: Path,
) -> None:
    path = write_listing(tmp_path, "a.png,0,x\nb.png,1,y\n")
    digest = ImageFolder(path=path)().digest()
    assert ImageFolder(path=path, size=3)().digest() != digest
    (tmp_path / "labels.csv").write_text("file,label\nb.png,1\na.png,0\n")
    assert ImageFolder(path=path)().digest() != digest
    (tmp_path / "images" / "a.png").rename(tmp_path / "images" / "d.png")
    (tmp_path / "labels.csv").write_text("file,label,name\nd.png,0,x\nb.png,1,y\n")
    assert ImageFolder(path=path)().digest() == digest
    (tmp_path / "labels.csv").write_text("file,label,name\nd.png,0,y\nb.png,1,x\n")
    assert ImageFolder(path=path)().digest() != digest
    picture(tmp_path / "images" / "d.png")
    assert ImageFolder(path=path)().digest() != digest


def test_a_damaged_picture_gives_one_line(tmp_path: Path) -> None:
    tree(tmp_path)
    file = tmp_path / "dog" / "b.png"
    content = file.read_bytes()
    data = ImageFolder(path=str(tmp_path))()
    file.write_bytes(content[:-40])
    with pytest.raises(RequestError, match="b.png is damaged"):
        data.load([3])
    file.write_bytes(b"no picture")
    with pytest.raises(RequestError, match="b.png is damaged"):
        ImageFolder(path=str(tmp_path))()
    picture(file, (9, 9))
    with pytest.raises(RequestError, check=refused("datasets._listing.PictureFiles.row")):
        data.load([3])
    Image.fromarray(np.full((4, 6), 40000, np.uint16)).save(file)
    with pytest.raises(RequestError, match="more than 8 bits"):
        data.load([3])


def test_the_photographs_open(shared: Path) -> None:
    data = ImageFolder(path=str(shared / "imagenet_samples"))()
    check_dataset(data)
    assert (len(data), len(data.classes), data.domain.shape) == (250, 1000, (3, 224, 224))
    assert data.classes[4] == "hammerhead" and data.labels()[1] == 4


def test_numbered_folders_count_hidden_files_do_not_and_pictures_stand_upright(
    tmp_path: Path,
) -> None:
    for number in (0, 1, 2, 10):
        (tmp_path / str(number)).mkdir()
        Image.new("RGB", (6, 4), (10 * number, 0, 0)).save(tmp_path / str(number) / "a.png")
    (tmp_path / "0" / "._a.png").write_bytes(b"\0")
    picture(tmp_path / "2" / ".thumbnails" / "b.png")
    picture(tmp_path / ".cache" / "b.png")
    data = ImageFolder(path=str(tmp_path))()
    assert (
        data.classes == ("0", "1", "2", "10")
        and len(data) == 4
        and "2 hidden files are left out" in data.info.notes[0]
    )
    upright = Image.fromarray(np.arange(72, dtype=np.uint8).reshape(4, 6, 3))
    exif = upright.getexif()
    exif[0x0112] = 6
    for number in (0, 1, 2, 10):
        upright.save(tmp_path / str(number) / "a.png", exif=exif)
    data = ImageFolder(path=str(tmp_path))()
    assert data.domain.shape == (3, 6, 4)
    assert any("4 of 4 pictures are turned upright" in note for note in data.info.notes)
    assert np.array_equal(
        data.load([0])[0].mul(255).round().numpy(),
        np.rot90(np.asarray(upright), -1).transpose(2, 0, 1),
    )
    Image.fromarray(np.zeros((6, 4), dtype=np.uint16)).save(tmp_path / "0" / "a.png")
    with pytest.raises(RequestError, match="a.png has I;16 pixels of more than 8 bits"):
        ImageFolder(path=str(tmp_path))().load([0])
