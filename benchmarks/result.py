"""What a measurement yields: how many jobs, in how many seconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement; it says in its caller's name what was done to the jobs."""

    jobs: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Jobs per second."""
        return self.jobs / self.seconds


@dataclass(frozen=True, slots=True)
class Comparison:
    """The product against the floor, measured in turns so that the machine's drift meets both."""

    name: str
    floor: Sequence[Result]
    product: Sequence[Result]

    @property
    def floor_per_second(self) -> float:
        """The floor's median."""
        return median(result.per_second for result in self.floor)

    @property
    def product_per_second(self) -> float:
        """The product's median."""
        return median(result.per_second for result in self.product)

    @property
    def ratio(self) -> float:
        """The median of the ratios of neighbouring runs: 0.8 means four fifths of the floor's speed."""
        pairs = zip(self.floor, self.product, strict=True)
        return median(product.per_second / floor.per_second for floor, product in pairs)
