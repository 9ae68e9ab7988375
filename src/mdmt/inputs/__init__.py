"""What a person hands in: arrays, data sets, images, and the device they go to."""
