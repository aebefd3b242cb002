from .areas import AreaBags as AreaBags
from .areas import area_bags as area_bags
