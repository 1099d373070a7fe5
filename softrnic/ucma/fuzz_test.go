package ucma

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

var own = netip.MustParseAddr("10.77.0.1")

// nic is a NIC that knows no other: a program on it can connect to itself.
type nic struct {
	t   testing.TB
	e   *engine.Engine
	out packetio.Batch
	now clock.Time
	m   *Manager
	// announced counts announcements by channel.
	announced map[uint32]int
	ports     *Ports
	shares    shares
}

func newNIC(t testing.TB) *nic {
	t.Helper()
	e, err := engine.New(engine.Config{
		Name: "nic", MAC: wire.MAC{2, 0, 0, 0, 0, 1}, GIDs: []verbs.GID{verbs.GIDOf(own)}, Rand: rand.New(rand.NewPCG(1, 2)),
		Resolve: func(netip.Addr) (wire.MAC, bool) { return wire.MAC{}, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	n := &nic{t: t, e: e, announced: make(map[uint32]int), ports: NewPorts()}
	n.m = n.program(Config{})
	return n
}

// program is another program on the NIC.
func (n *nic) program(c Config) *Manager {
	c.Device = verbs.DeviceAttr{GIDs: []verbs.GID{verbs.GIDOf(own)}, ActiveMTU: verbs.MTU1024}
	c.Quota = &n.shares
	c.Ports, c.Rand = n.ports, rand.New(rand.NewPCG(3, 4))
	c.Owns, c.Tell = func(wire.QPN) bool { return true }, func(ch uint32) { n.announced[ch]++ }
	return New(c)
}

// shares are what programs have of each object, and may have; 0: as many as they like.
type shares struct{ has, most [Join + 1]int }

func (c *shares) Take(o Object) error {
	if c.most[o] > 0 && c.has[o] >= c.most[o] {
		return verbs.ErrLimit
	}
	c.has[o]++
	return nil
}

func (c *shares) Add(o Object, n int) { c.has[o] += n }

// step is a step of the engine in which a command is executed.
func (n *nic) step() Step {
	g, err := n.e.GSI()
	if err != nil {
		g = nil
	}
	return Step{n.now, g, &n.out, nil}
}

// check compares what the manager has with itself.
func (n *nic) check() {
	n.t.Helper()
	unread := map[uint32]int{}
	for _, ch := range n.m.channels {
		unread[ch.number] = len(ch.unread)
		for _, p := range ch.unread {
			if p.join != nil && n.m.joins[p.join.handle] != p.join || n.m.nic.ids[p.of.handle] != p.of || p.of.channel != ch || p.made != nil && n.m.nic.ids[p.made.handle] != p.made {
				n.t.Fatal("an event of an identifier that is gone")
			}
		}
	}
	for ch, k := range n.announced {
		if k != unread[ch] {
			n.t.Fatalf("channel %d: %d announcements, %d events", ch, k, unread[ch])
		}
	}
	has := [...]int{ID: len(n.m.nic.ids), Event: 0, Join: len(n.m.joins)}
	for _, k := range unread {
		has[Event] += k
	}
	if has != n.shares.has {
		n.t.Fatalf("the quota counts %v identifiers, events and memberships; there are %v", n.shares.has, has)
	}
	waiting := map[*id]int{}
	for _, x := range n.m.nic.ids {
		if n.m.channels[x.channel.number] != x.channel {
			n.t.Fatal("an identifier without channel")
		}
		if x.of != nil {
			waiting[x.of]++
		}
	}
	for _, x := range n.m.nic.ids {
		if x.waiting != waiting[x] {
			n.t.Fatalf("%d requests wait, %d are counted", waiting[x], x.waiting)
		}
	}
}

// execute executes a command and takes announcements back as the preloaded library does.
func (n *nic) execute(c Command) (Result, error) {
	n.t.Helper()
	r, err := n.m.Execute(n.step(), c)
	n.announced[r.Channel] -= int(r.Withdrawn)
	if c.Op == GetEvent && err == nil {
		n.announced[c.Channel]--
	}
	return r, err
}

// Any commands are executed or refused; whatever a program has done, nothing is left of it.
func FuzzCommands(f *testing.F) {
	id := func(op Op, args ...any) (b []byte) {
		b = append(b, byte(op))
		a := []byte{}
		for _, v := range args {
			a = append(a, encode(v)...)
		}
		return append(append(b, byte(len(a)>>8), byte(len(a))), a...)
	}
	at := addressOf(netip.AddrPortFrom(own, 7174))
	var talk []byte
	for _, c := range [][]byte{
		id(CreateID, createID{UID: 1, Space: spaceTCP}), id(BindIP, bindIP{Addr: at}), id(Listen, listen{ID: 0, Backlog: 1}),
		id(CreateID, createID{UID: 2, Space: spaceTCP}), id(ResolveIP, resolveIP{Dst: at, ID: 1}), id(ResolveRoute, resolveRoute{ID: 1}),
		id(QueryRoute, query{ID: 1}), id(Connect, connect{Param: connParam{QPN: 0, PrivateLen: 3}, ID: 1}), id(GetEvent), id(GetEvent),
		id(InitQPAttr, initQPAttr{ID: 2, State: qpRTR}), id(Accept, accept{UID: 3, Param: connParam{QPN: 1, Valid: 1}, ID: 2}),
		id(Accept, accept{ID: 1}), id(Disconnect, named{1}), id(MigrateID, migrateID{ID: 1}), id(WriteEvent, writeEvent{ID: 1, Kind: userEvent}), id(Reject, reject{ID: 2}),
		id(SetOption, setOption{ID: 1, Name: optionTOS, Len: 1}, uint8(4)), id(DestroyID, destroyID{ID: 0}),
	} {
		talk = append(talk, c...)
	}
	f.Add(talk)
	f.Add(append(id(CreateID, createID{UID: 1, Space: spaceUDP}), id(Listen, listen{})...))
	group := addressOf(netip.AddrPortFrom(testGroup, 0))
	talk = nil
	for _, c := range [][]byte{
		id(CreateID, createID{UID: 1, Space: spaceUDP}), id(ResolveIP, resolveIP{Dst: group}), id(JoinIPMulticast, joinIPMulticast{UID: 2, Addr: group}),
		id(JoinMulticast, joinMulticast{UID: 3, Addr: anyAddress(testGroup)}), id(GetEvent), id(GetEvent), id(LeaveMulticast, destroyID{}),
		id(MigrateID, migrateID{}), id(DestroyID, destroyID{}),
	} {
		talk = append(talk, c...)
	}
	f.Add(talk)
	f.Fuzz(func(t *testing.T, b []byte) {
		n := newNIC(t)
		cq, err := n.e.CreateCQ(16)
		if err != nil {
			t.Fatal(err)
		}
		var qps [4]*engine.QP
		pd, err := n.e.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		for i := range qps {
			if qps[i], err = n.e.CreateQP(pd, cq, cq, verbs.QPInit{}); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if _, err := n.m.OpenChannel(); err != nil {
				t.Fatal(err)
			}
		}
		for len(b) >= 3 {
			op, k := Op(b[0]%25), min(int(b[1])<<8|int(b[2]), len(b)-3)
			c := Command{Op: op, Channel: uint32(b[0]) >> 7, Args: append([]byte(nil), b[3:3+k]...)}
			if at := map[Op]int{Connect: 0, Accept: 8}[op]; (op == Connect || op == Accept) && len(c.Args) >= at+4 {
				i := binary.NativeEndian.Uint32(c.Args[at:]) % uint32(len(qps))
				binary.NativeEndian.PutUint32(c.Args[at:], uint32(qps[i].Num()))
			}
			_, _ = n.execute(c) // most are refused
			n.check()
			n.now = n.now.Add(1000)
			b = b[3+k:]
		}
		for ch := range n.m.channels {
			n.m.CloseChannel(n.step(), ch)
		}
		if len(n.m.nic.ids)+len(n.m.joins)+len(n.m.nic.conns)+len(n.m.nic.listeners)+len(n.m.channels)+len(n.ports.used) != 0 {
			t.Fatalf("%d identifiers, %d connections, %d listeners, %d channels, %d ports are left",
				len(n.m.nic.ids), len(n.m.nic.conns), len(n.m.nic.listeners), len(n.m.channels), len(n.ports.used))
		}
	})
}

// Any bytes are a command with arguments inside them, or none.
func FuzzMessage(f *testing.F) {
	f.Add(make([]byte, 16))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := ParseCommand(b); err == nil && len(c.Args) > len(b) {
			t.Error("arguments out of nothing")
		}
	})
}

// A program has as many identifiers, channels and ports as it may, and gets no more.
func TestBounds(t *testing.T) {
	n := newNIC(t)
	n.m = n.program(Config{Channels: 2})
	n.shares.most[ID] = 3
	for i := range 3 {
		if _, err := n.m.OpenChannel(); (err != nil) != (i == 2) {
			t.Errorf("channel %d: %v", i, err)
		}
	}
	create := Command{Op: CreateID, Args: encode(createID{UID: 1, Space: spaceTCP})}
	for i := range 4 {
		if _, err := n.execute(create); (err != nil) != (i == 3) {
			t.Errorf("identifier %d: %v", i, err)
		}
	}
	bind := func(id uint32, port uint16) error {
		_, err := n.execute(Command{Op: BindIP, Args: encode(bindIP{Addr: addressOf(netip.AddrPortFrom(own, port)), ID: id})})
		return err
	}
	if bind(0, 7) != nil || bind(1, 7) == nil || bind(1, 8) != nil || bind(1, 9) == nil {
		t.Error("ports are given out twice, or not")
	}
	if _, err := n.execute(Command{Op: DestroyID, Args: encode(destroyID{ID: 0})}); err != nil {
		t.Error(err)
	}
	if _, err := n.execute(Command{Op: DestroyID, Args: encode(destroyID{ID: 0})}); err == nil {
		t.Error("an identifier ends twice")
	}
	if bind(2, 7) != nil {
		t.Error("the port of an identifier that is gone is taken")
	}
	if _, err := n.execute(Command{Op: GetEvent, Channel: 5}); err == nil {
		t.Error("a channel that does not exist has events")
	}
}

// A program on a NIC that goes down is told so, and can end what it has.
func TestNICDown(t *testing.T) {
	n := newNIC(t)
	if _, err := n.m.OpenChannel(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Command{
		{Op: CreateID, Args: encode(createID{UID: 1, Space: spaceTCP})}, {Op: Listen, Args: encode(listen{})},
	} {
		if _, err := n.execute(c); err != nil {
			t.Fatal(err)
		}
	}
	n.e.Down(0)
	r, err := n.execute(Command{Op: GetEvent})
	if ev, ok := decode[event](r.Data); err != nil || !ok || ev.UID != 1 || ev.Kind != deviceRemoval {
		t.Errorf("the listener's program is told %+v, %v", ev, err)
	}
	if _, err := n.execute(Command{Op: CreateID, Args: encode(createID{UID: 1, Space: spaceUDP})}); err != nil {
		t.Error(err)
	}
	if _, err := n.execute(Command{Op: Listen, Args: encode(listen{ID: 1})}); err == nil {
		t.Error("a NIC that is down listens")
	}
	for id := range uint32(2) {
		if _, err := n.execute(Command{Op: DestroyID, Args: encode(destroyID{ID: id})}); err != nil {
			t.Error(err)
		}
	}
}
