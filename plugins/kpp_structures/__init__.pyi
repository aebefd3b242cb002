from .counts import spectrum_features as spectrum_features
from .counts import weisfeiler_lehman_features as weisfeiler_lehman_features
from .precomputed import Precomputed as Precomputed
from .saas import SAASLengthscales as SAASLengthscales
from .tanimoto import Tanimoto as Tanimoto
