"""The user's inputs: arrays, data sets and images, and the way to a device."""
