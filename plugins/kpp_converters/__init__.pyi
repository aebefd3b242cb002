from .from_gpjax import kernel_from_gpjax as kernel_from_gpjax
from .from_gpytorch import kernel_from_gpytorch as kernel_from_gpytorch
from .from_tinygp import kernel_from_tinygp as kernel_from_tinygp
from .shap_explainer import Explainer as Explainer
from .to_tinygp import kernel_to_tinygp as kernel_to_tinygp
