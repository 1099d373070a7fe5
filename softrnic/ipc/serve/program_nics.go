package serve

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// nicManager is the part of a program's connection manager on one NIC of the host. Exclusive use of that
// NIC's engine guards m. No goroutine holds the engines of two NICs at the same time.
type nicManager struct {
	x *programManager
	s *Server
	m *ucma.Manager
}

// spread says where the identifiers of a program are on a host with several NICs. Only the goroutine of
// the client uses it.
type spread struct {
	of      int                 // the remainder of a handle by it is the number of the NIC that has made it
	moved   map[uint32]int      // the NIC of an identifier that has moved from the first one
	mirrors map[uint32][]mirror // of a listener at all addresses, those on the further NICs
	last    int                 // the NIC at which the search for an event ended
}

// mirror is the identifier of a NIC that listens for one of the first NIC.
type mirror struct {
	nic    int
	handle uint32
}

// powerOfTwo returns the smallest power of two that is at least n, which is above 0.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(n-1)) }

// step calls f with exclusive use of the NIC's engine. s.NIC is the NIC's connection manager; nil if
// the NIC is down.
func (n *nicManager) step(f func(s ucma.Step)) {
	now, e, out := n.s.pump.shell.Enter()
	defer n.s.pump.shell.Leave()
	f(stepOf(now, e, out))
}

// owns reports whether a queue pair of the NIC belongs to the process whose librdmacm uses n, or is one of
// a device that this process has from its parent.
func (n *nicManager) owns(q wire.QPN) bool {
	k := n.x.c.processKey()
	uses := func(p *port) bool { return p.c.processKey() == k || p.c.prog != nil && p.c.prog.kin.has(k) }
	p := n.s.pump.qps[q]
	return p != nil && uses(p) || slices.ContainsFunc(n.s.pump.targets[q], func(h targetHandle) bool { return uses(h.port) })
}

// do executes a command on the NIC.
func (n *nicManager) do(cmd ucma.Command) (r ucma.Result, err error) {
	n.step(func(s ucma.Step) { r, err = n.m.Execute(s, cmd) })
	return r, err
}

// execute executes a command on the NIC that its identifier is on. With one NIC this is that NIC.
func (x *programManager) execute(cmd ucma.Command) (r ucma.Result, err error) {
	handle, about := cmd.Target()
	switch join, ends := cmd.Membership(); {
	case len(x.nics) == 1:
		return x.nics[0].do(cmd)
	case cmd.Op == ucma.GetEvent:
		return x.nextEvent(cmd)
	case ends:
		return x.made(join).do(cmd)
	case cmd.Op == ucma.CreateID:
		if r, err = x.nics[0].do(cmd); err == nil {
			delete(x.spread.mirrors, binary.NativeEndian.Uint32(r.Data)) // those of a former identifier
		}
		return r, err
	case !about:
		return x.nics[0].do(cmd)
	}
	if err := x.aim(cmd, handle); err != nil {
		return r, err
	}
	switch cmd.Op {
	case ucma.Listen:
		return x.listen(cmd, handle)
	case ucma.DestroyID, ucma.MigrateID:
		return x.withMirrors(cmd, handle)
	default:
		return x.at(handle).do(cmd)
	}
}

// made returns the NIC that has made a handle.
func (x *programManager) made(handle uint32) *nicManager {
	return x.nics[min(int(handle%uint32(x.spread.of)), len(x.nics)-1)]
}

// at returns the NIC on which an identifier is.
func (x *programManager) at(handle uint32) *nicManager {
	if n, ok := x.spread.moved[handle]; ok {
		return x.nics[n]
	}
	return x.made(handle)
}

// aim moves an identifier to the NIC that a command asks for, if it can still move: to the one that has
// the address, or else to the one by which the host reaches the peer.
func (x *programManager) aim(cmd ucma.Command, handle uint32) error {
	w, ok := cmd.Wish()
	if !ok {
		return nil
	}
	to := 0
	if w.Own.IsValid() {
		to = x.c.s.cfg.NICWith(w.Own)
	} else if w.Peer.IsValid() {
		to = x.c.s.cfg.NICTowards(w.Peer)
	}
	from := x.at(handle)
	if to < 0 || to >= len(x.nics) || from == x.nics[to] {
		return nil
	}
	var taken ucma.Taken
	from.step(func(ucma.Step) { taken, ok = from.m.Take(handle) })
	if !ok {
		return nil // the command says what is wrong, if anything is
	}
	var err error
	x.nics[to].step(func(ucma.Step) { err = x.nics[to].m.Give(taken) })
	if err != nil {
		var back error
		from.step(func(ucma.Step) { back = from.m.Give(taken) })
		return errors.Join(err, back)
	}
	x.spread.moved[handle] = to
	return nil
}

