"""Speak German, read English: a microphone, a recogniser (Vosk) and a session.

    pip install 'simultan[microphone]'
    python examples/microphone.py --model vosk-model-small-de-0.15

The recogniser revises its partial results; only words on which two of them agree are fed. It
writes no punctuation: the session finds its own sentences. Another recogniser is another
generator like `listen`: it yields (text, whether the utterance is over).
"""

from __future__ import annotations

import argparse
import json
import queue
from collections.abc import Iterable, Iterator

import simultan
from simultan.streaming.session import End, Session, Write
from simultan.streaming.stable import StableWords

RATE = 16_000  # samples a second


def listen(folder: str) -> Iterator[tuple[str, bool]]:
    """What Vosk hears: partial results, and the final one of each utterance."""
    import sounddevice
    import vosk

    recogniser = vosk.KaldiRecognizer(vosk.Model(folder), RATE)
    sound: queue.Queue[bytes] = queue.Queue()
    with sounddevice.RawInputStream(
        samplerate=RATE,
        blocksize=RATE // 5,
        dtype="int16",
        channels=1,
        callback=lambda data, *_: sound.put(bytes(data)),
    ):
        while True:
            if recogniser.AcceptWaveform(sound.get()):
                yield json.loads(recogniser.Result())["text"], True
            else:
                yield json.loads(recogniser.PartialResult())["partial"], False


def translate(
    session: Session, results: Iterable[tuple[str, bool]], agreement: int = 2
) -> Iterator[str]:
    """The translation as it comes; a line feed ends a sentence."""
    stable = StableWords(agreement)
    for text, over in results:
        words = stable.final(text) if over else stable.partial(text)
        if not words:
            continue
        for event in session.feed(" ".join(words)):
            if isinstance(event, Write):
                yield f"{event.text} "
            elif isinstance(event, End):
                yield "\n"
    for event in session.finish():
        if isinstance(event, Write):
            yield f"{event.text} "
    yield "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="folder of a Vosk model")
    parser.add_argument("--lag", type=float, default=4, help="words to stay behind")
    options = parser.parse_args()
    session = simultan.load("de-en", threads=1).session(f"lag={options.lag}")
    try:
        for text in translate(session, listen(options.model)):
            print(text, end="", flush=True)
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    main()
