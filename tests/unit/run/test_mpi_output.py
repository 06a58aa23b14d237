"""Prevents: events and rows of two ranks that mpirun wove into one line taken for a breach of the contract, or lost; text of other
programs that is changed on its way."""

from hypothesis import given
from hypothesis import strategies as st

from runner.core.events.parse import Rows, parse_line
from runner.run.execute import MOST_TORN, TornLines

# A real chain, shortened: Open MPI 4.1.4, two ranks that write rows at once.
WOVEN = (
    (
        '[1,1]<stdout>:::dlscale-rows:: {"table":"kernels","rank":1,"columns":{"na[1,0]<stdout>:::dlscale-rows:: '
        '{"table":"kernels","rank":0,"columns":{"name":["a"],"op":[4]}}'
    ),
    '[1,0]<stdout>:::dlscale-[1,1]<stdout>:me":["b"],"op":[5]}}',
    '[1,0]<stdout>:rows:: {"table":"kernels","rank":0,"columns":{"name":["c"],"op":[6]}}',
)


def mpirun(fragments):
    """What mpirun prints of (rank, text) fragments: a tag before each, and one behind each end of line within it."""
    printed = ""
    for rank, text in fragments:
        tag = f"[1,{rank}]<stdout>:"
        printed += tag + text[:-1].replace("\n", "\n" + tag) + text[-1:]
    return printed


def test_a_line_that_was_torn_by_another_rank_is_whole_again():
    torn = TornLines()
    found = [parse_line(text, received=0.0, container="c") for physical in WOVEN for text in torn.feed(physical)]
    assert all(isinstance(rows, Rows) for rows in found)
    assert [(rows.rank, rows.columns) for rows in found] == [
        (0, {"name": ["a"], "op": [4]}),
        (1, {"name": ["b"], "op": [5]}),
        (0, {"name": ["c"], "op": [6]}),
    ]
    assert torn.close() == ()


@given(fragments=st.lists(st.tuples(st.integers(0, 3), st.text(alphabet="ab\n", min_size=1, max_size=9)), max_size=30))
def test_every_rank_is_heard_as_if_it_had_been_alone(fragments):
    written = dict.fromkeys(range(4), "")
    for rank, text in fragments:
        written[rank] += text
    fragments = [*fragments, *((rank, "\n") for rank, text in written.items() if text and not text.endswith("\n"))]
    torn = TornLines()
    heard = {rank: [] for rank in written}
    for physical in mpirun(fragments).split("\n")[:-1]:
        for text in torn.feed(physical):
            rank = int(text.partition("]")[0].partition(",")[2])
            heard[rank].append(text.partition(":")[2])
    assert {rank: "".join(line + "\n" for line in lines) for rank, lines in heard.items()} == {
        rank: text + ("\n" if text and not text.endswith("\n") else "") for rank, text in written.items()
    }
    assert torn.close() == ()


def test_tags_that_end_no_line_fill_no_memory():
    """What looked like the tag of one more rank was kept for its end, of any number of them."""
    torn = TornLines()
    for rank in range(40_000):
        assert torn.feed(f"[1,{rank}]<stdout>:{'x' * 1000}[2,1]<stdout>:whole") == ("[2,1]<stdout>:whole",)
    assert torn.feed(f"[1,39999]<stdout>:{'y' * 9}") == (f"[1,39999]<stdout>:{'y' * 9}",)
    assert sum(map(len, torn.close())) <= MOST_TORN


def test_lines_without_a_tag_pass_as_they_are_and_what_stands_before_one_is_a_line():
    torn = TornLines()
    for text in ("", "::dlscale:: {}", "[0]<stdout>:a line of horovodrun", "[rank1]: a traceback", "array[1,2]"):
        assert torn.feed(text) == (text,)
    assert torn.feed("mpirun says[1,0]<stdout>:hello") == ("mpirun says", "[1,0]<stdout>:hello")


def test_what_never_ended_is_given_at_the_end():
    torn = TornLines()
    assert torn.feed("[1,0]<stdout>:hel[1,1]<stdout>:whole") == ("[1,1]<stdout>:whole",)
    assert torn.close() == ("[1,0]<stdout>:hel",)
    assert torn.close() == ()
