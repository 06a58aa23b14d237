"""Prevents: a hidden exchange counted as exposed or the reverse, a bucket that waits for the wrong gradient, a wire fitted to points that do
not determine it, a prediction validated on the points of its own fit, an interval that omits an uncertainty.

The gradients of `data/backward_h100.json` were timed on one H100 by `workloads/with_pytorch/backward.py`: ResNet-50 at batch 256, AlexNet
at 1,024, Inception-v3 at 128, in bf16, channels-last, with a fused optimizer, PyTorch 2.11.
"""

import json
import math
import statistics
from pathlib import Path

import pytest

from runner.analysis.comparisons.predicted import predicted
from runner.analysis.prediction import Cost, OneDevice, Point, Wire, fit, held_out, predict
from runner.commands.predict import show_prediction
from runner.core.errors import RequestError
from runner.core.measurement import Backward, Exchange, Interval
from runner.results.find import newest_first, read_runs, runs_at

ROOT = Path(__file__).parents[3]
MIB = 2**20


def exchange(size_bytes, seconds):
    return Exchange(
        operation="all_reduce", size_bytes=size_bytes, seconds=seconds, algbw_gb_s=1.0, busbw_gb_s=1.0, wrong=0
    )


def wire(*probe, devices=2):
    return Wire(label="w", devices=devices, nodes=1, probe=tuple(exchange(*one) for one in probe))


def one(*gradients, step_s=1.0, backward_s=0.6, **more):
    return OneDevice(
        network=more.pop("network", "n"),
        step_s=step_s,
        backward=Backward(forward_s=0.3, backward_s=backward_s, gradients=gradients),
        **more,
    )


# 1 ms of latency, 1 s for 100 MiB beyond it.
SLOW = wire((0, 0.001), (100 * MIB, 1.001))


def test_latency_scales_with_tree_depth_and_transfer_with_ring_traffic():
    assert SLOW.seconds(50 * MIB, 2) == pytest.approx(0.501)
    # Among 8: log2(8) = 3 latencies of 1 ms, and (7/8) / (1/2) = 1.75 times the transfer of 0.5 s.
    assert SLOW.seconds(50 * MIB, 8) == pytest.approx(0.003 + 1.75 * 0.5)


