package ucma

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

var testGroup = netip.MustParseAddr("239.1.2.3")

// member is a NIC with an identifier of a datagram service that knows its address.
func member(t testing.TB) *nic {
	t.Helper()
	n := newNIC(t)
	if _, err := n.m.OpenChannel(); err != nil {
		t.Fatal(err)
	}
	n.do(Command{Op: CreateID, Args: encode(createID{UID: 7, Space: spaceUDP})})
	n.do(Command{Op: ResolveIP, Args: encode(resolveIP{Dst: addressOf(netip.AddrPortFrom(testGroup, 0))})})
	n.do(Command{Op: GetEvent})
	return n
}

func (n *nic) event() event {
	n.t.Helper()
	ev, ok := decode[event](n.do(Command{Op: GetEvent}).Data)
	if !ok {
		n.t.Fatal("no event")
	}
	return ev
}

func anyAddress(a netip.Addr) (out [128]byte) {
	b := addressOf(netip.AddrPortFrom(a, 0))
	copy(out[:], b[:])
	return out
}

// A program joins a group by either command, is told where its datagrams go, and counts the events
// of a membership on its own.
func TestJoin(t *testing.T) {
	n := member(t)
	at := addressOf(netip.AddrPortFrom(testGroup, 0))
	for i, c := range []Command{
		{Op: JoinIPMulticast, Args: encode(joinIPMulticast{UID: 11, Addr: at})},
		{Op: JoinMulticast, Args: encode(joinMulticast{UID: 12, Len: 28, Flags: 1, Addr: anyAddress(testGroup)})},
	} {
		h, _ := decode[Handle](n.do(c).Data)
		ev := n.event()
		if ev.Kind != multicastJoin || ev.UID != uint64(11+i) || ev.ID != h.ID || ev.Status != 0 {
			t.Errorf("event %+v, handle %d", ev, h.ID)
		}
		p, _ := decode[datagramParam](ev.Param[:])
		want := datagramParam{QPN: 0xffffff, QKey: DefaultQKey}
		want.AH.DestGID, want.AH.Hop, want.AH.Global, want.AH.Port = verbs.GIDOf(testGroup), hopLimit, 1, 1
		if p != want {
			t.Errorf("parameters %+v", p)
		}
		r, ok := decode[Reported](n.do(Command{Op: LeaveMulticast, Args: encode(destroyID{ID: h.ID})}).Data)
		if !ok || r.Events != 1 {
			t.Errorf("%d events reported", r.Events)
		}
		_, err := n.execute(Command{Op: LeaveMulticast, Args: encode(destroyID{ID: h.ID})})
		if !errors.Is(err, unix.ENOENT) {
			t.Errorf("left twice: %v", err)
		}
	}
	n.check()
	if r, _ := decode[Reported](n.do(Command{Op: DestroyID, Args: encode(destroyID{})}).Data); r.Events != 3 {
		t.Errorf("the identifier had %d events", r.Events)
	}
}

// An event that was not read goes with its membership, and a membership with its identifier.
func TestLeaveUnread(t *testing.T) {
	n := member(t)
	at := addressOf(netip.AddrPortFrom(testGroup, 0))
	join := Command{Op: JoinIPMulticast, Args: encode(joinIPMulticast{UID: 11, Addr: at})}
	h, _ := decode[Handle](n.do(join).Data)
	n.do(join)
	r := n.do(Command{Op: LeaveMulticast, Args: encode(destroyID{ID: h.ID})})
	if out, _ := decode[Reported](r.Data); out.Events != 0 || r.Withdrawn != 1 {
		t.Errorf("reported %d, withdrawn %d", out.Events, r.Withdrawn)
	}
	n.check()
	n.do(Command{Op: DestroyID, Args: encode(destroyID{})})
	n.check()
	if len(n.m.joins) != 0 {
		t.Errorf("%d memberships are left", len(n.m.joins))
	}
}