// nextEvent executes GetEvent: it returns the oldest event of a NIC, of each in turn.
func (x *programManager) nextEvent(cmd ucma.Command) (r ucma.Result, err error) {
	for range x.nics {
		x.spread.last = (x.spread.last + 1) % len(x.nics)
		if r, err = x.nics[x.spread.last].do(cmd); !errors.Is(err, unix.EAGAIN) {
			return r, err
		}
	}
	return r, err
}

// listen executes Listen. An identifier at all addresses listens on all NICs that are up.
func (x *programManager) listen(cmd ucma.Command, handle uint32) (r ucma.Result, err error) {
	first := x.at(handle)
	if r, err = first.do(cmd); err != nil {
		return r, err
	}
	var all ucma.Everywhere
	ok := false
	first.step(func(ucma.Step) { all, ok = first.m.Everywhere(handle) })
	if !ok {
		return r, nil
	}
	for i, n := range x.nics {
		if n == first {
			continue
		}
		var made uint32
		n.step(func(s ucma.Step) { made, err = n.m.Mirror(s, all) })
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			_, _ = x.endMirrors(handle, ucma.DestroyID, cmd.Channel) // err is what the program must know
			first.step(func(s ucma.Step) { first.m.Unlisten(s, handle) })
			return ucma.Result{}, err
		}
		x.spread.mirrors[handle] = append(x.spread.mirrors[handle], mirror{i, made})
	}
	return r, nil
}

// withMirrors executes DestroyID or MigrateID, also for the mirrors of the identifier. It sums the events
// that the program has read, and those that are withdrawn.
func (x *programManager) withMirrors(cmd ucma.Command, handle uint32) (r ucma.Result, err error) {
	if r, err = x.at(handle).do(cmd); err != nil {
		return r, err
	}
	reported, withdrawn := x.endMirrors(handle, cmd.Op, cmd.Channel)
	r.Withdrawn += withdrawn
	if len(r.Data) >= 4 {
		binary.NativeEndian.PutUint32(r.Data, binary.NativeEndian.Uint32(r.Data)+reported)
	}
	x.settle(handle)
	return r, nil
}

// settle frees the handles of those of the identifiers that had moved, and have ended.
func (x *programManager) settle(handles ...uint32) {
	for _, handle := range handles {
		at, ok := x.spread.moved[handle]
		if !ok {
			continue
		}
		here := false
		x.nics[at].step(func(ucma.Step) { here = x.nics[at].m.Has(handle) })
		if here {
			continue
		}
		delete(x.spread.moved, handle)
		for _, n := range x.nics {
			n.step(func(ucma.Step) { n.m.Forget(handle) })
		}
	}
}

// forgetMirrors forgets the mirrors of identifiers that have ended with their channel, so that an
// identifier that gets the same handle later has none.
func (x *programManager) forgetMirrors() {
	for handle := range x.spread.mirrors {
		n, here := x.at(handle), false
		n.step(func(ucma.Step) { here = n.m.Has(handle) })
		if !here {
			delete(x.spread.mirrors, handle)
		}
	}
}

// endMirrors does a command for the mirrors of an identifier. After DestroyID it has none.
func (x *programManager) endMirrors(handle uint32, op ucma.Op, channel uint32) (reported, withdrawn uint32) {
	for _, m := range x.spread.mirrors[handle] {
		got, err := x.nics[m.nic].do(ucma.Command{Op: op, Channel: channel, Args: ucma.Naming(op, m.handle)})
		if err == nil && len(got.Data) >= 4 {
			reported, withdrawn = reported+binary.NativeEndian.Uint32(got.Data), withdrawn+got.Withdrawn
		}
	}
	if op == ucma.DestroyID {
		delete(x.spread.mirrors, handle)
	}
	return reported, withdrawn
}

// listeners returns at how many services the program listens.
func (x *programManager) listeners() (sum int) {
	for _, n := range x.nics {
		n.step(func(ucma.Step) { sum += n.m.Listeners() })
	}
	return sum
}
