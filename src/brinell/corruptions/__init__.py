"""The published corruptions of images, as ImageNet-C and CIFAR-10-C define them (Hendrycks & Dietterich 2019)."""
