package ucma

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// A program has one Manager for each NIC of its host (see Config.Nth), because each NIC has an engine of
// its own. The identifiers are made by the Manager of the first NIC. One that gets an address or a
// route of another NIC moves there with its handle (Take, Give), and a listener at all addresses has
// a mirror on each of them (Mirror). This file has what the caller needs for that.

// target makes a function that reads the handle of the identifier that a command is about.
func target[A interface{ id() uint32 }](b []byte) (uint32, bool) {
	a, ok := decode[A](b)
	return a.id(), ok
}

func (a joinIPMulticast) id() uint32 { return a.ID }
func (a joinMulticast) id() uint32   { return a.ID }
func (a setOption) id() uint32       { return a.ID }

// targets has the commands that are about an identifier; LeaveMulticast is about a membership.
var targets = map[Op]func([]byte) (uint32, bool){
	DestroyID: target[destroyID], BindIP: target[bindIP], ResolveIP: target[resolveIP], ResolveRoute: target[resolveRoute],
	QueryRoute: target[query], Connect: target[connect], Listen: target[listen], Accept: target[accept], Reject: target[reject],
	Disconnect: target[named], InitQPAttr: target[initQPAttr], SetOption: target[setOption], Notify: target[notify],
	JoinIPMulticast: target[joinIPMulticast], JoinMulticast: target[joinMulticast], MigrateID: target[migrateID],
	WriteEvent: target[writeEvent],
}

// Target returns the handle of the identifier that the command is about; false if it is about none.
func (c Command) Target() (uint32, bool) {
	f := targets[c.Op]
	if f == nil {
		return 0, false
	}
	return f(c.Args)
}

// Membership returns the handle of the membership in a group that LeaveMulticast ends.
func (c Command) Membership() (uint32, bool) {
	if c.Op != LeaveMulticast {
		return 0, false
	}
	return target[destroyID](c.Args)
}

// Wish is what a command says about the NIC that its identifier needs: Own is an address of this host,
// Peer that of a peer. An address that is not given, or stands for all, is invalid.
type Wish struct{ Own, Peer netip.Addr }

// Wish returns what BindIP or ResolveIP says; false for other commands.
func (c Command) Wish() (w Wish, ok bool) {
	given := func(a address) netip.Addr {
		if p, ok := a.parse(); ok && !anyAddr(p.Addr()) {
			return p.Addr()
		}
		return netip.Addr{}
	}
	switch c.Op {
	case BindIP:
		if a, ok := decode[bindIP](c.Args); ok {
			return Wish{Own: given(a.Addr)}, true
		}
	case ResolveIP:
		if a, ok := decode[resolveIP](c.Args); ok {
			return Wish{Own: given(a.Src), Peer: given(a.Dst)}, true
		}
	default: // other commands name no address of a NIC
	}
	return w, false
}

// Taken is an identifier without a Manager, with the events that the program has not read.
type Taken struct {
	x      *id
	unread []pending
}

// Take removes an identifier, so that another Manager may get it. It returns false if the identifier
// is bound to an address, has a peer or listens: then it stays on its NIC.
func (m *Manager) Take(handle uint32) (t Taken, ok bool) {
	x := m.nic.ids[handle]
	if x == nil || x.away || x.state != Fresh && (x.state != Bound || !anyAddr(x.src.Addr())) {
		return t, false
	}
	for _, p := range x.channel.unread {
		if p.of == x {
			t.unread = append(t.unread, p)
		}
	}
	x.channel.withdraw(m.cfg.Quota, func(p *pending) bool { return p.of == x })
	if x.state == Bound {
		m.cfg.Ports.release(x)
	}
	m.nic.ids[handle] = &id{handle: handle, state: Ended, channel: &channel{}, away: true} // no other identifier gets the handle
	t.x = x
	return t, true
}

// Has reports whether an identifier is here.
func (m *Manager) Has(handle uint32) bool { return m.nic.ids[handle] != nil && !m.nic.ids[handle].away }

// Forget frees the handle of an identifier that has moved away, and has ended there.
func (m *Manager) Forget(handle uint32) {
	if x := m.nic.ids[handle]; x != nil && x.away {
		delete(m.nic.ids, handle)
	}
}

// Give adds an identifier that another Manager had. The error is that of a bind if the port that the
// identifier has is in use on this NIC; then it was not added. Its handle must be one of the other
// Manager's.
func (m *Manager) Give(t Taken) error {
	x := t.x
	if x.state == Bound {
		if err := m.cfg.Ports.take(x, x.src, 0); err != nil {
			return err
		}
	}
	ch := m.channels[x.channel.number]
	if ch == nil {
		return unix.EINVAL
	}
	x.channel = ch
	m.nic.ids[x.handle] = x
	ch.unread = append(ch.unread, t.unread...)
	m.cfg.Quota.Add(Event, len(t.unread))
	return nil
}

// Everywhere is a listener at all addresses, of which other NICs get a mirror.
type Everywhere struct {
	space   id
	channel uint32
}

// Everywhere returns an identifier that listens at all addresses; false if it does not.
func (m *Manager) Everywhere(handle uint32) (e Everywhere, ok bool) {
	x := m.nic.ids[handle]
	if x == nil || x.state != Listening || !x.src.Addr().IsUnspecified() {
		return e, false
	}
	return Everywhere{id{uid: x.uid, space: x.space, qpType: x.qpType, options: x.options, src: x.src, backlog: x.backlog}, x.channel.number}, true
}

// Mirror makes this Manager's NIC listen for an identifier of another one, and returns the handle of the
// mirror. The requests that come here are events of the other identifier. If the NIC is down, the
// error is ENODEV.
func (m *Manager) Mirror(s Step, e Everywhere) (handle uint32, err error) {
	ch := m.channels[e.channel]
	if ch == nil {
		return 0, unix.EINVAL
	}
	if s.Device != nil {
		m.cfg.Device = *s.Device
	}
	x, err := m.nic.newID(ch, e.space.uid)
	if err != nil {
		return 0, err
	}
	x.space, x.qpType, x.options = e.space.space, e.space.qpType, e.space.options
	if err = m.cfg.Ports.take(x, e.space.src, 0); err == nil {
		x.step(onBind)
		_, err = m.listen(call{s, ch}, x, listen{Backlog: uint32(e.space.backlog)})
	}
	if err != nil {
		m.end(s, x)
		return 0, err
	}
	x.mirror = true
	return x.handle, nil
}

// Unlisten undoes Listen, after the mirrors could not be made. The identifier is bound, as before.
func (m *Manager) Unlisten(s Step, handle uint32) {
	x := m.nic.ids[handle]
	if x == nil || x.listener == nil {
		return
	}
	delete(m.nic.listeners, x.listener)
	if s.NIC != nil {
		s.NIC.Unlisten(s.Now, x.listener, s.Out)
	}
	x.listener, x.state = nil, Bound
}

// Naming returns the arguments of DestroyID or MigrateID for an identifier.
func Naming(op Op, handle uint32) []byte {
	if op == MigrateID {
		return encode(migrateID{ID: handle})
	}
	return encode(destroyID{ID: handle})
}
