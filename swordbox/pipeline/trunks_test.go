package pipeline

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// leaf is a switch with hosts 0 and 1 at its ports of these numbers, and ports 2 and 3 to two spines,
// behind which hosts 4 and 5 are. Frames are flooded through port 2.
func leaf(t *testing.T) *rig {
	r := newRig(t, 4, &testProgram{}, func(c *Config) { c.Trunks = new(Trunks) })
	r.fdb.trunks.Route(Routes{
		Ports: []bool{false, false, true, true}, Tree: []bool{false, false, true, false},
		Hops: map[wire.MAC][]int{mac(0): {0}, mac(1): {1}, mac(4): {2, 3}, mac(5): {}},
	})
	return r
}

func TestTrunks(t *testing.T) {
	r := leaf(t)
	r.want("an own host that has sent nothing", r.send(0, plain(mac(0), mac(1))), "[1]")
	r.want("broadcast of a host", r.send(0, plain(mac(0), broadcast)), "[1 2]")
	r.want("broadcast from the tree", r.send(2, plain(mac(4), broadcast)), "[0 1]")
	r.want("broadcast from another trunk", r.send(3, plain(mac(4), broadcast)), "[]")
	r.want("to a host without a path", r.send(0, plain(mac(0), mac(5))), "[]")
	if n := r.Port(0).Drops[ReasonNoRoute] + r.Port(3).Drops[ReasonNoRoute]; n != 2 {
		t.Errorf("%d drops for want of a route, want 2", n)
	}
	r.want("a frame that came back", r.send(2, plain(mac(4), mac(1))), "[1]")
	// The address of a host of the rack is not learnt: host 4 seems to be at port 2, and has two paths.
	if len(r.MACs()) != 0 {
		t.Errorf("learnt %v", r.MACs())
	}
	// A guest is learnt where the tree leads to it.
	r.want("unknown", r.send(0, plain(mac(0), mac(9))), "[1 2]")
	r.want("a guest's frame on another trunk", r.send(3, plain(mac(9), mac(0))), "[0]")
	r.want("still unknown", r.send(0, plain(mac(0), mac(9))), "[1 2]")
	r.want("a guest's frame on the tree", r.send(2, plain(mac(9), mac(0))), "[0]")
	r.want("known", r.send(0, plain(mac(0), mac(9))), "[2]")
	r.fdb.trunks.Route(r.fdb.trunks.Routes)
	r.want("forgotten with new routes", r.send(0, plain(mac(0), mac(9))), "[1 2]")
}

// All frames of a flow take one path, and flows take both: they differ in their UDP source ports.
func TestFlowsTakeSeveralPaths(t *testing.T) {
	r := leaf(t)
	took := make(map[string]int)
	for flow := range 200 {
		f := roceFrame(0, 4, 1, "x")
		f.UDP.SrcPort = uint16(0xc000 + flow)
		first := r.send(0, f.AppendTo(nil))
		f.BTH.PSN, f.Payload = 2, []byte("another packet")
		if again := r.send(0, f.AppendTo(nil)); again != first {
			t.Fatalf("flow %d: packets at %s and %s", flow, first, again)
		}
		took[first]++
	}
	if took["[2]"] < 60 || took["[3]"] < 60 || took["[2]"]+took["[3]"] != 200 {
		t.Errorf("200 flows took %v", took)
	}
}

// A partition separates hosts of several switches: at the sender's for frames to one host, at the
// receivers' for those that are flooded.
func TestPartitionOverTrunks(t *testing.T) {
	r := leaf(t)
	r.fdb.trunks.Groups = map[wire.MAC]int{mac(4): 1}
	r.Partition([]int{0, -1, -1, -1})
	r.want("to a host of another group", r.send(0, plain(mac(0), mac(4))), "[]")
	r.want("from a host of no group", fmt.Sprint(len(r.send(1, plain(mac(1), mac(4)))) > 2), "true")
	r.want("flooded from a host of another group", r.send(2, plain(mac(4), broadcast)), "[1]")
	r.Partition(nil)
	r.fdb.trunks.Groups = nil
	r.want("ended", r.send(2, plain(mac(4), broadcast)), "[0 1]")
}

// Reports of members go through the tree alone, and the switch asks no other switch for members: with
// queries and reports on all trunks, reports would circle for ever.
func TestReportsTakeTheTree(t *testing.T) {
	r := leaf(t)
	join := func(src wire.MAC) []byte {
		m := wire.Membership{Source: verbs.LinkLocalGID(src).Addr(), Records: []wire.GroupRecord{{Type: wire.RecordToExclude, Group: netip.MustParseAddr("ff05::77")}}}
		return m.AppendTo(nil, src)
	}
	query := wire.Membership{Query: true, Group: netip.IPv6Unspecified(), Source: verbs.LinkLocalGID(mac(9)).Addr()}
	for _, in := range []int{2, 3} { // a router behind both trunks, as after a change of the tree
		r.send(in, query.AppendTo(nil, mac(9)))
	}
	left := r.send(0, join(mac(0)))
	for _, f := range r.out.Frames {
		if f.Port == 3 {
			t.Errorf("a report left at %s, also outside of the tree", left)
		}
	}
	r.now = r.now.Add(startupResponse)
	r.tick()
	for _, f := range r.out.Frames {
		if f.Port >= 2 {
			t.Errorf("a query left through trunk %d", f.Port)
		}
	}
	r.want("a report on a trunk outside of the tree", r.send(3, join(mac(4))), "[]")
}
