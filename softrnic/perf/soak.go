package perf

import (
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// planSoak returns the plan of the test soak. It moves cfg.Iters messages by each of WRITE, READ
// and SEND, and then does cfg.Atomics CAS and FETCH_ADD, all on one queue pair. It verifies every
// byte and every original value.
func (c *Config) planSoak() plan {
	c.Verify = true
	// One half of the window is for WRITEs, the other half for the READs that read their messages
	// back.
	half := max(1, c.Depth/2)
	data := half * c.Size
	local := max(2*half, c.Depth) * c.Size
	w := request{mode: modeSink, size: c.Size, recvs: c.receives(), seed: c.Seed, verify: true, rnrTimer: c.timer()}
	run := func(s *session, res *Result) error {
		res.Soak = &SoakResult{}
		begun, t := s.rt.Now(), &soak{s: s, c: c, half: half, res: res}
		for _, phase := range []func() error{t.writeRead, t.send, t.atomics} {
			if err := phase(); err != nil {
				return err
			}
		}
		res.Elapsed = s.rt.Now().Sub(begun)
		return nil
	}
	return plan{local: local + reportSize, slot: c.Size, bytes: data + atomicBytes + atomicSize, request: w, run: run}
}

// soak is a run of the test soak. half is how many messages fit into one half of the window.
type soak struct {
	s    *session
	c    *Config
	half int
	res  *Result
}

// writeRead posts WRITE k and then READ k of the same slot, so that the READ must return the
// bytes of the WRITE. A WRITE without a fence does not wait for an earlier READ. So the number of
// work requests in flight is limited to one less than twice the number of slots: then a slot is
// written again only when its READ is complete.
func (t *soak) writeRead() error {
	return t.s.run(stream{
		op: "write and read", total: 2 * t.c.Iters, depth: 2*t.half - 1, every: 1,
		wr: func(k int, wr *verbs.SendWR) {
			msg := k / 2
			i := msg % t.half
			aim(wr, t.s.far.memory, i*t.c.Size)
			if k%2 == 0 {
				t.s.pat.Fill(t.s.slot(i), uint64(msg))
				wr.Op, wr.SGL = verbs.OpWrite, t.s.sges[i:i+1]
				return
			}
			wr.Op, wr.SGL = verbs.OpRead, t.s.sges[t.half+i:t.half+i+1]
		},
		done: func(k int) error {
			if k%2 == 0 {
				t.res.Soak.Writes++
				return nil
			}
			t.res.Soak.Reads++
			t.res.Verified += 2 * uint64(t.c.Size) // the bytes written and the bytes read
			return t.s.check("read back of write", t.s.slot(t.half+k/2%t.half), uint64(k/2))
		},
	})
}

func (t *soak) send() error {
	if err := t.s.awaitReport(reportReady, 1); err != nil {
		return err
	}
	j := t.s.sendStream(t.c, t.c.Iters, min(t.c.Depth, len(t.s.sges)))
	j.done = func(int) error {
		t.res.Soak.Sends++
		return nil
	}
	if err := t.s.run(j); err != nil {
		return err
	}
	return t.s.checkReport(t.c.Iters, t.res)
}

func (t *soak) atomics() error {
	if t.c.Atomics < 0 {
		return nil
	}
	t.s.slots(atomicSize)
	a := &atomics{
		s: t.s, total: t.c.Atomics, at: (t.half*t.c.Size + atomicSize - 1) &^ (atomicSize - 1),
		cas: func(k int) bool { return t.s.pat.base(uint64(k)^t.c.Seed<<32)&1 == 0 },
	}
	j := a.stream(true)
	j.every = 1
	err := t.s.run(j)
	r := t.res.Soak
	r.FetchAdds, r.CmpSwaps, r.Expected, r.Swapped = a.adds, a.swaps, a.sum, uint64(a.swaps)
	if err != nil {
		return err
	}
	if err := a.settle(t.res); err != nil {
		return err
	}
	r.Sum = a.sum
	return nil
}
