"""The live page without colours: in the system's own few (forced-colors), and by lightness alone."""

import test_page

# What the eye can tell apart without colour: WCAG 2 wants 3 between a graphic and what is behind it.
GRAPHICS_LEAST = 3

TOOLS = """
  const luminance = %s;
  const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05); };
  const behind = e => { while (e && /, 0\\)$/.test(getComputedStyle(e).backgroundColor)) e = e.parentElement;
    return getComputedStyle(e || document.body).backgroundColor; };
  const seen = e => e.getClientRects().length && getComputedStyle(e).visibility !== 'hidden';
""" % test_page.LUMINANCE

# Each bar and each line: its contrast with what is behind it.
GRAPHICS = "(() => {" + TOOLS + """
  const bars = [...document.querySelectorAll('.gauge > span')].filter(seen)
    .map(e => contrast(getComputedStyle(e).backgroundColor, behind(e.parentElement)));
  const lines = [...document.querySelectorAll('svg path')].filter(e => seen(e.parentElement))
    .map(e => contrast(getComputedStyle(e).stroke, behind(e.parentElement)));
  return {bars, lines}; })()"""

# Each cell with a bar or a line: what its words are.
WORDS = """[...document.querySelectorAll('td .gauge, td svg')].map(e => e.closest('td').innerText.trim())"""

# All colours that texts have, as they come out; links are underlined, besides.
TEXT_COLOURS = """[...new Set([...document.querySelectorAll('body *')]
  .filter(e => e.tagName !== 'A' && e.getClientRects().length &&
    [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
  .map(e => getComputedStyle(e).color))]"""

# Which loader is shown, and how its button differs.
PRESSED = """[...document.querySelectorAll('#loaders button')].map(e =>
  [e.getAttribute('aria-pressed'), getComputedStyle(e).borderLeftWidth])"""

# What those of the advice that call for something have of their own, besides their colour.
ADVICE = """[...document.querySelectorAll('#advice li')].map(e =>
  [e.className, getComputedStyle(e).borderLeftStyle, e.innerText.split(' – ').pop().split(':')[0]])"""

# Their text in the look that is on the page, whatever its colours.
TEXT = "document.querySelector('#loaders').innerText + document.querySelector('#advice').innerText"


class WithoutColour(test_page.BrowserCase):
    def open(self, **media):
        """The page of a daemon that is made up, paused, so that two looks at it are alike."""
        daemon = self.enterContext(test_page.MadeUp())
        self.browser.open(daemon.url)
        self.browser.wait(test_page.looked(3))
        self.browser.value("document.querySelector('#pause').click()")
        self.browser.media(**media)

    def assert_graphics_are_seen(self):
        graphics = self.browser.value(GRAPHICS)
        for what in ("bars", "lines"):
            self.assertGreater(len(graphics[what]), 3, what)
            self.assertGreaterEqual(min(graphics[what]), GRAPHICS_LEAST, graphics)

    def test_in_the_systems_colours(self):
        """Bars and lines stay, texts can be read, and focus and what is pressed show."""
        for scheme in ("light", "dark"):
            with self.subTest(scheme):
                self.open(prefers_color_scheme=scheme)
                before = self.browser.value(TEXT)
                self.browser.media(prefers_color_scheme=scheme, forced_colors="active")
                self.assertTrue(self.browser.value("matchMedia('(forced-colors: active)').matches"))
                self.assertEqual(self.browser.value(TEXT), before)
                self.assertEqual(self.browser.value(test_page.CONTRAST), [])
                self.assert_graphics_are_seen()
                self.assertEqual(sorted(self.browser.value(PRESSED)),
                                 [["false", "1px"], ["false", "1px"], ["true", "2px"]])
                self.browser.value("document.querySelector('#filter').focus()")
                self.browser.press("Tab")
                self.assertEqual(self.browser.value("getComputedStyle(document.activeElement).outlineStyle"), "solid")

    def test_by_lightness_alone(self):
        """Who sees no colours, or has printed it, is told the same: by words, widths and kinds of lines."""
        for scheme in ("light", "dark"):
            with self.subTest(scheme):
                self.open(prefers_color_scheme=scheme)
                self.assert_graphics_are_seen()
                # Texts are of two shades, of which none means anything: that of texts, and that of labels.
                self.assertEqual(len(self.browser.value(TEXT_COLOURS)), 2)
                for words in self.browser.value(WORDS):
                    self.assertRegex(words, r"\d|–", "a bar or a line without its figure in words")
                advice = self.browser.value(ADVICE)
                self.assertEqual([(name, style) for name, style, _ in advice],
                                 [("act", "double"), ("", "solid"), ("", "solid")])
                self.assertEqual([words for *_, words in advice], ["loader-bound", "healthy", "healthy"])
                self.assertRegex(self.browser.value("document.title"), "^! ")

    def test_in_grey(self):
        """As somebody sees it who sees no colours at all: no pixel has one, and a bar is still no gap."""
        try:
            from PIL import Image
        except ImportError:
            self.skipTest("no Pillow (Debian: python3-pil)")
        self.open(prefers_color_scheme="light")
        self.browser.command("Emulation.setEmulatedVisionDeficiency", type="achromatopsia")
        self.addCleanup(self.browser.command, "Emulation.setEmulatedVisionDeficiency", type="none")
        place = self.browser.value("(() => { const e = [...document.querySelectorAll('#stages .gauge')].pop();"
                                   "e.scrollIntoView(); const r = e.getBoundingClientRect();"
                                   "return [r.left, r.top, r.right, r.bottom]; })()")
        self.browser.screenshot(self.path_of("grey.png"))
        with Image.open(self.path_of("grey.png")) as picture:
            whole = picture.convert("RGB")
        self.assertLessEqual(max(max(pixel) - min(pixel) for pixel in whole.getdata()), 2)
        bar = whole.convert("L").crop(tuple(map(round, place)))
        middle = [bar.getpixel((x, bar.height // 2)) for x in range(2, bar.width - 2)]
        self.assertGreater(max(middle) - min(middle), 100, middle)

    def path_of(self, name):
        self.spec("unused")  # the directory is there
        return self.path(name)