def test_buckets_close_at_1_and_then_at_25_mib_and_wait_for_their_last_gradient():
    gradients = ((MIB // 2, 0.1), (MIB // 2, 0.2), (20 * MIB, 0.3), (5 * MIB, 0.4), (3 * MIB, 0.5))
    assert one(*gradients).messages() == [(MIB, 0.2), (25 * MIB, 0.4), (3 * MIB, 0.5)]
    # In half precision a bucket of 25 MiB of gradients is 12.5 MiB on the wire.
    assert one(*gradients, wire_share=0.5).messages()[:2] == [(MIB // 2, 0.1), (MIB // 2 + 20 * MIB, 0.3)]
    assert one(*gradients, overlap="one message").messages() == [(29 * MIB, 0.6)]


def test_an_exchange_hidden_by_the_backward_pass_is_not_exposed():
    # 25 MiB, ready after 0.1 s, take 0.251 s: done at 0.351 of 0.6 s. The last 10 MiB, ready at the end, take 0.101 s.
    training = one((25 * MIB, 0.1), (10 * MIB, 0.6))
    assert training.exchange(SLOW, 2) == pytest.approx((0.101, 0.352))
    assert Cost().step_s(training, SLOW, 2) == pytest.approx(1.101)
    # All after the backward pass: 35 MiB in one message.
    later = one((25 * MIB, 0.1), (10 * MIB, 0.6), overlap="one message")
    assert later.exchange(SLOW, 2) == pytest.approx((0.351, 0.351))


def test_a_bucket_waits_for_the_previous_one():
    # The first is ready at 0 and takes 0.751 s, beyond the backward pass; the second starts then.
    assert one((75 * MIB, 0.0), (25 * MIB, 0.1)).exchange(SLOW, 2) == pytest.approx((0.751 + 0.251 - 0.6, 1.002))


def points(of_step, of_exchange, *, noise=0.0):
    cost, found = Cost(of_step=of_step, of_exchange=of_exchange), []
    for number, size in enumerate((10, 40, 80, 160, 320)):
        training = one((size * MIB, 0.2), network=f"n{number % 3}")
        for devices in (2, 4):
            step_s = cost.step_s(training, SLOW, devices) * math.exp(noise * (-1) ** len(found))
            found.append(Point(one=training, wire=SLOW, devices=devices, step_s=step_s))
    return found


def test_a_fit_finds_the_shares_that_made_the_points():
    found = fit(points(0.04, 0.07))
    # The ridge shrinks them slightly towards 0.
    assert (found.of_step, found.of_exchange) == (pytest.approx(0.04, rel=0.1), pytest.approx(0.07, rel=0.1))
    assert max(abs(Cost.error(found, point)) for point in points(0.04, 0.07)) < 0.01


def test_a_share_is_never_negative_and_two_points_fit_none():
    faster = [point.model_copy(update={"step_s": 0.9 * point.step_s}) for point in points(0.0, 0.0)]
    assert fit(faster) == Cost()
    assert fit(points(0.5, 0.5)[:2]) == Cost()


def test_a_share_that_the_points_do_not_determine_stays_near_0():
    # 1 % of a step is exchange: an unexplained 5 % is a share of the step, not five times the exchange.
    fast = wire((0, 1e-6), (100 * MIB, 0.01))
    told = [Point(one=one((100 * MIB, 0.1), network=str(n)), wire=fast, devices=2, step_s=1.05) for n in range(4)]
    assert fit(told).of_exchange < 0.02


def test_a_point_is_held_out_with_all_points_of_its_network():
    found = points(0.04, 0.07)
    odd = [
        point.model_copy(update={"step_s": 2 * point.step_s}) if point.one.network == "n0" else point for point in found
    ]
    errors = {point.one.network: abs(error) for point, error in held_out(odd)}
    # The fit uses only the others: the error of n0 is all of its factor.
    assert errors["n0"] == pytest.approx(1.0, abs=0.1)


def test_an_interval_combines_the_errors_of_model_and_baseline():
    found = points(0.04, 0.07, noise=0.02)
    training = one((40 * MIB, 0.2))
    given = {"devices": (1, 8), "throughput": 100.0}
    exact = predict(training, SLOW, found, ci95=None, **given)
    rough = predict(training, SLOW, found, ci95=Interval(low=90.0, high=110.0), **given)
    assert exact[0].ci95 is None
    assert rough[0].ci95 == Interval(low=90.0, high=110.0)
    width = [math.log(row.ci95.high / row.ci95.low) for row in (exact[1], rough[1])]
    assert width[1] == pytest.approx(math.hypot(width[0], 2 * math.log(100 / 90)))
    assert predict(training, SLOW, [], ci95=None, **given)[1].ci95 is None


def with_backward(record, backward):
    return record.model_copy(update={"measurement": record.measurement.model_copy(update={"backward": backward})})


@pytest.fixture(scope="module")
def records():
    """The committed H200 trainings; for each network timed on an H100, the first one-device run has those gradient-ready times."""
    timed = json.loads((Path(__file__).parent / "data" / "backward_h100.json").read_text())
    found = []
    for _, record in runs_at(
        *(str(ROOT / "results/h200" / topic) for topic in ("scaling", "scaling-tuned", "wires", "horovod"))
    ).runs:
        trial, told = record.trial, timed.get(record.trial.model)
        if told and trial.world_size == 1 and "cuda-graphs" not in trial.techniques:
            del timed[trial.model]
            time = record.measurement.step_parts.step_s / told["step_s"]
            size = record.measurement.gradient_bytes / sum(size for size, _ in told["gradients"])
            backward = Backward(
                forward_s=time * told["forward_s"],
                backward_s=time * told["backward_s"],
                gradients=tuple((round(size * own), time * ready) for own, ready in told["gradients"]),
            )
            found.append(with_backward(record, backward))
        else:
            found.append(record)
    assert not timed
    return found


def test_throughputs_of_held_out_networks_are_predicted_within_5_percent(records):
    run = next(record for record in records if record.trial.world_size == 1 and record.measurement.backward)
    found = predicted(run, records, wire="nvlink", devices=(1, 2, 4, 64))
    assert len(found.errors) >= 20
    assert statistics.median(abs(error) for _, error in found.errors) < 0.05
    assert found.wire.devices == 4
    beside = [row for row in found.rows if row.measured]
    assert beside
    assert all(row.ci95.low < row.measured < row.ci95.high for row in beside if row.devices > 1)
    assert any("extrapolated" in note for note in found.notes)
    text = " ".join((ROOT / "docs/predict.md").read_text("utf-8").split())
    own = {of: max(abs(error) for where, error in found.errors if ("nvlink" in where) is of) for of in (True, False)}
    assert f"the largest is {100 * own[True]:.1f} % over NVLink and {100 * own[False]:.1f} % over the others" in text
    elsewhere = {where.split()[0] for where, _ in found.errors if "nvlink" not in where}
    assert elsewhere == {"resnet50"}


def test_a_prediction_has_the_exchange_of_the_runs_beside_it():
    """It was of buckets in fp32 next to runs that sent one message in bf16: a one-device run has no techniques of an exchange."""
    committed = [record for _, record in read_runs(newest_first(ROOT / "results")).runs]
    run = next(
        record
        for record in committed
        if record.run_id.startswith("20261127T071629Z-737e") and record.trial.world_size == 1
    )
    found = predicted(run, committed, wire="nvlink", devices=(1, 4))
    assert found.rows[1].throughput == pytest.approx(found.rows[1].measured, rel=0.02)
    assert not any("fp32" in note for note in found.notes)
    alone = predicted(
        run,
        [one for one in committed if one.trial.key != run.trial.key or one.trial.world_size == 1],
        wire="nvlink",
        devices=(4,),
    )
    assert alone.rows[0].throughput < 0.97 * found.rows[1].throughput
    assert any("fp32" in note for note in alone.notes)
    text = " ".join((ROOT / "docs/predict.md").read_text("utf-8").split())
    errors = [abs(error) for _, error in found.errors]
    assert (
        f"{len(errors)} points: their median error is {100 * statistics.median(errors):.1f} %, the largest {100 * max(errors):.1f} %"
        in text
    )
    assert f"For {found.unfitted} of them" in text


def test_a_wire_is_taken_from_the_runs_machine_and_its_scale_limits_the_prediction(records):
    run = next(record for record in records if record.trial.world_size == 1 and record.measurement.backward)
    two = [record for record in records if record.trial.world_size <= 2]
    assert any("among 2 devices" in note for note in predicted(run, two, wire="nvlink", devices=(4,)).notes)
    moved = [on_another_machine(record) for record in records if record.trial.world_size == 4]
    found = predicted(run, [*two, *moved], wire="nvlink", devices=(2,))
    assert found.wire.devices == 2
    found = predicted(run, [*(one for one in two if one.trial.world_size == 1), *moved], wire="nvlink", devices=(2,))
    assert any("not on" in note for note in found.notes)


def on_another_machine(record):
    gpus = tuple(gpu.model_copy(update={"name": "NVIDIA B300"}) for gpu in record.provenance.gpus)
    return record.model_copy(update={"provenance": record.provenance.model_copy(update={"gpus": gpus})})


def again(record, trial=None, **measurement):
    """The same run under another id, with changes of its trial and its measurement."""
    return record.model_copy(
        update={
            "run_id": f"{record.run_id}-again",
            "trial": record.trial.model_copy(update=trial or {}),
            "measurement": record.measurement.model_copy(update=measurement),
        }
    )


def test_repeats_of_a_training_are_one_point_and_one_measured_rate(records):
    """Each repeat was a point, and three of one training an interval; the rate of the last repeat was shown as measured."""
    run = next(record for record in records if record.trial.world_size == 1 and record.measurement.backward)
    several = [record for record in records if record.trial.world_size > 1]
    given = {"wire": "nvlink", "devices": (1, 2, 4, 64)}
    alone, thrice = (predicted(run, more, **given) for more in (records, [*records, *map(again, several)]))
    assert [row.ci95 for row in thrice.rows] == [row.ci95 for row in alone.rows]
    assert len(thrice.errors) == len(alone.errors)

    def half(record):
        windows = tuple(one.model_copy(update={"seconds": 2 * one.seconds}) for one in record.measurement.windows)
        moved = tuple(
            one.model_copy(update={"start": windows[0].start + 2 * (one.start - windows[0].start)}) for one in windows
        )
        return again(record, windows=moved)

    slower = predicted(run, [*records, *map(half, several)], **given)
    (first, *_), (second, *_) = ([row.measured for row in found.rows if row.measured] for found in (alone, slower))
    # As many samples again in twice the time: 2 ÷ 3.
    assert second == pytest.approx(first * 2 / 3, rel=1e-3)


def test_strong_scaling_is_no_point_and_is_refused(records):
    """Its step has another batch than the one-device step that it was predicted from."""
    run = next(record for record in records if record.trial.world_size == 1 and record.measurement.backward)
    strong = [again(record, {"scaling": "strong", "key": "strong"}) for record in records]
    given = {"wire": "nvlink", "devices": (8,)}
    found = predicted(run, [*records, *strong], **given)
    assert found.errors == predicted(run, records, **given).errors
    with pytest.raises(RequestError, match="SCALING=weak"):
        predicted(next(one for one in strong if one.trial.world_size == 1), strong, **given)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"framework": "tensorflow"}, "has FRAMEWORK=tensorflow;"),
        ({"mode": "infer"}, "has MODE=infer;"),
        ({"strategy": "zero3"}, "has STRATEGY=zero3;"),
        ({"concurrent": "2 at once"}, "CONCURRENT"),
    ],
)
def test_a_run_that_cannot_be_predicted_is_refused_with_the_condition_that_it_fails(records, changes, said):
    run = again(next(record for record in records if record.trial.world_size == 1), changes)
    with pytest.raises(RequestError, match=f"^{run.run_id} .*{said}"):
        predicted(run, [run], wire="nvlink", devices=(8,))


