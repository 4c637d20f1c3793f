"""Writes the files here, which tests/image reads: python3 -m venv v && v/bin/pip install SimpleITK nibabel pynrrd."""
import nibabel
import nrrd
import numpy
import SimpleITK

voxels = numpy.arange(24, dtype=numpy.int16).reshape(2, 3, 4) * 100 - 1000
turn = numpy.array([[0.8, -0.6, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])  # its columns are those of x, y, z

scan = SimpleITK.GetImageFromArray(voxels)
scan.SetSpacing((0.5, 0.75, 3.0))
scan.SetOrigin((-10.5, 20.25, 7.0))
scan.SetDirection(turn.flatten())
for name in ("itk.nii.gz", "itk.mha", "itk.nrrd", "itk_plain.mhd"):
    SimpleITK.WriteImage(scan, name, useCompression="plain" not in name)

colours = SimpleITK.GetImageFromArray(numpy.arange(72, dtype=numpy.uint8).reshape(2, 3, 4, 3), isVector=True)
for name in ("itk_colours.mha", "itk_colours.nrrd"):
    SimpleITK.WriteImage(colours, name)
flat = SimpleITK.GetImageFromArray(numpy.arange(12, dtype=numpy.float32).reshape(3, 4))
flat.SetSpacing((0.5, 0.75))
for name in ("itk_flat.nii", "itk_flat.mha", "itk_flat.nrrd"):
    SimpleITK.WriteImage(flat, name)

affine = numpy.eye(4)
affine[:3, :3] = numpy.diag([-1, -1, 1]) @ turn @ numpy.diag([0.5, 0.75, 3.0])
affine[:3, 3] = (10.5, -20.25, 7.0)
nibabel.save(nibabel.Nifti2Image(voxels.transpose(2, 1, 0), affine), "nibabel.nii")
nrrd.write("pynrrd.nrrd", voxels, {"spacings": [0.5, 0.75, 3.0], "encoding": "raw"}, index_order="C")

# What nnU-Net's resampling of the preprocessing does, from its parts.
from batchgenerators.augmentations.utils import resize_segmentation
from scipy.ndimage import map_coordinates
from skimage.transform import resize

random = numpy.random.default_rng(0)


def resized(x, shape, order):
    return resize(x, shape, order=order, mode="edge", anti_aliasing=False, preserve_range=True)


def separate(x, shape, order, order_z):  # along the first axis
    slices = numpy.stack([resized(s, shape[1:], order) for s in x])
    z = (numpy.arange(shape[0]) + 0.5) * len(x) / shape[0] - 0.5
    places = numpy.meshgrid(z, numpy.arange(shape[1]), numpy.arange(shape[2]), indexing="ij")
    return map_coordinates(slices, places, order=order_z, mode="nearest")


x = random.standard_normal((4, 7, 6))
labels = random.integers(0, 4, (4, 7, 6)).astype(numpy.uint8)
arrays = {"x": x, "labels": labels}
for order in (0, 1, 3):
    arrays[f"order{order}"] = resized(x, (9, 5, 6), order)
    arrays[f"labels{order}"] = resize_segmentation(labels, (5, 11, 4), order)
arrays["separate0"] = separate(x, (9, 5, 11), 3, 0)
arrays["separate1"] = separate(x, (9, 5, 11), 3, 1)
numpy.savez_compressed("resample.npz", **arrays)

# Masks and their scores.
from medpy.metric.binary import assd, dc
from scipy.ndimage import distance_transform_edt

a, b = (numpy.linalg.norm(numpy.indices((9, 10, 11)).T - centre, axis=-1).T < 3.5 for centre in ((4, 4, 5), (5, 5, 4)))
print("distances", distance_transform_edt(a, sampling=(3, 1, 0.5)).sum(), "dice", dc(a, b), "assd", assd(a, b, (3, 1, 0.5)))
