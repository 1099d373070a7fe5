package ucma

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// do executes a command that must succeed.
func (n *nic) do(c Command) Result {
	n.t.Helper()
	r, err := n.execute(c)
	if err != nil {
		n.t.Fatalf("%v: %v", c.Op, err)
	}
	return r
}

// TestOwnDatagramServiceMissing asks for a datagram service of the same NIC that does not exist: it is
// answered in the same step, and the program has an event of that.
func TestOwnDatagramServiceMissing(t *testing.T) {
	n := newNIC(t)
	if _, err := n.m.OpenChannel(); err != nil {
		t.Fatal(err)
	}
	at := addressOf(netip.AddrPortFrom(own, 7174))
	n.do(Command{Op: CreateID, Args: encode(createID{UID: 1, Space: spaceUDP})})
	n.do(Command{Op: ResolveIP, Args: encode(resolveIP{Dst: at})})
	n.do(Command{Op: ResolveRoute, Args: encode(resolveRoute{})})
	n.do(Command{Op: GetEvent})
	n.do(Command{Op: GetEvent})
	n.do(Command{Op: Connect, Args: encode(connect{})})
	r, err := n.execute(Command{Op: GetEvent})
	if ev, ok := decode[event](r.Data); err != nil || !ok || ev.Kind != unreachable {
		t.Errorf("event %+v, %v", ev, err)
	}
}

// TestEventsAreBounded causes events that it does not read.
func TestEventsAreBounded(t *testing.T) {
	n := newNIC(t)
	if _, err := n.m.OpenChannel(); err != nil {
		t.Fatal(err)
	}
	n.do(Command{Op: CreateID, Args: encode(createID{UID: 1, Space: spaceTCP})})
	far := addressOf(netip.MustParseAddrPort("10.99.0.1:1"))
	for range 200000 {
		_, _ = n.execute(Command{Op: ResolveIP, Args: encode(resolveIP{Dst: far})})
	}
	if k := len(n.m.channels[0].unread); k > maxUnread {
		t.Errorf("%d events of one identifier are kept", k)
	}
}

// TestMigrateWithRequest moves a listener to another channel before the program has read a request:
// the request's identifier moves, too.
func TestMigrateWithRequest(t *testing.T) {
	n := newNIC(t)
	for range 2 {
		if _, err := n.m.OpenChannel(); err != nil {
			t.Fatal(err)
		}
	}
	cq, err := n.e.CreateCQ(16)
	if err != nil {
		t.Fatal(err)
	}
	pd, err := n.e.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	qp, err := n.e.CreateQP(pd, cq, cq, verbs.QPInit{})
	if err != nil {
		t.Fatal(err)
	}
	at := addressOf(netip.AddrPortFrom(own, 7174))
	n.do(Command{Op: CreateID, Args: encode(createID{UID: 1, Space: spaceTCP})})
	n.do(Command{Op: BindIP, Args: encode(bindIP{Addr: at})})
	n.do(Command{Op: Listen, Args: encode(listen{Backlog: 8})})
	n.do(Command{Op: CreateID, Args: encode(createID{UID: 2, Space: spaceTCP})})
	n.do(Command{Op: ResolveIP, Args: encode(resolveIP{ID: 1, Dst: at})})
	n.do(Command{Op: ResolveRoute, Args: encode(resolveRoute{ID: 1})})
	n.do(Command{Op: Connect, Args: encode(connect{ID: 1, Param: connParam{QPN: uint32(qp.Num())}})})
	n.check()
	n.do(Command{Op: MigrateID, Channel: 1, Args: encode(migrateID{ID: 0})})
	n.check()
	made := n.m.channels[1].unread[0].made
	if made.channel != n.m.channels[1] {
		t.Errorf("the request's events would go to channel %d", made.channel.number)
	}
	n.m.CloseChannel(n.step(), 0)
	delete(n.announced, 0)
	n.check()
}

// TestListenersAreShared: a program that listens at as many ports as it may leaves some for others.
func TestListenersAreShared(t *testing.T) {
	n := newNIC(t)
	other := n.program(Config{})
	for _, m := range []*Manager{n.m, other} {
		if _, err := m.OpenChannel(); err != nil {
			t.Fatal(err)
		}
	}
	listens := 0
	for i := range uint32(4096) {
		n.do(Command{Op: CreateID, Args: encode(createID{UID: 1, Space: spaceTCP})})
		if _, err := n.execute(Command{Op: Listen, Args: encode(listen{ID: i})}); err != nil {
			break
		}
		listens++
	}
	if listens != defaultListeners {
		t.Errorf("%d listeners, want %d", listens, defaultListeners)
	}
	n.m = other
	n.do(Command{Op: CreateID, Args: encode(createID{UID: 1, Space: spaceTCP})})
	n.do(Command{Op: BindIP, Args: encode(bindIP{Addr: addressOf(netip.AddrPortFrom(own, 7))})})
	if _, err := n.execute(Command{Op: Listen, Args: encode(listen{})}); err != nil {
		t.Errorf("another program: %v", err)
	}
}
