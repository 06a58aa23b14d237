"""The report page in a real browser.

Prevents: a page that requests anything from a network, or stays blank without one; a record's text that is executed; a table that a keyboard
can't sort or filter; a figure that contradicts its table; dead links; figures of invalid runs;
unreadable colours; a page of two thousand runs that takes too long.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

import pages
import pytest

from runner.report.page.runs import COLUMNS

pytestmark = pytest.mark.browser


def open_all(page):
    """Open every block."""
    page.evaluate(
        "document.querySelectorAll('details.block, details.elsewhere').forEach((one) => { one.open = true; })"
    )
    until(page, "document.querySelectorAll('details.block[open] > .body:empty').length === 0")


def draw_all(page):
    """Open every block, and scroll until every figure on the page is drawn."""
    open_all(page)
    for plot in page.locator(".plot").all():
        plot.scroll_into_view_if_needed()
    until(page, "[...document.querySelectorAll('.plot')].every((one) => one.querySelector('.main-svg'))")


@pytest.fixture(scope="module")
def drawn(visit, everything):
    """The page with every block open and every figure drawn, for tests that change nothing."""
    with visit(everything) as page:
        draw_all(page)
        yield page


def until(page, holds, argument=None):
    """Wait for a condition; Playwright's own wait evaluates text within the page, which its policy forbids."""
    for _ in range(300):
        if page.evaluate(holds, argument):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never came true: {holds}")


def columns(page, table):
    return [head.rstrip(" ↕↑↓") for head in table.locator("thead th").all_inner_texts()]


def column(page, table, name):
    place = columns(page, table).index(name)
    return table.evaluate("(one, place) => [...one.tBodies[0].rows].map((row) => row.cells[place].innerText)", place)


def all_runs(page):
    return page.locator("#all-runs table")


def test_the_page_is_self_contained_and_draws_every_figure(drawn):
    assert drawn.locator("figure").count() > 15
    assert drawn.evaluate("window.hostile") is None
    policy = drawn.locator("meta[http-equiv]").get_attribute("content")
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert drawn.locator("#overview .counts").inner_text().split()[:4] == ["runs", "7", "valid", "5"]


