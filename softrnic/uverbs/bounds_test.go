package uverbs_test

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// The limits that the device shows are those that it keeps: a program gets a queue of each size up
// to the limit, and none of the next size.
func TestQueuesUpToTheLimitsOfTheDevice(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	d := do[uverbs.Device](e.client, uverbs.QueryDevice)
	inline := uint32(h.devices[0].Context().Device().MaxInline)
	qp := uverbs.QPArgs{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 1, MaxRecv: 1, MaxSGE: 1, MaxRecvSGE: 1, Type: uverbs.TypeRC}
	for name, c := range map[string]struct {
		most uint32
		make func(n uint32) unix.Errno
	}{
		"entries of a CQ": {d.MaxCQE, func(n uint32) unix.Errno {
			data, errno := e.raw(uverbs.CreateCQ, uverbs.NoChannel, uverbs.Encode(uverbs.CQArgs{CQE: n, Channel: -1}))
			if errno == 0 {
				e.end(uverbs.DestroyCQ, binary.NativeEndian.Uint32(data), 0)
			}
			return errno
		}},
		"receives of an SRQ": {d.MaxSRQWR, e.srq(func(a *uverbs.SRQArgs, n uint32) { a.MaxWR = n })},
		"pieces of an SRQ":   {d.MaxSRQSGE, e.srq(func(a *uverbs.SRQArgs, n uint32) { a.MaxSGE = n })},
		"sends":              {d.MaxQPWR, e.pair(qp, func(a *uverbs.QPArgs, n uint32) { a.MaxSend = n })},
		"receives":           {d.MaxQPWR, e.pair(qp, func(a *uverbs.QPArgs, n uint32) { a.MaxRecv = n })},
		"pieces of a send":   {d.MaxSGE, e.pair(qp, func(a *uverbs.QPArgs, n uint32) { a.MaxSGE = n })},
		"pieces":             {d.MaxSGE, e.pair(qp, func(a *uverbs.QPArgs, n uint32) { a.MaxRecvSGE = n })},
		"bytes inline":       {inline, e.pair(qp, func(a *uverbs.QPArgs, n uint32) { a.MaxInline = n })},
	} {
		before := h.used()
		if errno := c.make(c.most); errno != 0 {
			t.Errorf("%s: %d, the limit: %v", name, c.most, errno)
		}
		if errno := c.make(c.most + 1); errno != unix.EINVAL {
			t.Errorf("%s: %d, one more: %v", name, c.most+1, errno)
		}
		if d := h.more(before); len(d) > 0 {
			t.Errorf("%s: %v is left", name, d)
		}
	}
	if d.MaxMRSize != 1<<46 {
		t.Errorf("regions of %d bytes, want those of the rxe driver", d.MaxMRSize)
	}
}

// srq makes and ends a shared receive queue of which one attribute is n.
func (e *ends) srq(set func(a *uverbs.SRQArgs, n uint32)) func(n uint32) unix.Errno {
	return func(n uint32) unix.Errno {
		a := uverbs.SRQArgs{PD: e.pd, MaxWR: 1, MaxSGE: 1}
		set(&a, n)
		data, errno := e.raw(uverbs.CreateSRQ, uverbs.NoChannel, uverbs.Encode(a))
		if errno == 0 {
			e.end(uverbs.DestroySRQ, binary.NativeEndian.Uint32(data), 0)
		}
		return errno
	}
}

// pair makes and ends a queue pair of which one attribute is n.
func (e *ends) pair(a uverbs.QPArgs, set func(a *uverbs.QPArgs, n uint32)) func(n uint32) unix.Errno {
	return func(n uint32) unix.Errno {
		set(&a, n)
		data, errno := e.raw(uverbs.CreateQP, uverbs.NoChannel, uverbs.Encode(a))
		if errno == 0 {
			e.end(uverbs.DestroyQP, binary.NativeEndian.Uint32(data), 0)
		}
		return errno
	}
}

