"""A runtime for MLServer: a chain of layers in NumPy, read from weights.npz in its folder.

It needs neither torch nor brinell.
"""

from pathlib import Path

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Chain(MLModel):
    """A model that returns logits."""

    async def load(self) -> bool:
        """Read the layers."""
        with np.load(Path(__file__).with_name("weights.npz"), allow_pickle=False) as stored:
            parts = ("weight", "bias", "form")
            self._layers = [
                (str(kind), *(stored[f"{i}.{part}"] for part in parts))
                for i, kind in enumerate(stored["kinds"])
            ]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Logits of one request."""
        x = NumpyCodec.decode_input(payload.inputs[0])
        for kind, weight, bias, form in self._layers:
            x = LAYERS[kind](x, weight, bias, form)
        output = NumpyCodec.encode_output("logits", x.astype(np.float32))
        return InferenceResponse(model_name=self.name, outputs=[output])


def convolve(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, form: np.ndarray) -> np.ndarray:
    """Convolve (n, C, H, W), with a stride and a border of zeros."""
    stride, margin = form.tolist()
    x = np.pad(x, ((0, 0), (0, 0), (margin, margin), (margin, margin)))
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], (2, 3))[
        :, :, ::stride, ::stride
    ]
    rows = windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, weight[0].size)
    answer = rows @ weight.reshape(len(weight), -1).T + bias
    return answer.reshape(len(x), windows.shape[2], windows.shape[3], -1).transpose(0, 3, 1, 2)


def pool(x: np.ndarray, *_: np.ndarray) -> np.ndarray:
    """The largest of each two by two."""
    n, c, h, w = x.shape
    return x[:, :, : h // 2 * 2, : w // 2 * 2].reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


LAYERS = {
    "conv": convolve,
    "pool": pool,
    "relu": lambda x, *_: np.maximum(x, 0),
    "flatten": lambda x, *_: x.reshape(len(x), -1),
    "linear": lambda x, weight, bias, form: x @ weight.T + bias,
}
