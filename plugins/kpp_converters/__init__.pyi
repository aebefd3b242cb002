from .from_botorch import BoTorchConverter as BoTorchConverter
from .from_gpjax import GPJaxConverter as GPJaxConverter
from .from_gpytorch import GPyTorchConverter as GPyTorchConverter
from .from_tinygp import TinygpConverter as TinygpConverter
from .gpjax_kernels import kernel_from_gpjax as kernel_from_gpjax
from .gpytorch_kernels import kernel_from_gpytorch as kernel_from_gpytorch
from .tinygp_kernels import kernel_from_tinygp as kernel_from_tinygp
from .to_tinygp import kernel_to_tinygp as kernel_to_tinygp
