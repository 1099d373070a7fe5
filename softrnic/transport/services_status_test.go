package transport

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Every status that the unreliable services can produce occurs, by type and name (IBTA 11.6.2).
func TestUnreliableStatuses(t *testing.T) {
	badSGE := []verbs.SGE{{Addr: 1, Length: 1, LKey: 1}}
	toError := func(t *testing.T, s *side) {
		if err := s.qp.ToError(0, &s.out); err != nil {
			t.Fatal(err)
		}
	}
	small := func(a, b *side) verbs.SendWR {
		wr := datagramTo(b, a, 8)
		wr.RemoteQKey = 0 // the Q_Key that connect leaves
		return wr
	}
	for name, c := range map[string]struct {
		status verbs.Status
		recv   bool
		only   []verbs.QPType
		make   func(t *testing.T, a, b *side)
	}{
		"Success": {verbs.Success, false, nil, func(t *testing.T, a, b *side) { post(t, a, small(a, b)) }},
		"Success of a receive": {verbs.Success, true, nil, func(t *testing.T, a, b *side) {
			recvOf(t, b, 100)
			post(t, a, small(a, b))
			a.deliver(0, b)
		}},
		"LocProtErr": {verbs.LocProtErr, false, nil, func(t *testing.T, a, b *side) {
			wr := small(a, b)
			wr.SGL = badSGE
			post(t, a, wr)
		}},
		"LocProtErr of a receive": {verbs.LocProtErr, true, nil, func(t *testing.T, a, b *side) {
			if err := b.qp.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{{Addr: 1, Length: 100, LKey: 1}}}); err != nil {
				t.Fatal(err)
			}
			post(t, a, small(a, b))
			a.deliver(0, b)
		}},
		"WRFlushErr": {verbs.WRFlushErr, false, nil, func(t *testing.T, a, b *side) {
			toError(t, a)
			post(t, a, small(a, b))
		}},
		"WRFlushErr of a receive": {verbs.WRFlushErr, true, nil, func(t *testing.T, a, b *side) {
			recvOf(t, b, 8)
			toError(t, b)
		}},
		"MWBindErr": {verbs.MWBindErr, false, []verbs.QPType{verbs.UC}, func(t *testing.T, a, b *side) {
			post(t, a, verbs.SendWR{Op: verbs.OpBindMW, SGL: badSGE, RKey: 5, BindAccess: verbs.RemoteRead})
		}},
	} {
		types := c.only
		if types == nil {
			types = []verbs.QPType{verbs.UC, verbs.UD}
		}
		for _, of := range types {
			t.Run(of.String()+" "+name, func(t *testing.T) {
				a, b := newSide(t, "a", 1, 1<<12, Config{QPN: 0x11, Type: of}), newSide(t, "b", 2, 1<<12, Config{QPN: 0x12, Type: of})
				connect(t, a, b, defaultLink)
				c.make(t, a, b)
				a.file()
				b.file()
				q := a.scq
				if c.recv {
					q = b.rcq
				}
				if wc := onlyWC(t, q); wc.Status != c.status {
					t.Errorf("%v, want %v", wc.Status, c.status)
				}
			})
		}
	}
}
