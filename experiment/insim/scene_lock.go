package insim

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// A host has its lock word, and behind it what the lock protects, apart from what other flows WRITE.
	lockWord, lockedBytes = 1 << 20, 1<<20 + 1024
	lockTaken             = 1
)

// locks takes the lock, WRITEs what it protects and gives it back, until the end. It notes how long it waited for each
// lock that it got in the measured time.
func (s *sceneSender) locks() error {
	r := s.run
	f := &r.scene.Flows[s.id]
	base := s.wr.RemoteAddr
	for s.rt.Now() < r.until {
		begin := s.rt.Now()
		for held := false; !held; {
			old, err := s.swap(base+lockWord, 0, lockTaken)
			if err != nil || s.rt.Now() >= r.until && old != 0 {
				return err
			}
			held = old == 0
		}
		if now := s.rt.Now(); now >= r.half && now < r.until {
			r.times = append(r.times, now.Sub(begin))
		}
		s.wr.Op, s.wr.RemoteAddr, s.wr.SGL = verbs.OpWrite, base+lockedBytes, []verbs.SGE{s.mr.SGE(0, r.each(s.id))}
		if err := s.one(); err != nil {
			return err
		}
		switch old, err := s.swap(base+lockWord, lockTaken, 0); {
		case err != nil:
			return err
		case old != lockTaken:
			return fmt.Errorf("flow %d gives back a lock that has %d", s.id, old)
		}
		s.rt.Sleep(f.Pause)
	}
	return nil
}

// swap posts a CMP_SWAP, and returns the value that it has found.
func (s *sceneSender) swap(addr, compare, swap uint64) (uint64, error) {
	s.wr.Op, s.wr.RemoteAddr, s.wr.CompareAdd, s.wr.Swap = verbs.OpCmpSwap, addr, compare, swap
	s.wr.SGL = []verbs.SGE{s.mr.SGE(0, 8)}
	if err := s.one(); err != nil {
		return 0, err
	}
	return s.mr.Load64(0)
}

// one posts a work request and waits for its end.
func (s *sceneSender) one() error {
	if err := s.qp.PostSend(s.wr); err != nil {
		return err
	}
	const patience = time.Second
	for until := s.rt.Now().Add(patience); s.rt.Now() < until; {
		list, err := s.poll(until)
		if err != nil || len(list) > 0 {
			return err
		}
	}
	return fmt.Errorf("flow %d: a work request does not end", s.id)
}
