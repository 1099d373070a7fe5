package transport

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/golden"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/qpattr"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

var changeNames = []string{
	"access", "Q_Key", "RNR timer", "timeout", "retries", "RNR retries", "P_Key index", "destination", "READs in flight", "responder resources",
}

// changed has the attribute of package qpattr for each bit of a change.
var changed = []qpattr.Mask{
	qpattr.Access, qpattr.QKey, qpattr.MinRNRTimer, qpattr.Timeout, qpattr.RetryCount, qpattr.RNRRetry, qpattr.PKeyIndex, qpattr.Dest,
	qpattr.MaxRdAtomic, qpattr.MaxDestRdAtomic,
}

// What a queue pair can change without a transition is what the table of attributes says for its
// service and state; what SQE can change is what the table says for the way back to RTS. INIT
// changes its attributes by ToInit.
func TestChangesAreThoseOfTheTable(t *testing.T) {
	for of, svc := range services {
		for from := verbs.StateRTR; from <= verbs.StateError; from++ {
			to := from
			if from == verbs.StateSQE {
				to = verbs.StateRTS
			}
			_, may := qpattr.Of(verbs.QPType(of), from, to)
			if from == verbs.StateSQE && svc.opcodes.Reliable() {
				continue // reliable connections have no SQE
			}
			for i, attribute := range changed {
				if got := svc.changes&changeable[from]&(1<<i) != 0; got != (may&attribute != 0) {
					t.Errorf("%v in %v: %v can change: %v", verbs.QPType(of), from, attribute, got)
				}
			}
		}
	}
}

// Which attribute changes in which state is a golden file, for each service: what is refused leaves
// all attributes as they are (IBTA 11.2.5.2/optional).
func TestChangesByState(t *testing.T) {
	var b strings.Builder
	for _, of := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		for from := verbs.StateReset; from <= verbs.StateError; from++ {
			if from == verbs.StateSQE && of == verbs.RC {
				continue
			}
			fmt.Fprintf(&b, "%v %-5v", of, from)
			for i, name := range changeNames {
				s := newSide(t, "a", 1, 64, Config{QPN: 0x11, Type: of})
				bringTo(t, s, from)
				before := s.qp.Query()
				err := s.qp.Modify(0, verbs.QPModify{
					Mask: 1 << i, Access: verbs.RemoteRead, QKey: 1, MinRNRTimer: 2, Timeout: 3, RetryCount: 4, RNRRetry: 5,
					PKeyIndex: 6, Dest: verbs.AHAttr{SourceGID: 7}, MaxRdAtomic: 8, MaxDestRdAtomic: 9,
				})
				differs := !reflect.DeepEqual(s.qp.Query(), before)
				switch {
				case err == nil && differs:
					fmt.Fprintf(&b, "  %s", name)
				case differs || !errors.Is(err, verbs.ErrState) && !errors.Is(err, verbs.ErrInvalid):
					t.Errorf("%v: %s in %v: %v, changed: %v", of, name, from, err, differs)
				}
			}
			b.WriteByte('\n')
		}
	}
	golden.Check(t, "testdata/change.golden", b.String())
}

// The transitions that an application asks for are those of the table of attributes, except that a
// queue pair also goes from RESET to ERR, which kernels refuse (IBTA 10.3.1/rc). Only what fails
// brings a queue pair to SQE.
func TestTransitionsAreThoseOfTheTable(t *testing.T) {
	asked := []event{evToInit, evToRTR, evToRTS, evToSQD, evResumeRTS, evToError, evToReset}
	for of, svc := range services {
		for from := verbs.StateReset; from <= verbs.StateError; from++ {
			if from == verbs.StateSQE && svc.opcodes.Reliable() {
				continue // reliable connections have no SQE
			}
			for to := verbs.StateReset; to <= verbs.StateError; to++ {
				if from == to && from != verbs.StateInit {
					continue // attributes change by Modify
				}
				must, _ := qpattr.Of(verbs.QPType(of), from, to)
				inTable := qpattr.Check(verbs.QPType(of), from, to, must) == nil || from == verbs.StateReset && to == verbs.StateError
				goes := slices.ContainsFunc(asked, func(e event) bool {
					at, err := next(svc.states, from, e)
					return err == nil && at == to
				})
				if goes != inTable {
					t.Errorf("%v from %v to %v: %v, in the table: %v", verbs.QPType(of), from, to, goes, inTable)
				}
			}
		}
	}
}

