"""`robustbench:NAME`: a network of RobustBench's model zoo (arXiv 2010.09670), by the package
robustbench.
"""

from dataclasses import dataclass

from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.models._torch_model import TorchModel


@dataclass(frozen=True, kw_only=True)
class RobustBench:
    """A network of RobustBench's model zoo, with its published checkpoint."""

    path: str = ""
    """Name in the model zoo."""
    dataset: str = "cifar10"
    """Data set of the network: cifar10, cifar100 or imagenet."""
    threat: str = "Linf"
    """Threat model of the network: Linf, L2 or corruptions."""
    folder: str = "models"
    """Folder of the package's downloads."""
    name: str = ""
    """Name in reports; by default the name in the model zoo."""

    def __call__(self, domain: Domain) -> TorchModel:
        """Let the package build the network and load its checkpoint."""
        if not self.path:
            raise RequestError(
                "'robustbench' names no model: write robustbench:NAME, such as "
                "robustbench:Carmon2019Unlabeled"
            )

        try:
            from robustbench.utils import load_model
        # A package that cannot be imported fails by whatever its own imports raise.
        except Exception as error:
            raise RequestError(
                "the package robustbench cannot be imported "
                f"({type(error).__name__}: {one_line(error, 120)}): install it, "
                "or "
                "write torch:FILE.py:FACTORY?weights=FILE"
            ) from error

        try:
            network = load_model(
                self.path, model_dir=self.folder, dataset=self.dataset, threat_model=self.threat
            )
        except Exception as error:
            raise RequestError(
                f"the package robustbench cannot load {self.path} on "
                f"{self.dataset} and {self.threat} ({type(error).__name__}: "
                f"{one_line(error, 200)}): check the name, or put the checkpoint into {self.folder}"
            ) from error
        # Its networks normalise by themselves, so inputs go in from 0 to 1.
        return TorchModel(network.eval(), domain, name=self.name or self.path, bounds=(0.0, 1.0))
