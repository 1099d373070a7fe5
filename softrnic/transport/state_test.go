package transport

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The state diagram is a golden file, so that a review shows a changed edge.
func TestStateDiagram(t *testing.T) {
	for of, path := range map[verbs.QPType]string{verbs.RC: "testdata/states.dot", verbs.UC: "testdata/states_uc.dot", verbs.UD: "testdata/states_ud.dot"} {
		golden.Check(t, path, graphviz(of))
	}
}

// Every transition that the table lacks for a state is refused, and changes nothing (IBTA
// 10.3.1/rc, 10.3.1/sqe).
func TestIllegalTransitions(t *testing.T) {
	calls := map[event]func(*QP, *Actions) error{
		evToInit:    func(q *QP, _ *Actions) error { return q.ToInit(verbs.ToInit{}) },
		evToRTR:     func(q *QP, _ *Actions) error { return q.ToRTR(0, verbs.ToRTR{PathMTU: verbs.MTU256}) },
		evToRTS:     func(q *QP, _ *Actions) error { return q.ToRTS(0, verbs.ToRTS{}) },
		evToSQD:     func(q *QP, out *Actions) error { return q.ToSQD(0, out) },
		evResumeRTS: func(q *QP, out *Actions) error { return q.ResumeRTS(0, out) },
		evToError:   func(q *QP, out *Actions) error { return q.ToError(0, out) },
		evToReset:   func(q *QP, _ *Actions) error { return q.ToReset() },
	}
	for _, of := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		for from := verbs.StateReset; from <= verbs.StateError; from++ {
			if from == verbs.StateSQE && of == verbs.RC {
				continue
			}
			for on, call := range calls {
				s := newSide(t, "a", 1, 64, Config{QPN: 0x11, Type: of})
				bringTo(t, s, from)
				want, wantErr := next(s.qp.core.svc.states, from, on)
				err := call(s.qp, &s.out)
				var te *transitionError
				if (err != nil) != (wantErr != nil) || (err != nil && (!errors.As(err, &te) || !errors.Is(err, verbs.ErrState))) {
					t.Errorf("%v: %v in %v: error %v, want %v", of, on, from, err, wantErr)
				}
				if s.qp.State() != want {
					t.Errorf("%v: %v in %v: now %v, want %v", of, on, from, s.qp.State(), want)
				}
			}
		}
	}
}