// A value out of range is refused, and nothing of the same call takes effect.
func TestChangesAreAllOrNone(t *testing.T) {
	for name, a := range map[string]verbs.QPModify{
		"access":      {Mask: verbs.ModifyAccess, Access: verbs.LocalWrite},
		"RNR timer":   {Mask: verbs.ModifyAccess | verbs.ModifyRNRTimer, MinRNRTimer: maxTimerCode + 1},
		"timeout":     {Mask: verbs.ModifyAccess | verbs.ModifyTimeout, Timeout: maxTimerCode + 1},
		"retries":     {Mask: verbs.ModifyAccess | verbs.ModifyRetryCount, RetryCount: maxRetryCount + 1},
		"RNR retries": {Mask: verbs.ModifyAccess | verbs.ModifyRNRRetry, RNRRetry: rnrForEver + 1},
		"READs":       {Mask: verbs.ModifyAccess | verbs.ModifyMaxRdAtomic, MaxRdAtomic: -2},
		"resources":   {Mask: verbs.ModifyAccess | verbs.ModifyMaxDestRdAtomic, MaxDestRdAtomic: maxRdAtomic + 1},
		"unknown":     {Mask: verbs.ModifyAccess | verbs.ModifyMaxDestRdAtomic<<1},
	} {
		_, b := newPair(t)
		if err := b.qp.ToSQD(0, &b.out); err != nil {
			t.Fatal(err)
		}
		before := b.qp.Query()
		if err := b.qp.Modify(0, a); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
		if after := b.qp.Query(); !reflect.DeepEqual(after, before) {
			t.Errorf("%s: %+v became %+v", name, before, after)
		}
	}
	s := newSide(t, "a", 1, 64, Config{QPN: 0x11, Type: verbs.UD})
	bringTo(t, s, verbs.StateRTS)
	if err := s.qp.Modify(0, verbs.QPModify{Mask: verbs.ModifyQKey, QKey: verbs.ControlledQKey}); !errors.Is(err, verbs.ErrAccess) {
		t.Errorf("privileged Q_Key: %v, want ErrAccess", err)
	}
}

// Rights that are taken away in RTS refuse the next request, and a new RNR timer is in the next RNR
// NAK (IBTA 11.2.5.2/optional).
func TestChangedResponder(t *testing.T) {
	a, b := newPair(t)
	if err := b.qp.Modify(0, verbs.QPModify{Mask: verbs.ModifyRNRTimer, MinRNRTimer: 3}); err != nil {
		t.Fatal(err)
	}
	post(t, a, verbs.SendWR{ID: 1, Op: verbs.OpSend, Flags: verbs.Signalled})
	a.deliver(0, b)
	if len(b.out.Tx) != 1 || b.out.Tx[0].Packet.AETH.Syndrome != wire.RNRNak|3 {
		t.Fatalf("answer %+v, want an RNR NAK with timer 3", b.out.Tx)
	}
	recvOf(t, b, 8)
	b.deliver(0, a)
	a.qp.Tick(clock.Time(RNRDelay(3)), &a.out)
	settle(t, clock.Time(RNRDelay(3)), a, b)
	if wc := onlyWC(t, a.scq); wc.Status != verbs.Success {
		t.Fatalf("SEND: %+v", wc)
	}
	if err := b.qp.Modify(0, verbs.QPModify{Mask: verbs.ModifyAccess, Access: verbs.RemoteRead}); err != nil {
		t.Fatal(err)
	}
	post(t, a, writeTo(b))
	settle(t, clock.Time(RNRDelay(3)), a, b)
	if wc := onlyWC(t, a.scq); wc.Status != verbs.RemInvReqErr {
		t.Errorf("WRITE without the right: %+v", wc)
	}
}

