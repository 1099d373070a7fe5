package ipc_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// hostileConnection makes a request of the connection manager that may wait, or that ends a wait.
// Most name objects that exist: queue pairs 5 to 10, listener 11, and later ones.
func hostileConnection(r *rand.Rand) (proto.Op, any) {
	pick := func(from, n uint32) uint32 {
		if r.IntN(8) == 0 {
			return r.Uint32N(40)
		}
		return from + r.Uint32N(n)
	}
	qp, listener, request := pick(5, 6), pick(11, 1), pick(12, 12)
	wait := time.Duration(r.IntN(100)-1) * time.Millisecond
	service := fmt.Sprint("service", r.IntN(3))
	var p rdmacm.Params
	if r.IntN(4) == 0 {
		p = rdmacm.Params{Timeout: uint8(r.Uint32()), RetryCount: uint8(r.Uint32()), RNRRetry: uint8(r.Uint32())}
	}
	switch r.IntN(20) {
	case 0:
		return proto.OpListen, proto.Service{Name: service}
	case 1, 2, 3, 4, 5:
		return proto.OpDial, proto.Connect{QP: qp, To: ips[0], Service: service, Timeout: wait, Private: make([]byte, r.IntN(60)), Params: p}
	case 6, 7, 8:
		return proto.OpNextRequest, proto.Wait{H: listener, Timeout: wait}
	case 9, 10, 11, 12:
		return proto.OpAccept, proto.Connect{H: request, QP: qp, Timeout: wait, Private: make([]byte, r.IntN(60)), Params: p}
	case 13:
		return proto.OpReject, proto.Reject{H: request, Reason: string(make([]byte, r.IntN(300)))}
	case 14:
		return proto.OpDisconnect, proto.Wait{H: qp, Timeout: wait}
	case 15:
		return proto.OpDisconnected, proto.Wait{H: qp, Timeout: wait}
	case 16:
		return proto.OpModifyQP, proto.ModifyQP{H: qp, To: fuzzTransitions[r.IntN(8)]}
	case 17:
		return proto.OpShare, proto.Share{Name: service, Length: 4096, Access: verbs.LocalWrite}
	case 18:
		return proto.OpUnshare, proto.Share{Name: service}
	}
	switch r.IntN(12) {
	case 0:
		return proto.OpCloseManager, proto.None{}
	case 1:
		return proto.OpUnlisten, proto.Handle{H: listener}
	case 2:
		return proto.OpDestroyQP, proto.Handle{H: qp}
	}
	return proto.OpModifyQP, proto.ModifyQP{H: qp, To: proto.ToReset}
}

// Requests about connections race with each other, with the destruction of their objects and with
// the end of their application. Other programs are not disturbed, and nothing is left.
func TestHostileConnections(t *testing.T) {
	h := newHouse(t, 0, nil)
	v := h.victim(t)
	base := h.objects(0).QPs
	const seed = 7
	for round := range verbstest.Tries(40, 10) {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		var all []*attacker
		var answers sync.WaitGroup
		for range 2 {
			a, err := attach(h.sockets[0])
			must(t, err)
			all = append(all, a)
			must(t, a.equip())
			for range 6 {
				_ = a.call(proto.OpCreateQP, proto.CreateQP{PD: a.pd, SendCQ: a.cq.H, RecvCQ: a.cq.H}, nil)
			}
			must(t, a.call(proto.OpListen, proto.Service{Name: fmt.Sprint("service", len(all))}, nil))
			answers.Go(func() {
				for {
					if _, err := a.answer(); err != nil {
						return
					}
				}
			})
		}
		for i := range 150 {
			a := all[r.IntN(2)]
			op, args := hostileConnection(r)
			raw, err := json.Marshal(args)
			must(t, err)
			b, err := json.Marshal(proto.Request{ID: uint64(i + 1000), Op: op, Args: raw})
			must(t, err)
			_, _ = a.conn.Write(b)
			if r.IntN(20) == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		v.fine()
		for _, a := range all {
			_ = a.conn.Close()
		}
		answers.Wait()
		for _, a := range all {
			a.leave()
		}
		for end := time.Now().Add(20 * time.Second); len(h.servers[0].Clients()) > 1; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("round %d: an application does not end: %+v", round, h.servers[0].Clients())
			}
		}
	}
	if o := h.objects(0); o.QPs != base {
		t.Errorf("%d queue pairs are left, there were %d", o.QPs, base)
	}
	last := h.open(t, 0)
	for _, s := range h.servers[0].Shared() { // no program has them open
		must(t, last.Unshare(s.Name))
	}
	v.fine()
}
