"""The page in headless Chromium: keyboard, undo, two at once, reload, a killed server, accessibility, a phone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onelabel.review import load_answers
from onelabel.review.database import Database
from onelabel.review.models import Answer, Event

from sqlalchemy import func, select  # isort: skip

pytestmark = pytest.mark.slow
OPEN_TILES = ".tile:not([data-answer])"


@pytest.fixture
def new_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Pages of browsers that share nothing; whatever a page complains of fails the test."""
    contexts, complaints = [], []

    def make(url: str, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda m: complaints.append(m.text) if "Content Security" in m.text else None)
        page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
        page.goto(url)
        page.wait_for_selector("html[data-ready]")
        return page

    yield make
    for context in contexts:
        context.close()
    assert not complaints


def until(page: Any, expression: str, seconds: float = 30) -> None:
    """Wait until an expression holds; Playwright's own way evaluates strings in the page, which its policy forbids."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"never: {expression}"
        page.wait_for_timeout(20)


def saved(page: Any) -> None:
    until(page, "document.getElementById('saving').textContent === 'All saved'")


def press(page: Any, key: str) -> int:
    """Answer the focused tile by one key; the item's number is returned by its place."""
    page.wait_for_selector(OPEN_TILES)
    until(page, "document.activeElement.classList.contains('pic')")
    before = page.evaluate("document.querySelectorAll('.tile[data-answer]').length")
    page.keyboard.press(key)
    return int(before)


def counts(db_url: str) -> tuple[int, int, int]:
    """Answers, events, and (item, reviewer) pairs answered more than once."""
    db = Database(db_url, create=False)
    with db.read() as connection:
        answers = connection.execute(select(func.count()).select_from(Answer)).scalar_one()
        events = connection.execute(select(func.count()).select_from(Event).where(Event.kind == "answer")).scalar_one()
        twice = select(Event.item_id).where(Event.kind == "answer").group_by(Event.item_id).having(func.count() > 1)
        repeated = len(connection.execute(twice).all())
    db.close()
    return answers, events, repeated


def sign_in(page: Any, name: str) -> None:
    page.click("#who")
    page.fill("#signin-name", name)
    page.click("#signin-form .accent")
    page.wait_for_selector(f"#who:text-is('{name}')")
    page.wait_for_selector("html[data-ready]")


def test_fifty_items_by_keyboard_with_undo_reload_and_a_killed_server(
    serve: Callable[..., Any], db_url: str, new_page: Callable[..., Any]
) -> None:
    server = serve(db_url)
    page = new_page(server.url)
    page.click("#classes button >> nth=0")  # all classes: more than fifty suggestions
    until(page, "document.querySelectorAll('.tile').length === 24")
    keys = "ynyyunynny" * 5
    for i, key in enumerate(keys):
        if i == 15:  # reload in the middle: nothing comes twice, nothing is lost
            page.reload()
            page.wait_for_selector("html[data-ready]")
            page.click("#classes button >> nth=0")
            page.wait_for_selector(OPEN_TILES)
            page.focus("#grid .pic[tabindex='0']")
        if i == 30:  # the server is killed; answers wait in the page and arrive after the restart
            saved(page)
            server.kill()
            press(page, key)
            until(page, "document.getElementById('saving').textContent.startsWith('Not saved yet')")
            assert counts(db_url)[0] == 30
            server.start()
            saved(page)
            continue
        press(page, key)
        if i == 40:  # a slip: undo takes exactly this one back
            saved(page)
            assert counts(db_url)[0] == 41
            page.keyboard.press("Backspace")
            until(page, "document.getElementById('toast').textContent === 'Answer taken back'")
            saved(page)
            assert counts(db_url)[0] == 40
            press(page, key)
    saved(page)
    answers, events, repeated = counts(db_url)
    assert (answers, events) == (50, 51)
    assert repeated == 1  # the one that was undone and answered again
    values = load_answers(db_url).values
    assert ((values == 1).sum(), (values == -1).sum()) == (keys.count("y"), keys.count("n"))


def _redrawn(page: Any) -> None:
    """Have the list of classes come anew, as it does while answers are given."""
    with page.expect_response(lambda response: "/api/classes" in response.url):
        page.evaluate("document.getElementById('search').dispatchEvent(new Event('input'))")


