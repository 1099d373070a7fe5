#!/usr/bin/env python3
"""Independent reference of the DCQCN reaction point, profile paper, in floating point.

It prints the table dcqcn.txt, which TestGoldenTrace compares with the Go implementation:

    python3 reference.py > dcqcn.txt

The rules are those of the DCQCN paper (SIGCOMM 2015, sections 3 and 5), written here from its text
and not from the Go code: the state is a record of floats, and time goes in steps of one microsecond.
A linear congruential generator chooses the events; the test has the same one. Event i happens a
few microseconds behind event i-1: a CNP with a probability of 1 in 8 to 1 in 100,000, else a packet of up to
64 KiB.
Each line is the state behind one event of 10: time in us, R_C and R_T in bits a second, alpha.
"""

LINE, R_MIN, R_AI, R_HAI = 40e9, 40e6, 40e6, 200e6
K, T, B, F, G = 55, 55, 10_000_000, 5, 1 / 256


class Generator:
    def __init__(self, seed):
        self.x = seed

    def draw(self, n):
        self.x = (self.x * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.x >> 33) % n


class Flow:
    def __init__(self):
        self.rc = self.rt = LINE
        self.alpha = 1.0
        self.t_stage = self.b_stage = 0
        self.sent = 0
        self.since_cnp = self.since_increase = None  # us; None: no timer runs

    def microsecond(self):
        if self.since_cnp is None:
            return
        self.since_cnp += 1
        self.since_increase += 1
        if self.since_cnp == K:
            self.since_cnp = 0
            self.alpha = (1 - G) * self.alpha
        if self.since_increase == T:
            self.since_increase = 0
            self.t_stage += 1
            self.raise_rate()
        if self.rc > LINE - 1e-3 and self.alpha < 1 / 1024:
            self.since_cnp = None
            self.sent = 0

    def cnp(self):
        self.rt = self.rc
        self.rc = max(self.rc * (1 - self.alpha / 2), R_MIN)
        self.alpha = (1 - G) * self.alpha + G
        self.t_stage = self.b_stage = self.sent = 0
        self.since_cnp = self.since_increase = 0

    def packet(self, n):
        if self.since_cnp is None:
            return
        self.sent += n
        if self.sent >= B:
            self.sent -= B
            self.b_stage += 1
            self.raise_rate()

    def raise_rate(self):
        if max(self.t_stage, self.b_stage) >= F:
            if min(self.t_stage, self.b_stage) > F:
                self.rt += (min(self.t_stage, self.b_stage) - F + 1) * R_HAI
            else:
                self.rt += R_AI
        self.rt = min(self.rt, LINE)
        self.rc = min((self.rc + self.rt) / 2, LINE)


def main():
    draw, flow, now = Generator(53).draw, Flow(), 0
    for i in range(10_000):
        # Every 1000 events have a rarer CNP, so that all kinds of increase occur.
        rarity = (16, 256, 100_000, 8, 64)[i // 1000 % 5]
        for _ in range(draw(40)):
            now += 1
            flow.microsecond()
        if draw(rarity) == 0:
            flow.cnp()
        else:
            flow.packet(draw(65536))
        if i % 10 == 9:
            print(f"{now} {flow.rc:.3f} {flow.rt:.3f} {flow.alpha:.12f}")


main()
