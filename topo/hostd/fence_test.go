package hostd

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
)

// A client that was fenced at a memory server is still fenced when its NIC comes back after a crash: the memory, which others use now, is
// still there.
func TestFencesSurviveTheNIC(t *testing.T) {
	r := testRack()
	dir := describe(t, r)
	a, b := memcable.Pair(memcable.Config{})
	cn := start(t, dir, &r.Hosts[0], a)
	start(t, dir, &r.Hosts[1], b)
	ms, addr := control.NewClient(rackfile.Paths{Dir: dir}.Socket("ms0")), r.Hosts[1].IPv4
	ctx := cn.app.context()
	defer ctx.Close()
	soon := ctx.Runtime().Now().Add(20 * time.Second)
	if err := memservice.Fence(ctx, cn.conn, addr, 7, soon); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{StateDown, StateUp} {
		if err := ms.Call(t.Context(), "POST", PathNIC, NICRequest{state}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for owner, fenced := range map[uint32]bool{7: true, 8: false} {
		if h, err := memservice.WhoIs(ctx, cn.conn, addr, owner, soon); err != nil || h.Fenced != fenced {
			t.Errorf("owner %d: %+v, %v", owner, h, err)
		}
	}
}