def test_a_class_is_chosen_though_the_list_comes_anew_meanwhile(
    shared_server: Any, new_page: Callable[..., Any]
) -> None:
    page = new_page(shared_server.url)
    page.wait_for_selector(OPEN_TILES)
    chosen = page.text_content("#question em")
    button = page.locator("#classes button").nth(2)
    other = button.locator(".label").text_content()
    assert other != chosen
    box = button.bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 10)
    page.mouse.down()
    _redrawn(page)
    page.wait_for_timeout(300)
    page.mouse.up()
    until(page, f"document.querySelector('#question em')?.textContent === '{other}'")
    until(page, "document.activeElement.classList.contains('pic')")
    first = page.locator("#classes button").first  # a keyboard's place in the list stays, too
    first.focus()
    _redrawn(page)
    page.wait_for_timeout(300)
    assert first.evaluate("button => button === document.activeElement")


def test_a_class_chosen_before_the_page_has_begun_is_kept(shared_server: Any, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    waiting: list[Any] = []
    page.route("**/api/me", lambda route: waiting.append(route))
    page.goto(shared_server.url)
    page.click("#classes button >> nth=0")
    waiting.pop().continue_()
    page.wait_for_selector("html[data-ready]")
    assert page.text_content("#question").startswith("Does the picture show")  # all classes
    assert page.get_attribute("#classes button >> nth=0", "aria-current") == "true"
    context.close()


def test_two_browsers_share_the_work_without_losing_or_repeating_any(
    serve: Callable[..., Any], db_url: str, data: Any, new_page: Callable[..., Any]
) -> None:
    server = serve(db_url)
    pages = [new_page(server.url), new_page(server.url), new_page(server.url)]  # the third shares ann's name
    sign_in(pages[1], "bob")
    for page in pages:
        page.select_option("#disagreement", "none")
        page.fill("#low", "45")
        page.press("#low", "Tab")
        page.click("#classes button >> nth=0")
    deadline = time.monotonic() + 60
    busy = set(range(3))
    while busy and time.monotonic() < deadline:
        for i in sorted(busy):
            page = pages[i]
            nothing = "document.querySelector('#grid-empty').textContent.startsWith('Nothing')"  # and not "Loading…"
            until(page, f"document.querySelector('{OPEN_TILES}') || {nothing}")
            if page.query_selector(OPEN_TILES) is None:
                busy.discard(i)
                continue
            page.keyboard.press("Shift+Y")
            saved(page)
            page.wait_for_timeout(50)
    for page in pages:
        saved(page)
    from onelabel.review import read_recovered

    table = next(read_recovered(data.recovered).batches())
    chance, given = np.asarray(table.column("probability")), np.asarray(table.column("observed"))
    expected = int(((chance >= 0.45) & (given == 0)).sum())
    answers, events, repeated = counts(db_url)
    assert (answers, events, repeated) == (expected, expected, 0)


def test_an_audit_by_keyboard(serve: Callable[..., Any], db_url: str, data: Any, new_page: Callable[..., Any]) -> None:
    server = serve(db_url)
    page = new_page(f"{server.url}/#picture")
    for row in range(3):
        until(page, f"document.getElementById('audit-title').textContent === 'pictures/00{row}.jpg'")
        until(page, "document.activeElement.classList.contains('line')")
        if row == 0:
            for present in data.truth[row]:
                page.keyboard.press("y" if present else "n")
        else:
            for at in np.flatnonzero(data.truth[row]):
                page.keyboard.press("/")
                page.keyboard.type(["bic", "bus", "cat", "dog", "horse"][at])
                page.keyboard.press("Enter")
            page.keyboard.press("Shift+N")
        saved(page)
    until(page, "!document.getElementById('audit-empty').hidden")
    answers = load_answers(db_url)
    dense = np.zeros((3, 5), np.int8)
    dense[answers.rows, answers.cols] = answers.values
    assert (dense == np.where(data.truth[:3], 1, -1)).all()
    page.goto(f"{server.url}/#progress")
    page.wait_for_selector("#history tr")
    assert page.inner_text("#cards section:nth-child(6) .big") == "3 / 3"


def test_nobody_is_told_that_something_is_certain(shared_server: Any, new_page: Callable[..., Any]) -> None:
    page = new_page(shared_server.url)
    told = "async (all) => { const { chance } = await import('/static/ui.js'); return all.map(chance); }"
    assert page.evaluate(told, [1, 0.9951, 0.994, 0.5, 0.006, 0.004, 0]) == [
        ">99%", ">99%", "99%", "50%", "1%", "<1%", "<1%",
    ]  # fmt: skip
    page.wait_for_selector(OPEN_TILES)
    assert page.get_attribute(".tile .acts button >> nth=0", "aria-label").count("% likely") == 1


def test_select_many_note_zoom_and_names_stay_text(shared_server: Any, new_page: Callable[..., Any]) -> None:
    page = new_page(shared_server.url)
    page.click("#classes >> text=<b>horse</b>")
    until(page, "document.getElementById('question').textContent.includes('<b>horse</b>')")
    assert page.query_selector("#question b") is None
    until(page, "[...document.querySelectorAll('.tile img')].every((i) => i.naturalWidth > 0)")
    page.focus(".tile .pic >> nth=0")
    for _ in range(3):
        page.keyboard.press("Space")
        page.keyboard.press("ArrowRight")
    page.keyboard.press("u")
    until(page, "document.querySelectorAll('.tile[data-answer=unsure]').length === 3")
    page.keyboard.press("m")
    page.keyboard.type("blurred <i>picture</i>")
    page.click("#note .accent")
    until(page, "document.getElementById('toast').textContent === 'Note saved'")
    page.focus(".tile .pic[tabindex='0']")
    page.keyboard.press("Enter")
    until(page, "document.getElementById('zoom-image').naturalWidth > 0")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+z")
    until(page, "document.querySelectorAll('.tile[data-answer]').length === 3")  # a note is its own action
    page.keyboard.press("Control+z")
    until(page, "document.querySelectorAll('.tile[data-answer]').length === 0")


def test_retraining_is_followed_on_the_page(shared_server: Any, new_page: Callable[..., Any]) -> None:
    page = new_page(f"{shared_server.url}/#progress")
    page.click("#retrain-start")
    until(page, "document.getElementById('retrain-status').textContent.includes('succeeded')")
    assert page.inner_text("#retrain-log").split("\n")[:3] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert page.evaluate("document.getElementById('retrain-bar').value") == 1


def test_signing_in_with_a_token(serve: Callable[..., Any], tmp_path: Path, browser: Any) -> None:
    (tmp_path / "token").write_text("a secret of many characters\n")
    server = serve(str(tmp_path / "x.db"), "--token-file", str(tmp_path / "token"))
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.url)
    page.wait_for_selector("#signin[open]")
    page.fill("#signin-name", "eve")
    page.fill("#signin-token", "wrong")
    page.keyboard.press("Enter")
    until(page, "document.getElementById('signin-error').textContent === 'the token is wrong'")
    assert page.query_selector(".tile") is None
    page.fill("#signin-token", "a secret of many characters")
    page.keyboard.press("Enter")
    page.wait_for_selector(".tile")
    assert page.inner_text("#who") == "eve"
    assert page.evaluate("document.cookie") == ""
    context.close()


