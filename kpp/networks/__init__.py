"""Neural networks: perceptrons, networks of images, and their training."""

from kpp.foundation.arguments import guard_exports as _guard_exports
from kpp.networks.images import ConvolutionalNetwork as ConvolutionalNetwork
from kpp.networks.images import UNet as UNet
from kpp.networks.networks import MLP as MLP
from kpp.networks.networks import train as train

_guard_exports(globals())
