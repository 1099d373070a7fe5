package ucma

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The number of a queue pair is 24 bits of what a program names, in a request and in its answer: the program is asked
// whether it owns that queue pair, and each end learns the number of the other's.
func TestNumbersHave24Bits(t *testing.T) {
	n := newNIC(t)
	var asked []wire.QPN
	n.m.cfg.Owns = func(q wire.QPN) bool { asked = append(asked, q); return true }
	if _, err := n.m.OpenChannel(); err != nil {
		t.Fatal(err)
	}
	pd, err := n.e.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := n.e.CreateCQ(16)
	if err != nil {
		t.Fatal(err)
	}
	var nums [2]uint32
	for i := range nums {
		q, err := n.e.CreateQP(pd, cq, cq, verbs.QPInit{})
		if err != nil {
			t.Fatal(err)
		}
		nums[i] = uint32(q.Num())
	}
	const above = 0xa5 << 24
	at := addressOf(netip.AddrPortFrom(own, 7174))
	for _, c := range []Command{
		{Op: CreateID, Args: encode(createID{UID: 1, Space: spaceTCP})},
		{Op: BindIP, Args: encode(bindIP{Addr: at})},
		{Op: Listen, Args: encode(listen{ID: 0, Backlog: 1})},
		{Op: CreateID, Args: encode(createID{UID: 2, Space: spaceTCP})},
		{Op: ResolveIP, Args: encode(resolveIP{Dst: at, ID: 1})},
		{Op: GetEvent},
		{Op: ResolveRoute, Args: encode(resolveRoute{ID: 1})},
		{Op: GetEvent},
		{Op: Connect, Args: encode(connect{Param: connParam{QPN: above | nums[0], Valid: 1}, ID: 1})},
	} {
		n.do(c)
	}
	request, ok := decode[event](n.do(Command{Op: GetEvent}).Data)
	if !ok || request.Kind != connectRequest {
		t.Fatalf("event %+v", request)
	}
	n.do(Command{Op: Accept, Args: encode(accept{UID: 3, Param: connParam{QPN: above | nums[1], Valid: 1}, ID: request.ID})})
	for id, want := range map[uint32]uint32{1: nums[1], request.ID: nums[0]} {
		a, ok := decode[qpAttr](n.do(Command{Op: InitQPAttr, Args: encode(initQPAttr{ID: id, State: qpRTR})}).Data)
		if !ok || a.DestQPN != want {
			t.Errorf("identifier %d connects to %#x, want %#x", id, a.DestQPN, want)
		}
	}
	if len(asked) != 2 || uint32(asked[0]) != nums[0] || uint32(asked[1]) != nums[1] {
		t.Errorf("asked about %#x, want %#x", asked, nums)
	}
}