CONTRAST = (Path(__file__).parent / "accessibility.js").read_text(encoding="utf-8")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)])
def test_accessible_in_both_themes_and_on_a_phone(
    shared_server: Any, new_page: Callable[..., Any], scheme: str, width: int
) -> None:
    server = shared_server
    phone = width < 500
    page = new_page(server.url, viewport={"width": width, "height": 844}, color_scheme=scheme, has_touch=phone)
    for view in ("class", "picture", "progress"):
        page.goto(f"{server.url}/#{view}")
        page.wait_for_selector(f"#view-{view}:not([hidden]) :is(.tile, .line, .card)")
        if view == "class":
            for key in "ynu":
                press(page, key)
            saved(page)
        page.wait_for_timeout(300)  # the toast has faded in
        assert page.evaluate(CONTRAST) == []
        assert page.evaluate("document.documentElement.scrollWidth") == width
    if phone:
        page.goto(f"{server.url}/#class")
        page.wait_for_selector(OPEN_TILES)
        page.tap(f"{OPEN_TILES} .acts .no")
        page.wait_for_selector(".tile[data-answer=no]")
    page.goto(f"{server.url}/#class")
    page.wait_for_selector(OPEN_TILES)
    page.reload()
    page.wait_for_selector("html[data-ready]")
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    order = []
    for _ in range(30):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.className || ''"))
    wanted = ["skip-link", "who", "search", "pic"]
    assert [name for name in order if name in wanted][: len(wanted)] == wanted
