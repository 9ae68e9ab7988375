"""One page that shows what a study found, from run folders alone."""
