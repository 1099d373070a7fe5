package transport

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// An invalid post is refused with its kind of error, and the request is not queued.
func TestPostRefuses(t *testing.T) {
	a, b := newPair(t)
	sge := a.sge(0, 8)
	big := verbs.SGE{Addr: a.mem.Base(), Length: 1 << 31, LKey: a.mem.LKey()}
	for name, wr := range map[string]verbs.SendWR{
		"unknown operation":       {Op: verbs.OpFlush + 1},
		"too many SGEs":           {Op: verbs.OpWrite, SGL: make([]verbs.SGE, 5)},
		"too long":                {Op: verbs.OpWrite, SGL: []verbs.SGE{big, sge}},
		"inline too long":         {Op: verbs.OpSend, Flags: verbs.Inline, Data: make([]byte, 257)},
		"inline with SGL":         {Op: verbs.OpSend, Flags: verbs.Inline, Data: make([]byte, 8), SGL: []verbs.SGE{sge}},
		"inline READ":             {Op: verbs.OpRead, Flags: verbs.Inline},
		"inline atomic":           {Op: verbs.OpFetchAdd, Flags: verbs.Inline},
		"atomic of 4 bytes":       {Op: verbs.OpFetchAdd, SGL: []verbs.SGE{a.sge(0, 4)}},
		"atomic of nothing":       {Op: verbs.OpCmpSwap},
		"misaligned atomic":       {Op: verbs.OpCmpSwap, SGL: []verbs.SGE{sge}, RemoteAddr: b.mem.Base() + 1},
		"inline ATOMIC_WRITE":     {Op: verbs.OpAtomicWrite, Flags: verbs.Inline, Data: make([]byte, 8)},
		"ATOMIC_WRITE with SGL":   {Op: verbs.OpAtomicWrite, SGL: []verbs.SGE{sge}},
		"misaligned ATOMIC_WRITE": {Op: verbs.OpAtomicWrite, RemoteAddr: b.mem.Base() + 4},
		"FLUSH without effect":    {Op: verbs.OpFlush},
		"FLUSH with SGL":          {Op: verbs.OpFlush, Flush: verbs.Flush{Global: true}, SGL: []verbs.SGE{sge}},
		"FLUSH too long":          {Op: verbs.OpFlush, Flush: verbs.Flush{Global: true, Length: 1<<31 + 1}},
		"inline FLUSH":            {Op: verbs.OpFlush, Flush: verbs.Flush{Global: true}, Flags: verbs.Inline},
		"local invalidate + SGEs": {Op: verbs.OpLocalInv, SGL: []verbs.SGE{sge}},
	} {
		err := a.qp.PostSend(0, &wr, &a.out)
		var op *verbs.OpError
		if !errors.As(err, &op) || !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v, want an OpError of ErrInvalid", name, err)
		}
	}
	if err := a.qp.PostRecv(&verbs.RecvWR{SGL: make([]verbs.SGE, 5)}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("receive with too many SGEs: %v", err)
	}
	if q := a.qp.Query(); q.SendQueued != 0 || q.RecvQueued != 0 || len(a.out.Tx) != 0 {
		t.Errorf("something was queued: %+v", q)
	}
}

func TestQueuesAreBounded(t *testing.T) {
	a := newSide(t, "a", 1, 64, Config{QPN: 0x11, MaxSendWR: 3, MaxRecvWR: 5})
	b := newSide(t, "b", 2, 64, Config{QPN: 0x12})
	connect(t, a, b, defaultLink)
	for range 3 {
		post(t, a, writeTo(b))
	}
	wr := writeTo(b)
	if err := a.qp.PostSend(0, &wr, &a.out); !errors.Is(err, verbs.ErrNoSpace) {
		t.Errorf("fourth send: %v, want ErrNoSpace", err)
	}
	for i := range 6 {
		if err := a.qp.PostRecv(&verbs.RecvWR{}); (err != nil) != (i == 5) || (err != nil && !errors.Is(err, verbs.ErrNoSpace)) {
			t.Errorf("receive %d: %v", i, err)
		}
	}
}

// The durations that the timeout codes stand for (IBTA 9.7.6.1.3/timeout, 9.7.5.2.8/timer).
func TestTimerCodes(t *testing.T) {
	for code, want := range map[uint8]time.Duration{1: 8192, 14: 67108864, 31: 4096 << 31} {
		if got := AckTimeout(code); got != want {
			t.Errorf("ACK timeout %d is %v, want %v", code, got, want)
		}
	}
	for code, want := range map[uint8]time.Duration{
		0: 655360 * time.Microsecond, 1: 10 * time.Microsecond, 12: 640 * time.Microsecond, 14: 1280 * time.Microsecond,
		18: 5120 * time.Microsecond, 31: 491520 * time.Microsecond,
	} {
		if got := RNRDelay(code); got != want {
			t.Errorf("RNR timer %d is %v, want %v", code, got, want)
		}
	}
	for code := uint8(2); code < 32; code++ {
		if RNRDelay(code) <= RNRDelay(code-1) {
			t.Errorf("RNR timers do not grow at %d", code)
		}
	}
}

// Timeout 0 never times out.
func TestNoTimeout(t *testing.T) {
	a, b := newPair(t)
	l := defaultLink
	l.rts.Timeout = 0
	reconnect(t, a, b, l)
	post(t, a, writeTo(b))
	if at := a.qp.Deadline(); at.String() != "never" {
		t.Errorf("deadline %v, want never", at)
	}
}

// The limit of a shared receive queue may be all of its places, and no more.
func TestLimitOfASharedQueue(t *testing.T) {
	srq, err := NewSRQ(1, 1, verbs.SRQInit{MaxWR: 3})
	if err != nil {
		t.Fatal(err)
	}
	for n, ok := range map[int]bool{-1: false, 0: true, 1: true, 3: true, 4: false} {
		if err := srq.SetLimit(n); (err == nil) != ok {
			t.Errorf("limit %d: %v", n, err)
		}
	}
}
