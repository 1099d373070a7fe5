package perf

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// hotBytes is the amount of memory that a test without verification uses again and again. It fits
	// into the cache of a processor.
	hotBytes = 256 << 10
	// chunkBytes is how many bytes a test with verification writes before it reads them back.
	chunkBytes = 4 << 20
	// peakParts is the number of parts into which a run is divided to find its highest rate.
	peakParts = 20
)

// hotSlots returns the number of slots, of one message each, in the local memory of a test without
// verification.
func (c *Config) hotSlots() int { return max(1, min(hotBytes/c.Size, c.Depth)) }

// chunk returns the number of messages that a test with verification writes before it reads them
// back.
func (c *Config) chunk() int { return min(c.Iters, max(c.Depth, chunkBytes/c.Size)) }

// meter measures a run that consists of several timed parts.
type meter struct {
	s     *session
	total int // messages of the whole run
	// begun is the start of the current timed part.
	begun   clock.Time
	elapsed time.Duration // duration of the earlier timed parts together
	count   int           // messages completed in earlier timed parts
	part    int           // messages completed in the current part
	// mark is when the rate was last measured. marked is the number of messages of the current part
	// that were complete then. peak is the highest rate so far between two measurements, in
	// messages per second.
	mark   clock.Time
	marked int
	peak   float64
}

func (m *meter) start() {
	m.begun = m.s.rt.Now()
	m.mark, m.marked = m.begun, 0
}

func (m *meter) stop() {
	m.elapsed += m.s.rt.Now().Sub(m.begun)
	m.count += m.part
	m.part = 0
}

// timed runs a stream, a series of work requests, as a timed part, and updates the result.
func (m *meter) timed(j stream, res *Result) error {
	j.seen = m.seen
	m.start()
	if span := m.s.cfg.Span; span > 0 {
		j.until = m.begun.Add(span)
	}
	err := m.s.run(j)
	m.stop()
	m.result(&m.s.cfg, res)
	return err
}

// seen is called after each batch of completions of a timed part; complete is the number of
// complete messages of this part. When enough messages have completed since the last measurement,
// seen measures their rate. The highest rate becomes m.peak.
func (m *meter) seen(now clock.Time, complete int) {
	m.part = complete
	n := complete - m.marked
	if span := m.s.cfg.Span; span > 0 && now.Sub(m.mark) < span/peakParts || span == 0 && n < max(1, m.total/peakParts) || now <= m.mark {
		return
	}
	m.peak = max(m.peak, float64(n)/now.Sub(m.mark).Seconds())
	m.mark, m.marked = now, complete
}

// result computes the figures that perftest prints. If the run has failed, they are those of the
// messages that were complete before.
func (m *meter) result(c *Config, res *Result) {
	rate := float64(m.count) / max(m.elapsed, 1).Seconds()
	mib := float64(c.Size) / (1 << 20)
	res.Elapsed = m.elapsed
	res.BW = &Bandwidth{
		Bytes: c.Size, Iters: m.count, Peak: max(m.peak, rate) * mib, Average: rate * mib, MsgRate: rate / 1e6,
		TxDepth: c.Depth, Signaled: c.SignalEvery,
	}
}

// transfer returns a stream of WRITEs or READs; op, total and index are fields of the stream. The
// functions local and remote return the slots of message k in local memory and in the peer's
// memory.
func (s *session) transfer(op string, code verbs.WROpcode, total, index int, local, remote func(k int) int) stream {
	return stream{
		op: op, total: total, depth: s.cfg.Depth, every: s.cfg.SignalEvery, index: index,
		wr: func(k int, wr *verbs.SendWR) {
			i := local(k)
			wr.Op, wr.SGL = code, s.sges[i:i+1]
			aim(wr, s.far.memory, remote(k)*s.cfg.Size)
		},
	}
}

func (c *Config) planWriteBW() plan {
	slots := c.hotSlots()
	local := slots
	run := func(s *session, res *Result) error {
		m := &meter{s: s, total: c.Iters}
		slot := func(k int) int { return k % slots }
		return m.timed(s.transfer("write", verbs.OpWrite, c.Iters, 0, slot, slot), res)
	}
	if c.Verify {
		slots = c.chunk()
		local = slots + c.Depth
		run = func(s *session, res *Result) error { return s.writeVerified(c, slots, res) }
	}
	return plan{local: local * c.Size, slot: c.Size, bytes: slots * c.Size, run: run}
}

// writeVerified writes all messages, in chunks of `slots` messages. It writes each message of a
// chunk to its own slot of the peer, and then READs the chunk back and compares it.
func (s *session) writeVerified(c *Config, slots int, res *Result) error {
	m := &meter{s: s, total: c.Iters}
	same := func(k int) int { return k }
	for at := 0; at < c.Iters; at += slots {
		n := min(slots, c.Iters-at)
		for k := range n {
			s.pat.Fill(s.slot(k), uint64(at+k))
		}
		if err := m.timed(s.transfer("write", verbs.OpWrite, n, at, same, same), res); err != nil {
			return err
		}
		if err := s.readBack(c, n, at, slots, res); err != nil {
			return err
		}
	}
	return nil
}

// readBack READs the first n slots of the peer and compares them with the messages whose numbers
// begin at `at`. It uses the local slots from `base` on.
func (s *session) readBack(c *Config, n, at, base int, res *Result) error {
	local := func(k int) int { return base + k%c.Depth }
	j := s.transfer("read back of write", verbs.OpRead, n, at, local, func(k int) int { return k })
	j.every = 1
	j.done = func(k int) error {
		res.Verified += uint64(c.Size)
		return s.check(j.op, s.slot(local(k)), uint64(at+k))
	}
	return s.run(j)
}

func (c *Config) planReadBW() plan {
	slots, remote := c.hotSlots(), c.hotSlots()
	if c.Verify {
		// The peer has one slot more than this side, so that a local slot never gets the same content
		// twice in a row.
		slots, remote = c.Depth, c.Depth+1
	}
	run := func(s *session, res *Result) error {
		if err := s.seedMemory(c, remote); err != nil {
			return err
		}
		m := &meter{s: s, total: c.Iters}
		j := s.transfer("read", verbs.OpRead, c.Iters, 0,
			func(k int) int { return k % slots }, func(k int) int { return k % remote })
		if c.Verify {
			j.done = func(k int) error {
				res.Verified += uint64(c.Size)
				return s.check("read", s.slot(k%slots), uint64(k%remote))
			}
		}
		return m.timed(j, res)
	}
	return plan{local: slots * c.Size, slot: c.Size, bytes: remote * c.Size, run: run}
}

// seedMemory WRITEs message i to slot i of the peer, for the first n slots, through local slot 0.
func (s *session) seedMemory(c *Config, n int) error {
	j := s.transfer("seeding write", verbs.OpWrite, n, 0, func(int) int { return 0 }, func(k int) int { return k })
	j.depth, j.every = 1, 1
	fill := j.wr
	j.wr = func(k int, wr *verbs.SendWR) {
		s.pat.Fill(s.slot(0), uint64(k))
		fill(k, wr)
	}
	return s.run(j)
}
