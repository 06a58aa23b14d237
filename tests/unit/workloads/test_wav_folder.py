"""Utterances on disk.

Prevents: audio of another rate taken for 16 kHz, a truncated file that trains on silence, an utterance without its text, samples
scaled or ordered wrongly, skipped files that are not named.
"""

import wave

import numpy as np
import pytest
import speech
from wav_folder import WavFolder


def write(path, audio, text="hello world", *, rate=16_000, channels=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.asarray(audio, "<i2").tobytes())
    if text is not None:
        path.with_suffix(".txt").write_text(text, encoding="utf-8")


@pytest.fixture
def tone():
    return (16_384 * np.sin(2 * np.pi * 2_000 * np.arange(24_000) / 16_000)).astype(np.int16)


def test_a_folder_is_read_in_order_of_its_names(tmp_path, tone):
    write(tmp_path / "b/2.wav", tone, "Second\none")
    write(tmp_path / "a/1.WAV", tone[:16_000], "first")
    folder = WavFolder(tmp_path)
    assert folder.samples == [16_000, 24_000]
    assert folder.skipped == set()
    one = folder.read(1)
    assert one.text.tolist() == speech.encode("second one").tolist()
    assert one.samples == 24_000
    assert one.spectrogram.shape == (161, speech.frames(24_000))
    assert set(one.spectrogram.argmax(axis=0)) == {40}  # 2 kHz in steps of 50 Hz
    assert len(folder) == 2


def test_unusable_files_are_named(tmp_path, tone):
    write(tmp_path / "good.wav", tone)
    write(tmp_path / "rate.wav", tone, rate=8_000)
    write(tmp_path / "stereo.wav", tone, channels=2)
    write(tmp_path / "silent.wav", tone, text=None)
    write(tmp_path / "empty.wav", tone, text=" ,.\n")
    write(tmp_path / "short.wav", tone[:300])
    write(tmp_path / "wordy.wav", tone[:16_000], "a" * 26)  # 26 letters and 25 blanks, 50 outputs
    write(tmp_path / "just.wav", tone[:16_000], "a" * 25)
    write(tmp_path / "cut.wav", tone)
    whole = (tmp_path / "cut.wav").read_bytes()
    (tmp_path / "cut.wav").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.wav").write_text("RIFF, so it says")
    folder = WavFolder(tmp_path)
    assert [one.path for one in folder.utterances] == ["good.wav", "just.wav"]
    bad = ("rate", "stereo", "silent", "empty", "short", "wordy", "cut", "text")
    assert folder.skipped == {f"{name}.wav" for name in bad}
