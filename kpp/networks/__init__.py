"""Neural networks: perceptrons, networks of images, and their training."""

from kpp.networks.images import ConvolutionalNetwork as ConvolutionalNetwork
from kpp.networks.images import UNet as UNet
from kpp.networks.images import read_image_shape as read_image_shape
from kpp.networks.networks import MLP as MLP
from kpp.networks.networks import Trained as Trained
from kpp.networks.networks import train as train
from kpp.networks.networks import train_ensemble as train_ensemble