@pytest.mark.parametrize("wanted", [None, "ethernet", "token ring"])
def test_an_untimed_or_ambiguous_wire_is_refused(records, wanted):
    run = next(record for record in records if record.measurement.backward)
    with pytest.raises(RequestError, match="wire"):
        predicted(run, records, wire=wanted, devices=(8,))


def test_a_run_without_gradient_times_or_on_several_devices_is_refused(records):
    plain = [with_backward(record, None) for record in records]
    run = next(record for record in plain if record.trial.world_size == 1)
    with pytest.raises(RequestError, match="gradients"):
        predicted(run, plain, wire="nvlink", devices=(8,))
    with pytest.raises(RequestError, match="baseline"):
        predicted(next(record for record in plain if record.trial.world_size == 2), plain, wire="nvlink", devices=(8,))


def test_the_command_prints_and_plots_the_prediction(records, tmp_path, capsys):
    for record in records:
        (tmp_path / record.run_id).mkdir()
        (tmp_path / record.run_id / "record.json").write_text(record.model_dump_json(by_alias=True))
    run = next(record for record in records if record.trial.world_size == 1 and record.measurement.backward)
    given = {"wire": "nvlink", "devices": (8,), "place": tmp_path}
    show_prediction(str(tmp_path / run.run_id), **given, as_json=True, plot=tmp_path / "curve.png")
    said = json.loads(capsys.readouterr().out)
    assert [row["devices"] for row in said["rows"]] == [1, 8]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(RequestError, match=r"can't be written"):
        show_prediction(str(tmp_path / run.run_id), **given, as_json=True, plot=tmp_path / "missing" / "curve.png")
    show_prediction(str(tmp_path / run.run_id), **given | {"devices": (1, 8)}, as_json=True, plot=None)
    assert [row["devices"] for row in json.loads(capsys.readouterr().out)["rows"]] == [1, 8]


def test_a_run_elsewhere_is_predicted_from_the_records_beside_it(records, tmp_path):
    """A training in --out=DIR was refused as none that can be predicted."""
    run = next(record for record in records if record.trial.world_size == 1)
    (tmp_path / run.run_id).mkdir()
    (tmp_path / run.run_id / "record.json").write_text(run.model_dump_json(by_alias=True))
    given = {"wire": None, "devices": None, "place": tmp_path / "gone", "as_json": False, "plot": None}
    with pytest.raises(RequestError, match=f"is not among the runs in {tmp_path}/gone; add --in={tmp_path}$"):
        show_prediction(str(tmp_path / run.run_id), **given)
