package simrack

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The rack file puts hosts into partitions: each client reaches the server in its own partition.
// The clients do not reach each other, because they share no partition in which one of them is a
// full member.
func TestPartitions(t *testing.T) {
	r := newRack(t, `
hosts:
  - {name: ms0, role: memory, pkeys: [0x8001, 0x8002]}
  - {name: cn1, role: compute, pkeys: [1, 3]}
  - {name: cn2, role: compute, pkeys: [0x8002, 3]}
`, Options{Seed: 1, Datagrams: true})
	ms := r.Host("ms0")
	for _, name := range []string{"ms0", "cn2"} {
		h := r.Host(name)
		h.Go("server", true, func(ctx verbs.Context) { echoAndForget(t, h, ctx) })
	}
	dial := func(h *Host, ctx verbs.Context, to *Host, pkeyIndex int, within time.Duration) error {
		_, err := h.ConnManager(ctx).Dial(newConn(t, ctx).qp, to.Addr(), "svc", rdmacm.Params{PKeyIndex: pkeyIndex}, nil, ctx.Runtime().Now().Add(within))
		return err
	}
	for _, name := range []string{"cn1", "cn2"} {
		h := r.Host(name)
		h.Go("client", false, func(ctx verbs.Context) {
			if err := dial(h, ctx, ms, 0, time.Minute); err != nil {
				t.Errorf("%s to the server: %v", name, err)
			}
			if name == "cn2" {
				return
			}
			for index := range 2 {
				if err := dial(h, ctx, r.Host("cn2"), index, 5*time.Second); !errors.Is(err, verbs.ErrTimeout) {
					t.Errorf("client to client with P_Key %d: %v, want a time-out", index, err)
				}
			}
		})
	}
	if err := errors.Join(r.Run(), r.Settle(20*time.Second)); err != nil {
		t.Fatal(err)
	}
	if c := r.Host("cn2").Counters(); c.RxPkeyErr == 0 || ms.Counters().RxPkeyErr != 0 {
		t.Errorf("dropped %d at the client, %d at the server", c.RxPkeyErr, ms.Counters().RxPkeyErr)
	}
}
