"""`hf:NAME`: an image or audio classifier of transformers, from a folder or by its name on the Hugging Face Hub.

What `save_pretrained` wrote is read: the network from safetensors alone, and the settings of its processor, which become part
of the model (`models._transformers`). No code from the Hub is run. A name that is no folder is fetched by transformers, as far as
it is not kept already.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.core.settings import Plain
from brinell.models._torch_model import TorchModel
from brinell.models._transformers import bare, with_processor

__all__ = ["HuggingFace"]

KINDS = {"pixel_values": "AutoModelForImageClassification", "input_values": "AutoModelForAudioClassification"}
"""The class of transformers that opens a classifier, by what its network is given."""
CLASSIFIERS = ("ForImageClassification", "ForSequenceClassification", "ForAudioClassification")


@dataclass(frozen=True, kw_only=True)
class HuggingFace:
    """An image or audio classifier of transformers."""

    path: str = ""
    """A folder that save_pretrained wrote, or the name of a repository such as microsoft/resnet-50."""
    revision: str = ""
    """Branch, tag or commit of the repository; by default its main branch."""
    processor: bool = True
    """Whether inputs are prepared as the processor beside the network says; false gives them as they are."""
    name: Plain = ""
    """How reports call it; by default the last part of the path."""

    def __call__(self, domain: Domain) -> TorchModel:
        """Open the network and its processor.

        Raises:
            RequestError: transformers is not installed, no such folder or repository, no image or audio classifier, weights that
                are no safetensors, a processor that does what is not known here.
        """
        try:
            import transformers
        except ImportError:
            raise RequestError("transformers is not installed, which opens hf: models: pip install 'brinell[hf]'") from None
        if not self.path:
            raise RequestError("'hf' names no model: write hf:FOLDER or hf:NAME, say hf:microsoft/resnet-50")
        where = Path(self.path).expanduser()
        looks_local = self.path.startswith((".", "/", "~")) or self.path.count("/") > 1
        if looks_local and not where.is_dir():
            raise RequestError(
                f"there is no folder {self.path}: name one that save_pretrained wrote, or a repository as OWNER/NAME"
            )
        source = str(where) if where.is_dir() else self.path
        name = self.name or Path(self.path).name
        options = {"revision": self.revision} if self.revision else {}
        network = self._network(transformers, source, options)
        if not self.processor:
            return bare(network, domain, name)
        return with_processor(network, self._processor(transformers, network, source, options), domain, name)

    def _network(self, transformers: Any, source: str, options: dict[str, str]) -> nn.Module:
        try:
            config = transformers.AutoConfig.from_pretrained(source, **options)
            names = [str(one) for one in config.architectures or ()]
            if not any(name.endswith(CLASSIFIERS) for name in names):
                raise RequestError(f"hf:{self.path} holds {', '.join(names) or 'no network'}, and no image or audio classifier")
            found = getattr(transformers, names[0]).main_input_name
            if found not in KINDS:
                raise RequestError(f"hf:{self.path} takes {found}: only classifiers of pictures and waveforms are opened here")
            network: nn.Module = getattr(transformers, KINDS[found]).from_pretrained(source, use_safetensors=True, **options)
        except RequestError:
            raise
        except Exception as error:
            raise RequestError(
                f"hf:{self.path} cannot be opened ({type(error).__name__}: {one_line(error, 160)}): name a folder that "
                "save_pretrained wrote, or a repository that transformers can fetch, with weights in safetensors"
            ) from None
        return network.eval()

    def _processor(self, transformers: Any, network: nn.Module, source: str, options: dict[str, str]) -> Any:
        """What prepares the inputs, as it lies beside the network."""
        kind = "AutoImageProcessor" if network.main_input_name == "pixel_values" else "AutoFeatureExtractor"
        try:
            return getattr(transformers, kind).from_pretrained(source, **options)
        except Exception as error:
            raise RequestError(
                f"hf:{self.path} has no processor that can be read ({type(error).__name__}: {one_line(error, 100)}): where the "
                "network takes inputs as they are, write processor=false"
            ) from None
