package perf

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Range and precision of latencies: beyond maxLatency they count as maxLatency.
const (
	maxLatency    = 10 * time.Minute
	latencyDigits = 3
)

// latency runs a stream one message at a time.
func (s *session) latency(j stream, res *Result) error {
	h := hdrhistogram.New(1, int64(maxLatency), latencyDigits)
	one := j
	one.total, one.depth, one.every = 1, 1, 1
	begun := s.rt.Now()
	for k := range j.total {
		one.index = k
		one.wr = func(_ int, wr *verbs.SendWR) { j.wr(k, wr) }
		one.done = nil
		start := s.rt.Now()
		if err := s.run(one); err != nil {
			return err
		}
		record(h, s.rt.Now().Sub(start))
		if j.done != nil {
			if err := j.done(k); err != nil {
				return err
			}
		}
	}
	res.Elapsed = s.rt.Now().Sub(begun)
	res.Lat = summary(h, s.cfg.Size, j.total)
	return nil
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(int64(min(max(d, 1), maxLatency))) // within the range by construction
}

func summary(h *hdrhistogram.Histogram, size, iters int) *Latency {
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	return &Latency{
		Bytes: size, Iters: iters, Min: us(h.Min()), Max: us(h.Max()), Typical: us(h.ValueAtQuantile(50)),
		Average: h.Mean() / 1e3, Stdev: h.StdDev() / 1e3, P99: us(h.ValueAtQuantile(99)), P999: us(h.ValueAtQuantile(99.9)),
	}
}

// planLat is for WRITE and READ.
func planLat(c *Config) plan {
	op, code := "write", verbs.OpWrite
	if c.Test == ReadLat {
		op, code = "read", verbs.OpRead
	}
	run := func(s *session, res *Result) error {
		if code == verbs.OpRead {
			if err := s.seedMemory(c, 2); err != nil {
				return err
			}
		}
		slot := func(k int) int { return k % 2 }
		j := s.transfer(op, code, c.Iters, 0, slot, slot)
		if c.Verify {
			verifyLat(s, c, &j, res)
		}
		return s.latency(j, res)
	}
	// Two slots for the messages, one to read back.
	return plan{local: 3 * c.Size, slot: c.Size, bytes: 2 * c.Size, run: run}
}

// verifyLat makes each message be compared, outside of the measured time.
func verifyLat(s *session, c *Config, j *stream, res *Result) {
	fill := j.wr
	if c.Test == ReadLat {
		j.wr = func(k int, wr *verbs.SendWR) {
			clear(s.slot(k % 2))
			fill(k, wr)
		}
		j.done = func(k int) error {
			res.Verified += uint64(c.Size)
			return s.check("read", s.slot(k%2), uint64(k%2))
		}
		return
	}
	j.wr = func(k int, wr *verbs.SendWR) {
		s.pat.Fill(s.slot(k%2), uint64(k))
		fill(k, wr)
	}
	j.done = func(k int) error {
		back := s.transfer("read back of write", verbs.OpRead, 1, k, func(int) int { return 2 }, func(int) int { return k % 2 })
		back.every = 1
		if err := s.run(back); err != nil {
			return err
		}
		res.Verified += uint64(c.Size)
		return s.check(back.op, s.slot(2), uint64(k))
	}
}

func planSendLat(c *Config) plan {
	if _, ok := c.lanes(); ok {
		return planLanes(c)
	}
	w := request{mode: modeEcho, size: c.Size, recvs: echoReceives, seed: c.Seed, verify: c.Verify}
	run := func(s *session, res *Result) error { return s.pingPong(c, res) }
	return plan{local: 2*c.Size + reportSize, slot: c.Size, request: w, run: run}
}

// echoReceives is how many receives a server posts for a client with one message outstanding.
const echoReceives = 4

// pingPong sends a message, waits for its echo, and takes half of that time.
func (s *session) pingPong(c *Config, res *Result) error {
	if err := s.awaitReport(reportReady, 1); err != nil {
		return err
	}
	h := hdrhistogram.New(1, int64(maxLatency), latencyDigits)
	j := s.sendStream(c, 1, 1)
	pong := []verbs.SGE{s.sges[1]}
	begun := s.rt.Now()
	for k := range c.Iters {
		if err := s.qp.PostRecv(verbs.RecvWR{ID: uint64(k), SGL: pong}); err != nil {
			return err
		}
		if c.Verify {
			s.pat.Fill(s.slot(0), uint64(k))
		}
		j.index = k
		j.wr = func(_ int, wr *verbs.SendWR) { wr.Op, wr.SGL = verbs.OpSend, s.sges[:1] }
		start := s.rt.Now()
		if err := s.run(j); err != nil {
			return err
		}
		if err := s.awaitEcho(c, k, res); err != nil {
			return err
		}
		record(h, s.rt.Now().Sub(start)/2)
	}
	res.Elapsed = s.rt.Now().Sub(begun)
	res.Lat = summary(h, c.Size, c.Iters)
	return s.checkReport(c.Iters, res)
}

// awaitEcho waits for the echo of message k in local slot 1.
func (s *session) awaitEcho(c *Config, k int, res *Result) error {
	for {
		n, err := s.rcq.Poll(s.wcs[:1])
		if err != nil {
			return err
		}
		if n == 0 {
			if err := s.wait(s.rcq, "echo", k); err != nil {
				return err
			}
			continue
		}
		if wc := &s.wcs[0]; wc.Status != verbs.Success {
			return &CompletionError{Op: "receive of echo", Msg: uint64(k), Status: wc.Status, Vendor: wc.VendorErr}
		}
		if !c.Verify {
			return nil
		}
		res.Verified += uint64(c.Size)
		return s.check("echo", s.slot(1), uint64(k))
	}
}