// The extended commands take what the plain ones take, refuse what this device does not have, and
// say how long their answers are.
func TestExtendedCommands(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	qp := uverbs.QPArgs{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 1, MaxRecv: 1, MaxSGE: 1, MaxRecvSGE: 1, Type: uverbs.TypeRC}
	cq := uverbs.ExCQArgs{CQE: 8, Channel: -1}
	for name, c := range map[string]struct {
		op    uverbs.Op
		args  any
		plain any // what the length is that of, with uverbs.Ex
		want  unix.Errno
	}{
		"QP":                  {uverbs.CreateQP, uverbs.ExQPArgs{QPArgs: qp}, uverbs.QP{}, 0},
		"QP, mask":            {uverbs.CreateQP, uverbs.ExQPArgs{QPArgs: qp, CompMask: 1}, nil, unix.EOPNOTSUPP},
		"QP, flags":           {uverbs.CreateQP, uverbs.ExQPArgs{QPArgs: qp, CreateFlags: 1}, nil, unix.EOPNOTSUPP},
		"QP, source number":   {uverbs.CreateQP, uverbs.ExQPArgs{QPArgs: qp, SourceQPN: 1}, nil, unix.EOPNOTSUPP},
		"CQ":                  {uverbs.CreateCQ, cq, uverbs.CQ{}, 0},
		"CQ that may overrun": {uverbs.CreateCQ, uverbs.ExCQArgs{CQE: 8, Channel: -1, Flags: 2}, uverbs.CQ{}, 0},
		"CQ, mask":            {uverbs.CreateCQ, uverbs.ExCQArgs{CQE: 8, Channel: -1, CompMask: 1}, nil, unix.EINVAL},
		"CQ, other flags":     {uverbs.CreateCQ, uverbs.ExCQArgs{CQE: 8, Channel: -1, Flags: 5}, nil, unix.EOPNOTSUPP},
		"CQ, vector":          {uverbs.CreateCQ, uverbs.ExCQArgs{CQE: 8, Channel: -1, Vector: 1}, nil, unix.EINVAL},
	} {
		data, errno := e.raw(c.op|uverbs.Extended, uverbs.NoChannel, uverbs.Encode(c.args))
		if errno != c.want {
			t.Errorf("%s: %v, want %v", name, errno, c.want)
			continue
		}
		if errno != 0 {
			continue
		}
		n := len(uverbs.Encode(c.plain))
		if got, want := binary.NativeEndian.Uint32(data[n+4:]), uint32(n+8); got != want {
			t.Errorf("%s: an answer of %d bytes, want %d", name, got, want)
		}
	}
}

// A program sets the limit of an SRQ up to the number of its receives, reads it back, and cannot
// resize the queue.
func TestLimitOfASharedReceiveQueue(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	c := h.attach(t, 0)
	pd := do[uverbs.Handle](c, uverbs.AllocPD).H
	srq := do[uverbs.SRQ](c, uverbs.CreateSRQ, uverbs.SRQArgs{PD: pd, MaxWR: 15, MaxSGE: 1})
	limit := uint32(0)
	for _, s := range []struct {
		mask, limit uint32
		want        unix.Errno
	}{
		{uverbs.MaskSRQLimit, 15, 0},
		{uverbs.MaskSRQLimit, 16, unix.EINVAL},
		{0, 3, 0}, // nothing is asked for
		{uverbs.MaskSRQLimit, 7, 0},
		{uverbs.MaskSRQLimit | uverbs.MaskSRQSize, 9, unix.EOPNOTSUPP},
	} {
		_, errno := c.raw(uverbs.ModifySRQ, uverbs.NoChannel, uverbs.Encode(uverbs.ModifySRQArgs{H: srq.H, Mask: s.mask, Limit: s.limit}))
		if errno == 0 && s.mask != 0 {
			limit = s.limit
		}
		a := do[uverbs.SRQAttr](c, uverbs.QuerySRQ, uverbs.Handle{H: srq.H}, uint32(0))
		if errno != s.want || a.Limit != limit || a.MaxWR < 15 || a.MaxSGE != 1 {
			t.Errorf("mask %d, limit %d: %v, want %v; the queue has %+v, want limit %d", s.mask, s.limit, errno, s.want, a, limit)
		}
	}
}

// The largest path MTU and RNR timer that there are can be set, the next number of either not.
func TestLargestPathMTUAndTimer(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	modify, query := modifier(h, t)
	for _, c := range []struct {
		mtu, timer uint8
		want       unix.Errno
	}{{5, 31, 0}, {6, 31, unix.EINVAL}, {5, 32, unix.EINVAL}} {
		e := h.attach(t, 0).queuePair(uverbs.TypeRC)
		if errno := modify(e, needs(e.typ, 0, 1), func(m *uverbs.ModifyQPArgs) { m.State, m.Port = 1, 1 }); errno != 0 {
			t.Fatal(errno)
		}
		errno := modify(e, needs(e.typ, 1, 2), func(m *uverbs.ModifyQPArgs) {
			m.State, m.Port, m.PathMTU, m.MinRNRTimer, m.DestQPN = 2, 1, c.mtu, c.timer, 9
			m.Dest.DestGID, m.Dest.Global, m.Dest.Port = [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: 77, 15: 2}, 1, 1
		})
		if q := query(e); errno != c.want || (q.State == 2) != (c.want == 0) {
			t.Errorf("path MTU %d, timer %d: %v, want %v; state %d", c.mtu, c.timer, errno, c.want, q.State)
		}
	}
}
