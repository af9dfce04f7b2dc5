"""The corruptions by name: the fifteen of the benchmark in its order, and the four that it keeps for validation."""

from brinell.corruptions import blur, digital, noise, weather
from brinell.corruptions._shared import Published

KINDS: dict[str, type[Published]] = {
    "gaussian-noise": noise.GaussianNoise,
    "shot-noise": noise.ShotNoise,
    "impulse-noise": noise.ImpulseNoise,
    "defocus-blur": blur.DefocusBlur,
    "glass-blur": blur.GlassBlur,
    "motion-blur": blur.MotionBlur,
    "zoom-blur": blur.ZoomBlur,
    "snow": weather.Snow,
    "frost": weather.Frost,
    "fog": weather.Fog,
    "brightness": digital.Brightness,
    "contrast": digital.Contrast,
    "elastic-transform": digital.ElasticTransform,
    "pixelate": digital.Pixelate,
    "jpeg-compression": digital.JpegCompression,
}
"""The fifteen over which the mean corruption error is taken."""
EXTRA: dict[str, type[Published]] = {
    "speckle-noise": noise.SpeckleNoise,
    "gaussian-blur": blur.GaussianBlur,
    "spatter": weather.Spatter,
    "saturate": digital.Saturate,
}
"""Four more, which are in no mean."""
ALL = KINDS | EXTRA
