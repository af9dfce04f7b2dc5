"""`hf:NAME`: an image or audio classifier of transformers, from a folder or by its name on the
Hugging Face Hub.

It reads the files of `save_pretrained`: the network from safetensors only, and the settings of its
processor, which become part of the model (`models._transformers`). No code from the Hub is run. If
the name is not a folder, transformers downloads the repository, unless it is in the local cache.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.models._torch_model import TorchModel
from brinell.models._transformers import with_processor, without_processor

KINDS = {
    "pixel_values": "AutoModelForImageClassification",
    "input_values": "AutoModelForAudioClassification",
}
"""The class of transformers that opens a classifier, by the name of the network's input."""
PATIENCE = 2.0
"""Seconds after which the Hub counts as out of reach."""
CLASSIFIERS = ("ForImageClassification", "ForSequenceClassification", "ForAudioClassification")


@dataclass(frozen=True, kw_only=True)
class HuggingFace:
    """An image or audio classifier of transformers."""

    path: str = ""
    """A folder that save_pretrained wrote, or the name of a repository such as
    microsoft/resnet-50."""
    revision: str = ""
    """Branch, tag or commit of the repository; by default its main branch."""
    classes: int = 0
    """Number of logits if the weights have a number other than the config states; 0 for that of
    the config."""
    processor: bool = True
    """True prepares inputs by the settings of the network's processor; false passes them
    unchanged."""
    name: str = ""
    """Name in reports; by default the last part of the path."""

    def __call__(self, domain: Domain) -> TorchModel:
        """Open the network and its processor."""
        if not self.path:
            raise RequestError(
                "'hf' names no model: write hf:FOLDER or hf:NAME, say hf:microsoft/resnet-50"
            )
        folder = Path(self.path).expanduser()
        looks_local = self.path.startswith((".", "/", "~")) or self.path.count("/") > 1
        if looks_local and not folder.is_dir():
            raise RequestError(
                f"there is no folder {self.path}: name one that save_pretrained "
                "wrote, or a repository as OWNER/NAME"
            )
        if find_spec("transformers") is None:
            raise RequestError(
                "transformers is not installed, which opens hf: models: pip install 'brinell[hf]'"
            )
        # Left open, transformers asks on standard input whether the folder's own Python may run.
        options: dict[str, Any] = {"trust_remote_code": False} | (
            {"revision": self.revision} if self.revision else {}
        )
        if not folder.is_dir():
            options["local_files_only"] = not self._is_on_hub()
        import transformers

        logging: Any = transformers.utils.logging
        shows_bars = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        try:
            return self._load(
                transformers, str(folder) if folder.is_dir() else self.path, options, domain
            )
        finally:
            if shows_bars:
                logging.enable_progress_bar()

    def _is_on_hub(self) -> bool:
        """True if the Hub answers and has the repository; False if only the local cache has it.

        The Hub is asked once: transformers would ask it again and again for half a minute.
        """
        import huggingface_hub
        from huggingface_hub.errors import (
            HFValidationError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

        try:
            huggingface_hub.HfApi().model_info(
                self.path, revision=self.revision or None, timeout=PATIENCE
            )
        except HFValidationError as error:
            raise RequestError(
                f"hf:{self.path} is no folder and no name of a repository ({one_line(error, 160)})"
            ) from None
        except Exception as error:
            # Without a connection the local cache is as good, and says which revision it holds.
            if isinstance(
                huggingface_hub.try_to_load_from_cache(
                    self.path, "config.json", revision=self.revision or None
                ),
                str,
            ):
                return False
            absent = isinstance(error, RepositoryNotFoundError | RevisionNotFoundError)
            reason = "has no such repository that is open to you" if absent else "cannot be reached"
            raise RequestError(
                f"hf:{self.path} cannot be opened: there is no such folder, the "
                "local cache has no such repository, and the "
                f"Hugging Face Hub {reason} ({type(error).__name__}): name a "
                "folder that save_pretrained wrote"
            ) from None

        return True

    def _load(
        self, transformers: Any, source: str, options: dict[str, Any], domain: Domain
    ) -> TorchModel:
        """The network of a folder or repository, behind its processor if there is to be one."""
        name = self.name or Path(self.path).name
        network = self._network(transformers, source, options)
        if not self.processor:
            return without_processor(network, domain, name)
        return with_processor(
            network, self._processor(transformers, network, source, options), domain, name
        )

    def _network(self, transformers: Any, source: str, options: dict[str, Any]) -> nn.Module:
        """The network of a folder or repository, if it is a classifier of pictures or waves."""
        try:
            config = transformers.AutoConfig.from_pretrained(source, **options)
            names = [str(architecture) for architecture in config.architectures or ()]
            if not any(name.endswith(CLASSIFIERS) for name in names):
                raise RequestError(
                    f"hf:{self.path} holds {', '.join(names) or 'no network'}, "
                    "and no image or audio classifier"
                )
            input_name = getattr(transformers, names[0]).main_input_name
            if input_name not in KINDS:
                raise RequestError(
                    f"hf:{self.path} takes {input_name}: only classifiers of "
                    "pictures and waveforms are opened here"
                )
            kind = getattr(transformers, KINDS[input_name])
            # Without a number of classes the head is that of the config.
            head = {"num_labels": self.classes} if self.classes else {}
            network: nn.Module = kind.from_pretrained(
                source, use_safetensors=True, **options, **head
            )

        except RequestError:
            raise
        except RuntimeError as error:
            if "ignore_mismatched_sizes" not in str(error):
                raise
            raise RequestError(
                f"the weights of hf:{self.path} are for another number of classes "
                "than its config states: add &classes=NUMBER to "
                "the model"
            ) from None
        except Exception as error:
            raise RequestError(
                f"hf:{self.path} cannot be opened ({type(error).__name__}: "
                f"{one_line(error, 160)}): name a folder that "
                "save_pretrained wrote, or a repository that transformers can "
                "fetch, with weights in safetensors"
            ) from None
        return network.eval()

    def _processor(
        self, transformers: Any, network: nn.Module, source: str, options: dict[str, Any]
    ) -> Any:
        """The image processor or feature extractor beside a network."""
        kind = (
            "AutoImageProcessor"
            if network.main_input_name == "pixel_values"
            else "AutoFeatureExtractor"
        )

        try:
            return getattr(transformers, kind).from_pretrained(source, **options)
        except Exception as error:
            raise RequestError(
                f"hf:{self.path} has no processor that can be read "
                f"({one_line(error, 160)}): save it there by "
                "processor.save_pretrained, or, where the network takes inputs "
                "as they are, add &processor=false to the model"
            ) from None