func bringTo(t testing.TB, s *side, to verbs.QPState) {
	t.Helper()
	q := s.qp
	steps := map[verbs.QPState][]func() error{
		verbs.StateInit:  {func() error { return q.ToInit(verbs.ToInit{}) }},
		verbs.StateRTR:   {func() error { return q.ToRTR(0, verbs.ToRTR{PathMTU: verbs.MTU256}) }},
		verbs.StateRTS:   {func() error { return q.ToRTS(0, verbs.ToRTS{}) }},
		verbs.StateSQD:   {func() error { return q.ToSQD(0, &s.out) }},
		verbs.StateSQE:   {func() error { return failASend(s) }},
		verbs.StateError: {func() error { return q.ToError(0, &s.out) }},
	}
	for st := verbs.StateInit; st <= to; st++ {
		if (st == verbs.StateSQD || st == verbs.StateSQE) && to != st {
			continue
		}
		for _, f := range steps[st] {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// failASend posts a send whose memory has no region.
func failASend(s *side) error {
	wr := verbs.SendWR{SGL: []verbs.SGE{{Addr: 1, Length: 1, LKey: 1}}, AH: testAH(1)}
	return s.qp.PostSend(0, &wr, &s.out)
}

// Attributes out of range are refused with an error that names the valid values.
func TestBadAttributes(t *testing.T) {
	good := verbs.ToRTR{PathMTU: verbs.MTU1024}
	for name, f := range map[string]func(q *QP) error{
		"local access":      func(q *QP) error { return q.ToInit(verbs.ToInit{Access: verbs.LocalWrite}) },
		"mtu":               func(q *QP) error { return q.ToRTR(0, verbs.ToRTR{PathMTU: 1000}) },
		"qpn":               func(q *QP) error { g := good; g.DestQPN = 1 << 24; return q.ToRTR(0, g) },
		"recv psn":          func(q *QP) error { g := good; g.RecvPSN = 1 << 24; return q.ToRTR(0, g) },
		"rnr timer":         func(q *QP) error { g := good; g.MinRNRTimer = 32; return q.ToRTR(0, g) },
		"dest rd":           func(q *QP) error { g := good; g.MaxDestRdAtomic = 256; return q.ToRTR(0, g) },
		"dest rd negative":  func(q *QP) error { g := good; g.MaxDestRdAtomic = -2; return q.ToRTR(0, g) },
		"rts send psn":      func(q *QP) error { return q.ToRTS(0, verbs.ToRTS{SendPSN: 1 << 24}) },
		"rts timeout":       func(q *QP) error { return q.ToRTS(0, verbs.ToRTS{Timeout: 32}) },
		"rts retry":         func(q *QP) error { return q.ToRTS(0, verbs.ToRTS{RetryCount: 8}) },
		"rts rnr retry":     func(q *QP) error { return q.ToRTS(0, verbs.ToRTS{RNRRetry: 8}) },
		"rts max rd atomic": func(q *QP) error { return q.ToRTS(0, verbs.ToRTS{MaxRdAtomic: 300}) },
	} {
		s := newSide(t, "a", 1, 64, Config{QPN: 0x11})
		at := verbs.StateInit
		if name[:3] == "rts" {
			at = verbs.StateRTR
		}
		bringTo(t, s, at)
		if err := f(s.qp); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
		if s.qp.State() != at {
			t.Errorf("%s: the state changed to %v", name, s.qp.State())
		}
	}
}

func TestBadConfig(t *testing.T) {
	s := newSide(t, "a", 1, 64, Config{QPN: 0x11})
	good := s.qp.Config()
	for name, f := range map[string]func(c *Config){
		"no send cq": func(c *Config) { c.SendCQ = nil },
		"no recv cq": func(c *Config) { c.RecvCQ = nil },
		"send wr":    func(c *Config) { c.MaxSendWR = -1 },
		"recv wr":    func(c *Config) { c.MaxRecvWR = maxWR + 1 },
		"sge":        func(c *Config) { c.MaxSGE = maxSGEs + 1 },
		"inline":     func(c *Config) { c.MaxInline = maxInline + 1 },
		"window":     func(c *Config) { c.Window = maxWindow + 1 },
	} {
		c := good
		f(&c)
		if _, err := New(s.env, c); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	good.Type = verbs.XRCTarget + 1
	if _, err := New(s.env, good); !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("%v: %v, want ErrNotSupported", good.Type, err)
	}
}

// The first request in RTR raises the event that communication is established, once (IBTA
// 11.6.3.1/established).
func TestCommunicationEstablished(t *testing.T) {
	s := newSide(t, "b", 1, 64, Config{QPN: 0x11})
	bringTo(t, s, verbs.StateRTR)
	for psn := range wire.PSN(2) {
		s.qp.Handle(0, &wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendOnly, PSN: psn}}, &s.out)
	}
	if len(s.out.Async) != 1 || s.out.Async[0].Kind != verbs.EventCommEst {
		t.Errorf("events %v, want one EventCommEst", s.out.Async)
	}
}

// Query returns the attributes with the defaults filled in.
func TestAttributeDefaults(t *testing.T) {
	s := newSide(t, "a", 1, 64, Config{QPN: 0x11})
	bringTo(t, s, verbs.StateRTS)
	q := s.qp.Query()
	if q.Init != s.qp.core.init || q.RTR != s.qp.core.rtr || q.QPN != s.qp.Num() || q.Type != verbs.RC {
		t.Errorf("query and accessors differ: %+v", q)
	}
	if q.RTR.MaxDestRdAtomic != 16 || q.RTR.HopLimit != 64 || q.RTS.MaxRdAtomic != 16 {
		t.Errorf("defaults: %+v", q)
	}
	c := s.qp.Config()
	if c.MaxSendWR != 128 || c.MaxRecvWR != 128 || c.MaxSGE != 4 || c.MaxInline != 256 || c.Window != 128 || c.AckEvery != 32 {
		t.Errorf("defaults: %+v", c)
	}
}

// SignalAll completes every send work request.
func TestSignalAll(t *testing.T) {
	a := newSide(t, "a", 1, 64, Config{QPN: 0x11, SignalAll: true})
	b := newSide(t, "b", 2, 64, Config{QPN: 0x12})
	connect(t, a, b, defaultLink)
	wr := writeTo(b)
	wr.Flags = 0
	post(t, a, wr)
	settle(t, 0, a, b)
	if wc := onlyWC(t, a.scq); wc.Status != verbs.Success || wc.QPN != 0x11 {
		t.Errorf("%+v", wc)
	}
}

// graphviz prints the state diagram of a queue pair type in the language of dot, one edge a line.
func graphviz(of verbs.QPType) string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n", strings.ToLower(of.String()))
	for _, t := range services[of].states {
		fmt.Fprintf(&b, "  %v -> %v [label=%q];\n", t.from, t.to, t.on)
	}
	b.WriteString("}\n")
	return b.String()
}