// What the kernel refuses is refused, with its errno.
func TestJoinErrors(t *testing.T) {
	n := member(t)
	n.do(Command{Op: CreateID, Args: encode(createID{UID: 8, Space: spaceTCP})})
	n.do(Command{Op: BindIP, Args: encode(bindIP{ID: 1, Addr: addressOf(netip.AddrPortFrom(own, 0))})})
	n.do(Command{Op: CreateID, Args: encode(createID{UID: 9, Space: spaceUDP})})
	group := addressOf(netip.AddrPortFrom(testGroup, 0))
	v6 := addressOf(netip.AddrPortFrom(netip.MustParseAddr("ff0e::1"), 0))
	for name, c := range map[string]struct {
		op   Op
		args any
		want error
	}{
		"no identifier":    {JoinIPMulticast, joinIPMulticast{UID: 1, ID: 5, Addr: group}, unix.ENOENT},
		"a connection":     {JoinIPMulticast, joinIPMulticast{UID: 1, ID: 1, Addr: group}, unix.EINVAL},
		"no address yet":   {JoinIPMulticast, joinIPMulticast{UID: 1, ID: 2, Addr: group}, unix.EINVAL},
		"no group":         {JoinIPMulticast, joinIPMulticast{UID: 1, Addr: addressOf(netip.AddrPortFrom(own, 0))}, unix.EINVAL},
		"another family":   {JoinIPMulticast, joinIPMulticast{UID: 1, Addr: v6}, unix.EINVAL},
		"no family":        {JoinIPMulticast, joinIPMulticast{UID: 1}, unix.EINVAL},
		"no name":          {JoinIPMulticast, joinIPMulticast{Addr: group}, unix.EINVAL},
		"flags":            {JoinMulticast, joinMulticast{UID: 1, Len: 16, Flags: 2, Addr: anyAddress(testGroup)}, unix.EINVAL},
		"length":           {JoinMulticast, joinMulticast{UID: 1, Len: 129, Addr: anyAddress(testGroup)}, unix.EINVAL},
		"no such group":    {LeaveMulticast, destroyID{ID: 9}, unix.ENOENT},
		"too few bytes":    {JoinIPMulticast, struct{ X uint64 }{}, unix.EINVAL},
		"too few for more": {JoinMulticast, joinIPMulticast{}, unix.EINVAL},
	} {
		if _, err := n.execute(Command{Op: c.op, Args: encode(c.args)}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	n.check()
}

// A program has as many memberships as its quota says, and a refused one takes none.
func TestJoinsAreBounded(t *testing.T) {
	n := member(t)
	n.shares.most[Join] = 3
	at := addressOf(netip.AddrPortFrom(testGroup, 0))
	for i := range 5 {
		_, err := n.execute(Command{Op: JoinIPMulticast, Args: encode(joinIPMulticast{UID: 1, Addr: at})})
		if (err != nil) != (i >= 3) || err != nil && !errors.Is(err, verbs.ErrLimit) {
			t.Errorf("membership %d: %v", i, err)
		}
	}
	n.check()
}

// A program that reads no events causes no more of them than its quota says, by any command, and
// its peers neither.
func TestEventsAreBoundedTogether(t *testing.T) {
	n := member(t)
	n.shares.most[Event] = 2
	at := addressOf(netip.AddrPortFrom(own, 7174))
	resolve := func(id uint32) error {
		_, err := n.execute(Command{Op: ResolveIP, Args: encode(resolveIP{ID: id, Dst: at})})
		return err
	}
	for id := uint32(1); id <= 3; id++ {
		n.do(Command{Op: CreateID, Args: encode(createID{UID: 8, Space: spaceTCP})})
		if err := resolve(id); (err != nil) != (id == 3) || err != nil && !errors.Is(err, verbs.ErrLimit) {
			t.Errorf("identifier %d: %v", id, err)
		}
	}
	join := Command{Op: JoinIPMulticast, Args: encode(joinIPMulticast{UID: 1, Addr: addressOf(netip.AddrPortFrom(testGroup, 0))})}
	for what, c := range map[string]Command{"join": join, "route": {Op: ResolveRoute, Args: encode(resolveRoute{ID: 1})}} {
		if _, err := n.execute(c); !errors.Is(err, verbs.ErrLimit) {
			t.Errorf("%s: %v", what, err)
		}
	}
	n.check()
	n.event()
	if err := resolve(3); err != nil {
		t.Errorf("with room again: %v", err)
	}
	n.check()
}
