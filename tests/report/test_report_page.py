"""The report in a real browser: what is there, what happens when one points and clicks, and that
nothing leaves the page.
"""

import json
import shutil
import threading

import pytest

from mdmt.cli.app import main
from mdmt.report.server import make_server
from support.run_folders import leave

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"
    ),
]
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
EVIL = "<script>document.title='taken'</script>"
METHODS = ("joint", "van", "er", "mdmt-r")


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Two studies, one of them with a hostile name, and a run that was killed."""
    runs = tmp_path_factory.mktemp("runs")
    for variant in METHODS:
        for seed in (1, 2):
            leave(runs, variant, seed, tasks=4)
    leave(runs, "van", benchmark="split-digits", label=EVIL)
    (leave(runs, "van", 3, tasks=4) / "record.json").unlink()
    path = runs / "report.html"
    assert main(["report", str(runs), "--out", str(path)]) == 0
    return path


@pytest.fixture
def opened(browser, file):
    """Opens the page; afterwards nothing may have gone wrong, and nothing may have been asked of
    the network.
    """
    troubles, requests, contexts = [], [], []

    def open_(width=1440, address=None, **more):
        context = browser.new_context(viewport={"width": width, "height": 900}, **more)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console",
            lambda message: (
                troubles.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address or file.as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert troubles == []
    assert {url for url in requests if not url.startswith("http://127.0.0.1:")} <= {file.as_uri()}


def test_every_section_and_chart_with_its_series(opened):
    page = opened()
    # The hostile name did nothing.
    assert page.title() == "mdmt report: permuted-digits, 4 tasks, one shared head"
    names = (
        "setup",
        "table",
        "differences",
        "trend",
        "tasks",
        "matrices",
        "cost",
        "features",
        "angles",
        "drifts",
        "methods",
    )
    for number in (0, 1):
        for name in names:
            assert page.locator(f"#s{number}-{name}").count() == 1
    series = {
        "fig4": 4, "forgetting": 3, "fig7": 3, "drift": 4, "cost-seconds": 4, "cost-bytes": 4,
        "fig3a": 3,  # joint has none of these three
    }  # fmt: skip
    for name, count in series.items():
        chart = page.locator(f"#s0-{name}")
        assert chart.locator("[data-series]").count() == count, name
        assert chart.locator(".legend button").count() == count, name
        assert "mdmt-r" in chart.locator("[role=img] desc").text_content()
        assert page.locator(f"#s1-{name} [data-series]").count() == 1
    for name in ("fig5", "fig6"):
        assert page.locator(f"#s0-{name} .panel").count() == 3
        assert page.locator(f"#s0-{name} .panel >> nth=0 >> [data-series]").count() == 3
    assert page.locator("#s0-tasks .panel").count() == 4
    assert page.locator("#s0-matrices table.heat").count() == 4
    assert page.locator("#s0-drifts table.heat").count() == 4
    assert page.locator("#s0-angles table.heat").count() == 3
    assert page.locator("#s0-methods details").count() == 4
    assert "stopped or killed" in page.locator("#absent").inner_text()
    assert EVIL in page.locator("#s1-results").inner_text()


def test_a_method_has_one_colour_everywhere(opened):
    page = opened()
    colours = set()
    for name in ("fig4", "fig7", "drift", "cost-seconds", "fig3a"):
        chart = page.locator(f"#s0-{name}")
        labels = chart.locator(".legend button").all_text_contents()  # folded ones too
        number = [label.strip() for label in labels].index("mdmt-r")
        series = chart.locator(f'[data-series="{number}"]')
        colours.add(series.evaluate("series => getComputedStyle(series).color"))
    assert colours == {"rgb(213, 94, 0)"}


def test_sorting(opened):
    page = opened()
    table = page.locator("#s0-results")

    def column(number):
        return table.locator(f"tbody tr > :nth-child({number})").all_inner_texts()

    assert column(1) == list(METHODS)
    head = table.locator("thead button").nth(1)
    head.click()
    values = [float(text.split()[0]) for text in column(2)]
    assert values == sorted(values, reverse=True)
    assert table.locator("thead th").nth(1).get_attribute("aria-sort") == "descending"
    head.click()
    assert [float(text.split()[0]) for text in column(2)] == sorted(values)
    table.locator("thead button").nth(2).click()
    assert column(3)[-1] == "-"  # joint has no F_T
    table.locator("thead button").nth(0).click()
    assert column(1) == sorted(METHODS)


def test_a_cell_tells_its_value_to_a_pointer_and_to_the_keyboard(opened, file):
    page = opened()
    records = [
        json.loads(path.read_text())
        for path in file.parent.glob("permuted-digits/van/*/*/record.json")
    ]
    mean = 100 * sum(r["accuracy"][2][1] for r in records) / len(records)
    cell = (
        page.locator("#s0-matrices table.heat")
        .nth(1)
        .locator("tbody tr")
        .nth(2)
        .locator("td")
        .nth(1)
    )
    assert cell.inner_text() == f"{mean:.1f}"
    cell.hover()
    tip = page.locator("#tip")
    assert tip.is_visible()
    assert tip.inner_text().startswith(f"accuracy on task 2 after task 3 (%): {mean:.1f} ± ")
    page.mouse.move(0, 0)
    assert tip.is_hidden()
    page.locator("#s0-matrices table.heat").nth(1).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert tip.inner_text().startswith("accuracy on task 2 after task 3 (%)")
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_arrow_keys_pass_over_empty_cells(opened):
    page = opened()
    tip = page.locator("#tip")
    page.locator("#s0-matrices table.heat").first.focus()  # joint has but its last row
    page.keyboard.press("ArrowDown")
    assert tip.inner_text().startswith("accuracy on task 1 after task 4 (%)")
    page.locator("#s0-differences table.heat").focus()
    for key, told in (("ArrowRight", "joint minus van: "), ("ArrowDown", "er minus van: ")):
        page.keyboard.press(key)
        assert tip.inner_text().startswith(told)


def test_the_filter_hides_a_benchmark_and_a_method(opened):
    page = opened()
    row = page.locator("#s0-results tbody tr", has_text="er").first
    series = page.locator('#s0-fig4 [data-series="2"]')
    assert row.is_visible()
    assert series.is_visible()
    page.get_by_role("checkbox", name="er", exact=True).uncheck()
    assert row.is_hidden()
    assert series.is_hidden()
    assert page.locator("#s0-results tbody tr:visible").count() == 3
    page.get_by_role("checkbox", name="split-digits").uncheck()
    assert page.locator("#s1").is_hidden()
    assert page.locator("#overview tbody tr:visible").count() == 1
    page.get_by_role("checkbox", name="split-digits").check()
    assert page.locator("#s1").is_visible()


def test_feature_figures_are_folded_until_somebody_asks(opened):
    page = opened()
    assert page.locator("#s0-fig5").is_hidden()
    page.locator("#contents a", has_text="Features").first.click()
    page.locator("#s0-fig5").wait_for(state="visible")  # the browser tells of a new hash later


def test_pointing_at_a_name_dims_the_others(opened):
    page = opened(reduced_motion="reduce")
    chart = page.locator("#s0-fig4")
    chart.locator(".legend button").nth(3).hover()
    opacity = "part => getComputedStyle(part).opacity"
    assert chart.locator('[data-series="3"]').evaluate(opacity) == "1"
    assert float(chart.locator('[data-series="1"]').evaluate(opacity)) < 0.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_it_fits_the_screen_and_its_text_can_be_read(opened, width, scheme):
    page = opened(width, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    text, behind = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    light, dark = sorted((sum(map(int, c[4:-1].split(", "))) for c in (text, behind)), reverse=True)
    assert light - dark > 500
    label = page.locator("#s0-fig4 svg text").first
    assert label.evaluate("text => getComputedStyle(text).fill") == text
    assert label.bounding_box()["height"] >= 9
    assert page.locator("#contents").evaluate("details => details.open") == (width == 1440)
    if width == 390:
        page.locator("#contents > summary").click()
        page.locator("nav a", has_text="Cost").first.click()
        assert page.evaluate("location.hash") == "#s0-cost"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A page whose table has published values, A_free and long labels."""
    runs = tmp_path_factory.mktemp("published")
    for variant in ("van", "pi", "a-gem", "mdmt-r", "er[reading=paper]"):
        for seed in (1, 2):
            folder = leave(runs, variant, seed, benchmark="split-cifar", tasks=17)
            record = json.loads((folder / "record.json").read_text())
            record |= {"reduced": None, "seconds": 1e5, "memory_bytes": 44_000_000}
            record["accuracy_task_free"] = [[0.1] * 17] * 17
            (folder / "record.json").write_text(json.dumps(record))
    path = runs / "report.html"
    assert main(["report", str(runs), "--out", str(path)]) == 0
    return path


