package perf

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// maxLatency is the longest latency that Latencies records; longer ones count as maxLatency.
// latencyDigits is how many significant decimal digits of a latency are recorded.
const (
	maxLatency    = 10 * time.Minute
	latencyDigits = 3
)

// latency runs stream j with one message in flight at a time, and records the latency of each.
func (s *session) latency(j stream, res *Result) error {
	var h Latencies
	one := j
	one.total, one.depth, one.every = 1, 1, 1
	begun := s.rt.Now()
	for k := range j.total {
		if s.over(begun) {
			break
		}
		one.index = k
		one.wr = func(_ int, wr *verbs.SendWR) { j.wr(k, wr) }
		one.done = nil
		start := s.rt.Now()
		if err := s.run(one); err != nil {
			return err
		}
		h.Record(s.rt.Now().Sub(start))
		if j.done != nil {
			if err := j.done(k); err != nil {
				return err
			}
		}
	}
	res.Elapsed = s.rt.Now().Sub(begun)
	res.Lat = h.Summary(s.cfg.Size, h.Count())
	return nil
}

// over reports whether a latency test that began at a time has run for Config.Span.
func (s *session) over(begun clock.Time) bool {
	return s.cfg.Span > 0 && s.rt.Now().Sub(begun) >= s.cfg.Span
}

// Latencies collects the latencies of a test. The zero value is empty.
type Latencies struct{ h *hdrhistogram.Histogram }

func (l *Latencies) Record(d time.Duration) {
	if l.h == nil {
		l.h = hdrhistogram.New(1, int64(maxLatency), latencyDigits)
	}
	_ = l.h.RecordValue(int64(min(max(d, 1), maxLatency))) // cannot fail: the value is in the range
}

func (l *Latencies) Count() int {
	if l.h == nil {
		return 0
	}
	return int(l.h.TotalCount())
}

// Summary returns the figures in microseconds, for messages of size bytes.
func (l *Latencies) Summary(size, iters int) *Latency {
	out := &Latency{Bytes: size, Iters: iters}
	if h := l.h; h != nil {
		us := func(ns int64) float64 { return float64(ns) / 1e3 }
		out.Min, out.Max, out.Typical = us(h.Min()), us(h.Max()), us(h.ValueAtQuantile(50))
		out.Average, out.Stdev, out.P99, out.P999 = h.Mean()/1e3, h.StdDev()/1e3, us(h.ValueAtQuantile(99)), us(h.ValueAtQuantile(99.9))
	}
	return out
}

// planLat returns the plan of the latency tests of WRITE and READ.
func (c *Config) planLat() plan {
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
			s.verifyLat(c, &j, res)
		}
		return s.latency(j, res)
	}
	// Two slots are for the messages, the third is for READing back.
	return plan{local: 3 * c.Size, slot: c.Size, bytes: 2 * c.Size, run: run}
}

// verifyLat makes the stream compare each message, outside of the measured time.
func (s *session) verifyLat(c *Config, j *stream, res *Result) {
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

func (c *Config) planSendLat() plan {
	if _, ok := c.lanes(); ok {
		return c.planLanes()
	}
	w := request{mode: modeEcho, size: c.Size, recvs: echoReceives, seed: c.Seed, verify: c.Verify, rnrTimer: c.timer()}
	run := func(s *session, res *Result) error { return s.pingPong(c, res) }
	return plan{local: 2*c.Size + reportSize, slot: c.Size, request: w, run: run}
}

// echoReceives is the number of receives that a server posts for a client with one message in
// flight.
const echoReceives = 4

// pingPong sends messages over the connection and waits for the echo of each. The latency is half
// of the time from the post to the echo.
func (s *session) pingPong(c *Config, res *Result) error {
	if err := s.awaitReport(reportReady, 1); err != nil {
		return err
	}
	j := s.sendStream(c, 1, 1)
	err := s.echoes(c, s.qp, s.sges[1], res, func(k int) error {
		j.index = k
		j.wr = func(_ int, wr *verbs.SendWR) { wr.Op, wr.SGL = verbs.OpSend, s.sges[:1] }
		if err := s.run(j); err != nil {
			return err
		}
		return s.awaitEcho(c, k, s.slot(1), false, res)
	})
	if err != nil {
		return err
	}
	return s.checkReport(res.Lat.Iters, res)
}

// echoes measures messages that the server echoes, one at a time. For each message it posts a
// receive to qp, with the memory pong for the echo. Then it calls turn, which sends message k and
// waits for its echo. The latency is half of the time that turn takes.
func (s *session) echoes(c *Config, qp verbs.QP, pong verbs.SGE, res *Result, turn func(k int) error) error {
	var h Latencies
	list := []verbs.SGE{pong}
	begun := s.rt.Now()
	for k := range c.Iters {
		if s.over(begun) {
			break
		}
		if err := qp.PostRecv(verbs.RecvWR{ID: uint64(k), SGL: list}); err != nil {
			return err
		}
		if c.Verify {
			s.pat.Fill(s.slot(0), uint64(k))
		}
		start := s.rt.Now()
		if err := turn(k); err != nil {
			return err
		}
		h.Record(s.rt.Now().Sub(start) / 2)
	}
	res.Elapsed = s.rt.Now().Sub(begun)
	res.Lat = h.Summary(c.Size, h.Count())
	return nil
}

// awaitEcho waits until the echo of message k is in buf. If numbered is set, the echo's immediate
// data must be k. Over an unreliable service an echo may be lost; then awaitEcho fails.
func (s *session) awaitEcho(c *Config, k int, buf []byte, numbered bool, res *Result) error {
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
		wc := &s.wcs[0]
		switch {
		case wc.Status != verbs.Success:
			return &CompletionError{Op: "receive of echo", Msg: uint64(k), Status: wc.Status, Vendor: wc.VendorErr}
		case numbered && wc.Imm != uint32(k):
			return fmt.Errorf("echo of message %d arrived instead of that of message %d", wc.Imm, k)
		case !c.Verify:
			return nil
		}
		res.Verified += uint64(c.Size)
		return s.check("echo", buf, uint64(k))
	}
}
