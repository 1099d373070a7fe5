package simrack

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A host that reboots draws the same random numbers as in its first incarnation; one that is
// restarted draws others.
func TestRebootRepeatsNumbers(t *testing.T) {
	s, err := rackfile.Parse([]byte("name: t\nhosts:\n  - {name: a, role: compute}\n  - {name: b, role: compute}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(s, Options{Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	type numbers struct {
		qpn  wire.QPN
		rkey uint32
		addr uint64
	}
	var seen []numbers
	life := func() {
		h := r.Host("a")
		h.Go("app", true, func(ctx verbs.Context) {
			pd, err := ctx.AllocPD()
			if err != nil {
				t.Error(err)
				return
			}
			cq, _ := ctx.CreateCQ(1)
			qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
			if err != nil {
				t.Error(err)
				return
			}
			mr, err := pd.RegMR(nil, 64, verbs.LocalWrite)
			if err != nil {
				t.Error(err)
				return
			}
			seen = append(seen, numbers{qp.QPN(), mr.RKey(), mr.Addr()})
		})
		if err := r.Settle(time.Millisecond); err != nil {
			t.Fatal(err)
		}
		h.Crash()
	}
	life()
	if err := r.Host("a").Reboot(); err != nil {
		t.Fatal(err)
	}
	life()
	r.Host("a").Restart()
	life()
	if len(seen) != 3 || seen[0] != seen[1] || seen[2] == seen[0] {
		t.Errorf("numbers of three lives: %+v", seen)
	}
}
