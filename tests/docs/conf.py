"""How Sphinx makes the site of `./dev docs`, which tests/tools/docs_site.py lays out; nothing is from elsewhere."""
import os

project = "dloaderd"
version = release = os.environ["VERSION"]
html_title = f"dloaderd {version}"
extensions = ["myst_parser"]
root_doc = "index"
myst_heading_anchors = 6
html_theme = "alabaster"
html_theme_options = {"description": "a data loader that is a daemon", "show_powered_by": False, "page_width": "1100px"}
html_sidebars = {"**": ["about.html", "searchbox.html", "navigation.html"]}
html_copy_source = html_show_sourcelink = html_show_copyright = False
