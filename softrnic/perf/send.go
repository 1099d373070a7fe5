package perf

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// reportPoll is the interval at which a waiting client READs the server's report.
const reportPoll = time.Millisecond

func (c *Config) planSendBW() plan {
	if _, ok := c.lanes(); ok {
		return c.planLanes()
	}
	slots := c.hotSlots()
	if c.Verify {
		slots = c.Depth
	}
	w := request{mode: modeSink, size: c.Size, recvs: c.receives(), seed: c.Seed, verify: c.Verify, rnrTimer: c.timer()}
	run := func(s *session, res *Result) error {
		if err := s.awaitReport(reportReady, 1); err != nil {
			return err
		}
		m := &meter{s: s, total: c.Iters}
		if err := m.timed(s.sendStream(c, c.Iters, slots), res); err != nil {
			return err
		}
		return s.checkReport(m.count, res)
	}
	// The server's report is READ into the memory behind the slots.
	return plan{local: slots*c.Size + reportSize, slot: c.Size, request: w, run: run}
}

// receives returns the number of receives that the server posts, within the server's limits.
func (c *Config) receives() int {
	return max(1, min(c.RecvSlack, maxBuffer/(c.Size+verbs.GRHLen)/max(1, c.QPs)))
}

// sendStream returns a stream that sends messages 0 to n−1 from the first `slots` slots in turn.
// The messages are filled with the pattern if they are verified.
func (s *session) sendStream(c *Config, n, slots int) stream {
	return stream{
		op: "send", total: n, depth: min(c.Depth, slots), every: min(c.SignalEvery, slots),
		wr: func(k int, wr *verbs.SendWR) {
			i := k % slots
			if c.Verify {
				s.pat.Fill(s.slot(i), uint64(k))
			}
			wr.Op, wr.SGL = verbs.OpSend, s.sges[i:i+1]
		},
	}
}

func (s *session) readReport() ([reportSize]byte, error) {
	var rep [reportSize]byte
	off := len(s.buf) - reportSize
	err := s.once("read of the report", verbs.OpRead, s.mr.SGE(off, reportSize), s.far.report, 0)
	copy(rep[:], s.buf[off:])
	return rep, err
}

func word(rep *[reportSize]byte, off int) uint64 { return binary.NativeEndian.Uint64(rep[off:]) }

// awaitReport READs the report until the word at `off` is at least want. It fails after
// cfg.Patience.
func (s *session) awaitReport(off int, want uint64) error {
	end := s.rt.Now().Add(s.cfg.Patience)
	for {
		rep, err := s.readReport()
		if err != nil {
			return err
		}
		got := word(&rep, off)
		if got >= want {
			return nil
		}
		if s.rt.Now() >= end {
			return fmt.Errorf("the server received %d of %d messages and then none for %v", got, want, s.cfg.Patience)
		}
		s.rt.Sleep(reportPoll)
	}
}

// checkReport waits until the server has received n messages and checks its report.
func (s *session) checkReport(n int, res *Result) error {
	if err := s.awaitReport(reportCount, uint64(n)); err != nil {
		return err
	}
	rep, err := s.readReport()
	if err != nil {
		return err
	}
	if got := word(&rep, reportCount); got != uint64(n) {
		return fmt.Errorf("verification failed: the server received %d messages, %d were sent: one was delivered twice", got, n)
	}
	return s.judge(&rep, fmt.Sprintf("of %d ", n), res)
}

// judge returns an error if the server has reported messages with wrong bytes. Otherwise it counts
// the verified bytes in res. The text `of` is a part of the error: "of N " if the server has
// received all N messages, or "".
func (s *session) judge(rep *[reportSize]byte, of string, res *Result) error {
	if bad := word(rep, reportBad); bad != 0 {
		return fmt.Errorf("verification failed: the server found %d %smessages wrong, the first is send %d at byte %d",
			bad, of, word(rep, reportBadMsg), word(rep, reportBadByte))
	}
	if s.cfg.Verify {
		res.Verified += word(rep, reportBytes)
	}
	return nil
}
