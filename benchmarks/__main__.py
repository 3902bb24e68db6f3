"""Runs the benchmarks of speed, accuracy and EP one after the other: ``python -m benchmarks``."""

from benchmarks import accuracy, ep, speed

if __name__ == "__main__":
    speed.main()
    accuracy.main()
    ep.main()
