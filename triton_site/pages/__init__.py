"""How pages, downloads and the search of this site look and read."""
