"""Images: readers of archives and folders, networks, and the features that a layer outputs."""