// In SQD, a new timeout counts for what is in flight, and so do new retry counts. An RNR wait and a
// timer that stands still go on (IBTA 11.2.5.2/optional).
func TestChangedRequester(t *testing.T) {
	a, b := newPair(t)
	post(t, a, writeTo(b))
	if err := a.qp.ToSQD(0, &a.out); err != nil {
		t.Fatal(err)
	}
	at := clock.Time(time.Millisecond)
	if err := a.qp.Modify(at, verbs.QPModify{Mask: verbs.ModifyTimeout | verbs.ModifyRetryCount, Timeout: 10, RetryCount: 2}); err != nil {
		t.Fatal(err)
	}
	if d := a.qp.Deadline(); d != at.Add(AckTimeout(10)) {
		t.Errorf("deadline %v, want %v", d, at.Add(AckTimeout(10)))
	}
	expire(t, a)
	if wc := onlyWC(t, a.scq); wc.Status != verbs.RetryExcErr || a.qp.Query().RetransPkts != 2 {
		t.Errorf("%+v after %d retransmissions, want 2", wc, a.qp.Query().RetransPkts)
	}

	a, b = newPair(t)
	if err := a.qp.ToSQD(0, &a.out); err != nil {
		t.Fatal(err)
	}
	if err := a.qp.Modify(0, verbs.QPModify{Mask: verbs.ModifyTimeout, Timeout: 10}); err != nil || a.qp.Deadline() != clock.Never {
		t.Errorf("%v, deadline %v with nothing in flight", err, a.qp.Deadline())
	}
	if err := a.qp.ResumeRTS(0, &a.out); err != nil {
		t.Fatal(err)
	}
	post(t, a, verbs.SendWR{ID: 1, Op: verbs.OpSend, Flags: verbs.Signalled})
	a.deliver(0, b)
	b.deliver(0, a) // the RNR NAK
	waits := a.qp.Deadline()
	if err := a.qp.ToSQD(0, &a.out); err != nil {
		t.Fatal(err)
	}
	if err := a.qp.Modify(0, verbs.QPModify{Mask: verbs.ModifyRNRRetry, RNRRetry: 0}); err != nil || a.qp.Deadline() != waits {
		t.Errorf("%v, deadline %v, want %v", err, a.qp.Deadline(), waits)
	}
	for range 2 {
		a.qp.Tick(a.qp.Deadline(), &a.out)
		a.deliver(waits, b)
		b.deliver(waits, a)
	}
	if wc := onlyWC(t, a.scq); wc.Status != verbs.RNRRetryExcErr {
		t.Errorf("SEND: %+v", wc)
	}
	if err := a.qp.Modify(0, verbs.QPModify{Mask: verbs.ModifyTimeout}); !errors.Is(err, verbs.ErrState) {
		t.Errorf("in the error state: %v", err)
	}
}

// A responder that gets fewer resources in SQD keeps the newest results for duplicates and refuses
// more atomics in flight than it has left; one that gets more takes more (IBTA 11.2.5.2/optional).
func TestChangedResources(t *testing.T) {
	var s results
	for psn := range wire.PSN(5) {
		s.add(result{psn: psn}, 4)
	}
	for _, c := range []struct {
		most        int
		first, last wire.PSN
	}{{8, 1, 4}, {3, 2, 4}, {1, 4, 4}} {
		s.resize(c.most)
		for psn := range wire.PSN(5) {
			if found := s.find(psn) != nil; found != (psn >= c.first && psn <= c.last) {
				t.Errorf("room for %d: result of PSN %d found: %v", c.most, psn, found)
			}
		}
	}
	s.add(result{psn: 9}, 1)
	if s.find(9) == nil || s.find(4) != nil {
		t.Error("the only place has not the newest result")
	}

	for resources, want := range map[int]verbs.Status{1: verbs.Success, 8: verbs.Success, -1: verbs.RemInvReqErr} {
		a, b := newPair(t)
		if err := b.qp.ToSQD(0, &b.out); err != nil {
			t.Fatal(err)
		}
		if err := b.qp.Modify(0, verbs.QPModify{Mask: verbs.ModifyMaxDestRdAtomic, MaxDestRdAtomic: resources}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			wr := writeTo(b)
			wr.Op, wr.SGL = verbs.OpFetchAdd, []verbs.SGE{a.sge(0, 8)}
			post(t, a, wr)
			settle(t, 0, a, b)
			if wc := onlyWC(t, a.scq); wc.Status != want {
				t.Errorf("atomic with %d resources: %v, want %v", resources, wc.Status, want)
			}
			if want != verbs.Success {
				break
			}
		}
	}
}
