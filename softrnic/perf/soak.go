package perf

import (
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// planSoak returns the plan of the test soak. It moves cfg.Iters messages by each of WRITE, READ
// and SEND, and then does cfg.Atomics CAS and FETCH_ADD, all on one queue pair. It verifies every
// byte and every original value.
func planSoak(c *Config) plan {
	c.Verify = true
	// One half of the window is for WRITEs, the other half for the READs that read their messages
	// back.
	half := max(1, c.Depth/2)
	data := half * c.Size
	local := max(2*half, c.Depth) * c.Size
	w := request{mode: modeSink, size: c.Size, recvs: c.receives(), seed: c.Seed, verify: true, rnrTimer: c.timer()}
	run := func(s *session, res *Result) error {
		res.Soak = &SoakResult{}
		begun := s.rt.Now()
		for _, phase := range []func(*session, *Config, int, *Result) error{soakWriteRead, soakSend, soakAtomics} {
			if err := phase(s, c, half, res); err != nil {
				return err
			}
		}
		res.Elapsed = s.rt.Now().Sub(begun)
		return nil
	}
	return plan{local: local + reportSize, slot: c.Size, bytes: data + atomicBytes + atomicSize, request: w, run: run}
}

// soakWriteRead posts WRITE k and then READ k of the same slot, so that the READ must return the
// bytes of the WRITE. A WRITE without a fence does not wait for an earlier READ. So the number of
// work requests in flight is limited to one less than twice the number of slots: then a slot is
// written again only when its READ is complete.
func soakWriteRead(s *session, c *Config, half int, res *Result) error {
	return s.run(stream{
		op: "write and read", total: 2 * c.Iters, depth: 2*half - 1, every: 1,
		wr: func(k int, wr *verbs.SendWR) {
			msg := k / 2
			i := msg % half
			aim(wr, s.far.memory, i*c.Size)
			if k%2 == 0 {
				s.pat.Fill(s.slot(i), uint64(msg))
				wr.Op, wr.SGL = verbs.OpWrite, s.sges[i:i+1]
				return
			}
			wr.Op, wr.SGL = verbs.OpRead, s.sges[half+i:half+i+1]
		},
		done: func(k int) error {
			if k%2 == 0 {
				res.Soak.Writes++
				return nil
			}
			res.Soak.Reads++
			res.Verified += 2 * uint64(c.Size) // the bytes written and the bytes read
			return s.check("read back of write", s.slot(half+k/2%half), uint64(k/2))
		},
	})
}

func soakSend(s *session, c *Config, _ int, res *Result) error {
	if err := s.awaitReport(reportReady, 1); err != nil {
		return err
	}
	j := s.sendStream(c, c.Iters, min(c.Depth, len(s.sges)))
	j.done = func(int) error {
		res.Soak.Sends++
		return nil
	}
	if err := s.run(j); err != nil {
		return err
	}
	return s.checkReport(c.Iters, res)
}

func soakAtomics(s *session, c *Config, half int, res *Result) error {
	if c.Atomics < 0 {
		return nil
	}
	s.slots(atomicSize)
	a := &atomics{
		s: s, total: c.Atomics, at: (half*c.Size + atomicSize - 1) &^ (atomicSize - 1),
		cas: func(k int) bool { return s.pat.base(uint64(k)^c.Seed<<32)&1 == 0 },
	}
	j := a.stream(true)
	j.every = 1
	err := s.run(j)
	r := res.Soak
	r.FetchAdds, r.CmpSwaps, r.Expected, r.Swapped = a.adds, a.swaps, a.sum, uint64(a.swaps)
	if err != nil {
		return err
	}
	if err := a.settle(res); err != nil {
		return err
	}
	r.Sum = a.sum
	return nil
}
