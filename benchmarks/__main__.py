"""All benchmarks, one after the other: ``python -m benchmarks``."""

from benchmarks import accuracy, speed

if __name__ == "__main__":
    speed.main()
    accuracy.main()
