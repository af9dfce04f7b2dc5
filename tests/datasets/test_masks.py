"""Pictures with masks: what a folder gives, and folders that are refused in one line."""

import numpy as np
import pytest
from PIL import Image

import brinell
from _pictures import make_pictures, write_pictures
from _refusals import refused
from brinell.core.errors import BrinellError
from brinell.datasets.masks import Masks
from brinell.engine.sources import open_data


@pytest.fixture
def folder(tmp_path):
    write_pictures(tmp_path)
    return tmp_path


def save(folder, **arrays):
    _, masks = make_pictures()
    np.savez(
        folder / "masks.npz", **{"masks": masks, "classes": np.array(["dark", "bright"])} | arrays
    )


def test_pictures_and_masks_of_an_archive(folder):
    x, masks = make_pictures()
    data = open_data(f"masks:{folder}", truth=True)
    assert data.classes == ("dark", "bright") and data.info.truth.task == "segmentation"
    assert np.array_equal(
        (255 * data.load([1, 3]).numpy()).round(), x[[1, 3]].transpose(0, 3, 1, 2)
    )
    assert np.array_equal(data.info.truth.load([1, 3]), masks[[1, 3]])
    assert data.labels().tolist() == [0] * 5


def test_masks_as_pictures(folder):
    _, masks = make_pictures()
    (folder / "masks.npz").unlink()
    (folder / "masks").mkdir()
    (folder / "classes.json").write_text('["dark", "bright"]')
    for factor in (1, 255):
        for number, mask in enumerate(masks):
            Image.fromarray(mask * np.uint8(factor)).save(folder / "masks" / f"{number}.png")
        if factor == 1:
            data = open_data(f"masks:{folder}", truth=True)
            assert np.array_equal(data.info.truth.load(range(5)), masks) and data.classes == (
                "dark",
                "bright",
            )
    with pytest.raises(BrinellError, match="0 and 255"):
        open_data(f"masks:{folder}", truth=True)


def test_another_side_takes_the_nearest_pixels_of_masks(folder):
    data = open_data(f"masks:{folder}?side=6", truth=True)
    _, masks = make_pictures()
    expected = np.stack(
        [
            np.asarray(Image.fromarray(mask).resize((6, 6), Image.Resampling.NEAREST))
            for mask in masks
        ]
    )
    assert data.domain.shape == (3, 6, 6) and np.array_equal(
        data.info.truth.load(range(5)), expected
    )
    assert data.digest() != open_data(f"masks:{folder}", truth=True).digest()


def test_a_split_the_order_of_the_files_and_the_digest(folder):
    x, masks = make_pictures()
    other = masks.copy()
    other[0, 0, 0] ^= 1
    digests = {brinell.data(x, masks=one).digest() for one in (masks, other)}
    for arrays in ({}, {"masks": other}):
        save(folder, **arrays)
        digests.add(open_data(f"masks:{folder}", truth=True).digest())
    assert len(digests) == 4
    save(
        folder,
        split=np.array(["a", "b", "a", "b", "b"]),
        files=np.array([f"{number}.png" for number in range(5)]),
    )
    assert open_data(f"masks:{folder}?split=b", truth=True).info.names == (
        "1.png",
        "3.png",
        "4.png",
    )


def test_folders_that_are_refused(folder):
    rows = [
        ({"masks": np.zeros((5, 8, 8), np.uint8)}, "", "is 12 x 12 pixels and its mask 8 x 8"),
        ({"masks": np.full((5, 12, 12), 7, np.uint8)}, "", "mask 0 .* holds the class 7"),
        ({"masks": np.full((5, 12, 12), 300)}, "", "holds 300 to 300"),
        ({"masks": np.full((5, 12, 12), 255, np.uint8)}, "", "has a pixel of any class"),
        ({"masks": np.zeros((5, 12, 12))}, "", "has type float64"),
        ({"masks": np.zeros((4, 12, 12), np.uint8)}, "", "4 masks, and there are 5 pictures"),
        ({"masks": np.zeros((12, 12), np.uint8)}, "", "no array masks of shape"),
        ({"files": np.array(["0.png", "1.png", "2.png", "3.png", "9.png"])}, "", "lists '9.png'"),
        (
            {"files": np.array(["../masks.npz", "1.png", "2.png", "3.png", "4.png"])},
            "",
            "masks.npz",
        ),
        ({"classes": np.array(["dark", "dark"])}, "", "name each class once"),
        ({}, "?split=val", "has no split 'val'"),
    ]
    for arrays, spec, words in rows:
        save(folder, **arrays)
        with pytest.raises(BrinellError, match=words) as failure:
            open_data(f"masks:{folder}{spec}", truth=True)
        assert "\n" not in str(failure.value)


def test_a_folder_without_its_parts(folder):
    (folder / "masks.npz").unlink()
    with pytest.raises(BrinellError, match="there is no mask"):
        Masks(path=str(folder))()
    (folder / "masks.npz").write_bytes(b"no archive")
    with pytest.raises(BrinellError, match="damaged"):
        Masks(path=str(folder))()
    (folder / "images").rename(folder / "pictures")
    with pytest.raises(BrinellError, match="has no folder images/"):
        Masks(path=str(folder))()


def test_masks_in_memory_that_do_not_fit():
    x, masks = make_pictures()
    with pytest.raises(BrinellError, match="give one .height, width. for each picture"):
        brinell.data(x, masks=masks[:3])
    with pytest.raises(BrinellError, match="a mask of its own size"):
        brinell.data(x, masks=masks[:, :8])
    with pytest.raises(BrinellError, check=refused("inputs.data")):
        brinell.data(x, [0] * 5, masks=masks)