def hidden(table):
    """How many pixels of a table one must scroll for."""
    part = table.locator("xpath=..")
    return part.evaluate("part => part.scrollWidth - part.clientWidth")


def test_tables_fit_a_wide_screen(browser, published):
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(published.as_uri())
    for name in ("results", "against"):
        assert hidden(page.locator(f"#s0-{name}")) <= 0
    assert "69.20 ± 1.60 (" in page.locator("#s0-results").inner_text()
    assert page.locator(".scroll[data-hint]:visible").count() == 0
    page.close()


def test_a_table_that_scrolls_says_so_on_a_narrow_screen(browser, published):
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto(published.as_uri())
    table = page.locator("#s0-results")
    assert hidden(table) > 0
    part = table.locator("xpath=..")
    shown = "part => getComputedStyle(part, '::before').content"
    assert part.get_attribute("data-hint") == "more"
    assert part.evaluate(shown) == '"scroll →"'
    name = table.locator("tbody th").first
    left = name.bounding_box()["x"]
    part.evaluate("part => part.scrollTo(9999, 0)")
    page.locator("[data-hint=end] > #s0-results").wait_for()
    assert name.bounding_box()["x"] == left  # the names of the rows stay
    page.set_viewport_size({"width": 1440, "height": 900})
    page.locator(".scroll:not([data-hint]) > #s0-results").wait_for()
    page.close()


def test_print_has_no_navigation_and_is_light(opened):
    page = opened(color_scheme="dark")
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_a_watched_page_renews_itself_and_keeps_its_place(opened, tmp_path):
    leave(tmp_path, "van", tasks=4)
    late = leave(tmp_path, "er", tasks=4)
    record = (late / "record.json").read_text()
    (late / "record.json").unlink()
    with make_server(tmp_path, 0) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.05,))
        thread.start()
        try:
            page = opened(address=f"http://127.0.0.1:{serving.server_port}/")
            assert page.locator("#s0-fig4 [data-series]").count() == 1
            page.evaluate(
                "document.querySelector('#s0-trend').scrollIntoView({behavior: 'instant'})"
            )
            place = "document.querySelector('#s0-trend').getBoundingClientRect().top"
            before = page.evaluate(place)
            (late / "record.json").write_text(record)
            page.locator("#s0-fig4 [data-series]").nth(1).wait_for(state="attached", timeout=30_000)
            page.wait_for_load_state()
            # Though the differences have come above it.
            assert page.evaluate(place) == pytest.approx(before, abs=5)
        finally:
            serving.shutdown()
            thread.join()
