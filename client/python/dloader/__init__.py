"""dloader: the Python face of dloaderd, the data loader daemon."""