@pytest.mark.parametrize(("scheme", "rules"), [("light", None), ("dark", {"runOnly": ["color-contrast"]})])
def test_it_has_no_serious_accessibility_violation(visit, everything, scheme, rules):
    """No violations that axe calls serious or critical, in any block or a panel; in dark mode, only the colours differ."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with visit(everything, scheme=scheme) as page:
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        open_all(page)
        page.locator("figure > details").first.locator("summary").click()
        # Plotly's drawings are pictures with their own labels, and a third of all elements.
        found = axe.run(page, context={"exclude": [[".main-svg"]]}, options=rules).response["violations"]
        all_runs(page).locator("button.run").first.click()
        found += axe.run(page, context="#panel", options=rules).response["violations"]
        assert [
            (one["id"], [node["html"][:200] for node in one["nodes"]][:3])
            for one in found
            if one["impact"] in {"serious", "critical"}
        ] == []


def test_colours_follow_the_readers_choice(visit, everything):
    with visit(everything, scheme="dark") as page:
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.get_by_role("button", name="Light colours").click()
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (dark, light) == ("rgb(20, 23, 26)", "rgb(255, 255, 255)")
        page.reload()  # the choice persists
        assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_a_keyboard_sorts_filters_and_opens(visit, everything):
    with visit(everything) as page:
        table = all_runs(page)
        page.get_by_role("button", name="All 16 columns").focus()
        page.keyboard.press("Enter")
        table.get_by_role("button", name="batch").focus()
        page.keyboard.press("Enter")  # numbers sort largest first
        assert column(page, table, "batch")[0] == "64"
        page.keyboard.press("Space")
        assert column(page, table, "batch")[0] == "4"
        sorted_now = table.locator("th[aria-sort=ascending]")
        assert sorted_now.inner_text().startswith("batch")
        page.get_by_label("Filter", exact=True).last.focus()
        page.keyboard.type("epochs")
        assert column(page, table, "run") == ["epochs-1-r1"]
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.tagName") == "SELECT"
        table.get_by_role("button", name="epochs-1-r1").focus()
        page.keyboard.press("Enter")
        panel = page.get_by_role("dialog")
        assert panel.get_by_role("heading").inner_text() == "epochs-1-r1"
        page.keyboard.press("Escape")
        assert not panel.is_visible()
        assert page.evaluate("document.activeElement.textContent") == "epochs-1-r1"


# Dates that wrap over several lines, however they are nested.
BROKEN_DATES = """(() => {
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    for (const date of walk.currentNode.data.matchAll(/\\b\\d{4}-\\d\\d-\\d\\d\\b/g)) {
      const range = document.createRange();
      range.setStart(walk.currentNode, date.index);
      range.setEnd(walk.currentNode, date.index + date[0].length);
      if (range.getClientRects().length > 1) found.push(walk.currentNode.data);
    }
  }
  return found;
})()"""
SHOWN = (
    "[...document.querySelectorAll('#all-runs thead th')].filter((one) => one.offsetWidth).map((one) => one.innerText)"
)
CUT = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel)"


def test_no_table_scrolls_sideways_in_a_window_of_1280_pixels(drawn):
    """Once, headers that never wrapped, and run ids as wide as text, made tables of ten and more columns too wide."""
    drawn.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert drawn.evaluate(CUT) == []


def test_it_works_on_a_phone(visit, everything):
    with visit(everything, width=390) as page:
        draw_all(page)
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate(CUT) == []
        assert page.evaluate(BROKEN_DATES) == []
        assert page.evaluate(SHOWN) == ["run", "throughput", "validity"]


def test_the_labels_of_bars_do_not_overlap(drawn):
    """Once, names of four and more lines overlapped, because each bar had room for three."""
    together = drawn.evaluate(
        "[...document.querySelectorAll('.plot')].filter((plot) => [...plot.querySelectorAll('.ytick')].map((tick) => tick.getBoundingClientRect())"
        ".sort((a, b) => a.top - b.top).some((box, at, all) => at && box.top < all[at - 1].bottom - 1)).map((plot) => plot.ariaLabel)"
    )
    assert together == []


def test_the_table_of_runs_has_six_columns_in_a_window_of_1200_pixels(visit, everything):
    with visit(everything, width=1200) as page:
        table = page.locator("#all-runs .scroll")
        assert page.evaluate(SHOWN) == list(COLUMNS[:6])
        assert table.evaluate("(one) => one.scrollWidth <= one.clientWidth")
        page.get_by_role("button", name="All 16 columns").click()
        assert columns(page, all_runs(page)) == list(COLUMNS)


def test_hovering_shows_a_sentence_with_its_unit(drawn):
    said = drawn.evaluate(
        "[...document.querySelectorAll('.plot')].flatMap((one) => one.data.flatMap((curve) => curve.hovertext)).filter(Boolean)"
    )
    sentences = [text.replace("<br>", " ") for text in said]
    assert all(re.search(r": .+ is [\d.,−-]+.*\.$", text) for text in sentences)
    assert any(re.search(r" is [\d.,]+ images/s, from \d runs?\.$", text) for text in sentences)
    assert drawn.evaluate("[...document.querySelectorAll('.plot')].every((one) => one.layout.barmode === 'group')")


def test_a_filter_without_matches_says_so(visit, everything):
    with visit(everything) as page:
        page.get_by_label("Filter", exact=True).last.fill("no such run")
        assert "shorten the filter" in page.locator("#all-runs tbody").inner_text()


def test_the_first_tab_skips_to_the_content(visit, everything):
    with visit(everything) as page:
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"


def test_a_filter_keeps_only_matching_runs(visit, everything):
    with visit(everything) as page:
        table = all_runs(page)
        before = table.locator("tbody tr").count()
        page.locator("#all-runs label", has_text="validity").locator("select").select_option("degraded")
        assert column(page, table, "validity") == ["degraded"]
        said = page.locator("#all-runs [role=status]")
        assert said.inner_text() == f"1 of {before}"
        page.locator("#all-runs label", has_text="validity").locator("select").select_option(index=0)
        assert table.locator("tbody tr").count() == before


def test_an_invalid_run_has_no_figure(visit, everything):
    with visit(everything) as page:
        table = all_runs(page)
        by_run = dict(zip(column(page, table, "run"), column(page, table, "throughput"), strict=True))
        assert by_run["bad-fp32-64"] == "–"
        assert re.match(r"400\.0", by_run["m0-fp32-4"])
        table.get_by_role("button", name="bad-fp32-64").click()
        panel = page.get_by_role("dialog")
        assert panel.locator(".note").inner_text() == "made up"
        assert "throughput" not in panel.inner_text()


def test_every_link_leads_to_a_file(visit, everything):
    with visit(everything) as page:
        open_all(page)
        links = {one.get_attribute("href") for one in page.locator("a").all()}
        for run in column(page, all_runs(page), "run"):
            page.evaluate("(run) => { location.hash = `run=${run}`; }", run)
            until(page, "(run) => document.getElementById('panel-title').textContent === run", run)
            links |= {one.get_attribute("href") for one in page.locator("#panel a").all()}
        files = {link for link in links if not link.startswith("#")}
        assert any(link.endswith("record.json") for link in files)
        assert any(link.endswith(".png") for link in files)
        missing = [link for link in files if not (everything.parent / unquote(urlsplit(link).path)).exists()]
        assert missing == []
        inside = [link[1:] for link in links if link.startswith("#")]
        assert [name for name in inside if not page.locator(f"[id='{name}']").count()] == []


def test_a_panel_shows_the_command_of_its_run(visit, everything):
    with visit(everything) as page:
        page.evaluate("location.hash = 'run=hostile-1-r1'")
        command = page.get_by_role("dialog").locator("code").first
        command.wait_for()
        said = command.inner_text()
        assert said.startswith("dlscale bench --framework=pytorch ")
        assert "'</script><script>window.hostile = 1</script>" in said
        assert "dlscale/mxnet:1.9.1" in page.get_by_role("dialog").inner_text()
        assert page.evaluate("window.hostile") is None


def test_a_figures_summary_agrees_with_its_table(drawn):
    """Each value of a short series is in the summary for screen readers, and in the table below the figure."""
    drawn.evaluate("document.querySelectorAll('figure details').forEach((one) => { one.open = true; })")
    until(drawn, "[...document.querySelectorAll('figure')].every((one) => one.querySelector('td'))")
    told = drawn.evaluate(
        "[...document.querySelectorAll('figure')].map((one) => [one.querySelector('.summary').innerText, one.querySelector('.plot').ariaLabel,"
        " [...one.querySelector('table').tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.innerText))])"
    )
    checked = 0
    for summary, label, rows in told:
        assert label.endswith(summary)
        spoken = [float(word.replace(",", "")) for word in re.findall(r"-?\d[\d,]*\.?\d*", summary)]
        by_series = {}
        for series, x, y, *_ in rows:
            by_series.setdefault(series, []).append((x, float(y.replace(",", ""))))
        for points in by_series.values():
            for x, y in points if len(points) <= 8 else (points[0], points[-1]):
                assert any(value == pytest.approx(y, rel=6e-3, abs=6e-4) for value in spoken), (summary, x, y)
                checked += 1
    assert checked > 40


def test_points_link_to_their_runs(visit, everything):
    with visit(everything) as page:
        open_all(page)
        figure = page.locator("#matrices figure", has_text="Speedup, pytorch")
        figure.locator("details > summary").click()
        figure.locator("tbody tr").last.locator("button.run").click()
        assert page.get_by_role("dialog").get_by_role("heading").inner_text() == "curve-2-r1"


def test_print_has_light_colours_and_no_controls(visit, everything):
    with visit(everything, scheme="dark") as page:
        page.locator(".plot").first.scroll_into_view_if_needed()
        page.locator(".main-svg").first.wait_for()
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert not page.locator(".controls").first.is_visible()
        assert not page.locator("nav").is_visible()
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.pdf()[:5] == b"%PDF-"
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    place = tmp_path_factory.mktemp("many") / "report.html"
    place.write_text(pages.of_many(), encoding="utf-8")
    return place


def test_two_thousand_runs_open_as_fast_as_a_page_of_them(visit, many):
    """The work before the page is shown does not grow with the number of runs: the overview, and the first page of the table."""
    with visit(many) as page:
        page.locator("#all-runs tbody tr").first.wait_for()
        assert page.locator("#all-runs [role=status]").inner_text() == "1–50 of 2,000"
        assert page.locator("#all-runs tbody tr").count() == 50
        assert page.evaluate("document.querySelectorAll('*').length") < 8000


def test_two_thousand_runs_are_paged_sorted_and_filtered(visit, many):
    with visit(many) as page:
        table = all_runs(page)
        page.locator("#all-runs").get_by_role("button", name="Next").click()
        assert page.locator("#all-runs [role=status]").inner_text() == "51–100 of 2,000"
        table.get_by_role("button", name="run").first.click()
        assert column(page, table, "run")[:2] == ["m000-1-r1", "m000-1-r2"]
        page.locator("#all-runs label", has_text="model").locator("select").select_option("vgg16")
        assert page.locator("#all-runs [role=status]").inner_text() == "1–50 of 500"
        page.locator("#all-runs").get_by_label("Filter", exact=True).fill("m002 r3")
        assert len(column(page, table, "run")) == 4
