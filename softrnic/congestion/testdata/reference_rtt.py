#!/usr/bin/env python3
"""Independent references of TIMELY and Swift, in floating point, written from the papers' algorithms.

    ./reference_rtt.py timely > timely.txt     # algorithm 1 of TIMELY, SIGCOMM 2015
    ./reference_rtt.py swift > swift.txt       # algorithm 1 and section 3.5 of Swift, SIGCOMM 2020

The Go tests feed the events of the tables to the implementations, and compare the results.
"""

import math
import random
import sys


def walk(r, us):
    """The next round-trip time: a random walk between 5 and 900 us, with jumps."""
    if r.random() < 0.02:
        return r.uniform(5, 900)
    return min(max(us + r.gauss(0, 6), 5), 900)


def timely(r):
    line, low, delta = 40e9, 40e6, 10e6
    alpha, beta, t_low, t_high, min_rtt = 896 / 1024, 819 / 1024, 50e3, 500e3, 20e3
    rate, prev, diff, run, us = line, None, 0.0, 0, 40.0
    for i in range(3000):
        us = walk(r, us) if i % 750 < 120 else r.uniform(5, 60)
        rtt = int(us * 1000)
        if prev is None:
            prev = rtt
        new_diff = rtt - prev
        prev = rtt
        diff = (1 - alpha) * diff + alpha * new_diff
        gradient = diff / min_rtt
        run = 0 if gradient > 0 else run + 1
        if rtt < t_low:
            rate += delta
        elif rtt > t_high:
            rate *= 1 - beta * (1 - t_high / rtt)
        elif gradient <= 0:
            rate += (5 if run >= 5 else 1) * delta
        else:
            rate *= max(0, 1 - beta * gradient)
        rate = min(max(rate, low), line)
        print(rtt, "%.3f" % rate)


def swift(r):
    ai, beta, max_mdf, base, fs_range = 1.0, 819 / 1024, 0.5, 20e3, 100e3
    fs_min, fs_max, low, high = 102 / 1024, 100.0, 10 / 1024, 128.0
    a = fs_range / (1 / math.sqrt(fs_min) - 1 / math.sqrt(fs_max))
    b = -a / math.sqrt(fs_max)
    cwnd, delay, cut, lost, now, us = high, 0, -1e18, 0, 0, 30.0
    for i in range(2400):
        now += r.randrange(1000, 60000)
        kind, n, sample = "ack", r.randrange(1, 5), 0
        if r.random() < (0.3 if i % 400 > 380 else 0.01):
            kind = "timeout" if r.random() < 0.9 else "nak"
        can = now - cut
        if kind == "ack":
            lost = 0
            if r.random() < 0.8:
                us = walk(r, us) if i % 400 < 250 else r.uniform(90, 150)
                sample = int(us * 1000)
                delay = sample
            target = base + max(0, min(a / math.sqrt(cwnd) + b, fs_range))
            if delay == 0:
                pass
            elif delay < target:
                cwnd += ai * n / cwnd if cwnd >= 1 else ai * n
            elif sample and can >= delay:
                cwnd *= max(1 - beta * (delay - target) / delay, 1 - max_mdf)
                cut = now
        elif kind == "timeout":
            lost += 1
            if lost >= 5:
                cwnd = low
            elif can >= delay:
                cwnd *= 1 - max_mdf
                cut = now
        else:
            lost = 0
            if can >= delay:
                cwnd *= 1 - max_mdf
                cut = now
        cwnd = min(max(cwnd, low), high)
        target = base + max(0, min(a / math.sqrt(cwnd) + b, fs_range))
        print(now, kind, n, sample, "%.6f" % cwnd, "%.1f" % target)


{"timely": timely, "swift": swift}[sys.argv[1]](random.Random(53))
