"""Pictures of many envs: one mosaic, in a window or in a file.

::

    frames, one per env  ->  mosaic()  ->  array (height, width, 3)
                             MosaicWindow     a window, live, within a ShowBudget
                             MosaicRecorder   .png, .gif, .mp4

A *frame* is what ``env.render()`` gives with ``render_mode="rgb_array"``. `mosaic` needs NumPy
only. The window needs pygame, the recorder Pillow or imageio-ffmpeg
(``pip install 'agymc[render]'``); they are imported when a window or a recorder is made.
"""

from __future__ import annotations

from ._budget import ShowBudget
from ._mosaic import SCREEN, Frames, Layout, Picture, layout, mosaic
from ._recorder import MosaicRecorder
from ._window import MosaicWindow, display_available

__all__ = [
    "SCREEN",
    "Frames",
    "Layout",
    "MosaicRecorder",
    "MosaicWindow",
    "Picture",
    "ShowBudget",
    "display_available",
    "layout",
    "mosaic",
]
