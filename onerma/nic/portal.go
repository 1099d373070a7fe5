package nic

import (
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Portal is a process's access to the NIC: a number of command slots, and their completions.
type Portal struct {
	nic    *NIC
	pid    PID
	slots  []uint16
	free   []uint16
	done   ring[uint16] // slots whose completions have not been polled, if they are not in host memory
	memory completions
	closed bool
}

// Open gives a process a portal with slots. The driver calls it. pid must be the PID for which the
// keys of the process were derived.
func (n *NIC) Open(pid PID, slots int) (*Portal, error) {
	if !n.up {
		return nil, errDown("open")
	}
	if slots < 1 || slots > len(n.freeSlots) {
		return nil, opError("open", verbs.ErrLimit, fmt.Sprintf("%d slots; %d are free", slots, len(n.freeSlots)))
	}
	at := len(n.freeSlots) - slots
	p := &Portal{nic: n, pid: pid, slots: slices.Clone(n.freeSlots[at:]), done: newRing[uint16](slots)}
	p.free = slices.Clone(p.slots)
	n.freeSlots = n.freeSlots[:at]
	for _, i := range p.slots {
		n.slots[i].portal = p
	}
	return p, nil
}

// PID returns the PID of the process.
func (p *Portal) PID() PID { return p.pid }

// Free returns the number of slots without a command.
func (p *Portal) Free() int { return len(p.free) }

// Close ends the portal. Its commands in flight get no completions, and move no more bytes, except
// that a target may still receive data of a WRITE which the NIC has already sent. A second Close
// does nothing.
func (p *Portal) Close() {
	if p.closed {
		return
	}
	p.closed = true
	mine := func(w waiter) bool { return !w.ticket && slices.Contains(p.slots, w.index) }
	p.nic.window.remove(mine)
	p.nic.offers.remove(mine)
	for _, i := range p.slots {
		s := &p.nic.slots[i]
		if s.state == waiting {
			p.nic.window.owe(s.cmd.Length, p.nic.last.Add(p.nic.cfg.Timeout))
		}
		p.nic.abandon(i)
		s.state, s.portal, s.cmd = idle, nil, Command{}
	}
	if p.memory.region != nil {
		p.memory.region.uses--
	}
	p.nic.freeSlots = append(p.nic.freeSlots, p.slots...)
}

// Issue starts a command. The next Tick sends its request, except that of a READ that the window
// does not admit yet. If Tick can send the request now, Deadline says that it is due. Issue fails
// with ErrLimit if all slots have a command, and with ErrInvalid if no NIC could execute the
// command.
func (p *Portal) Issue(now clock.Time, c *Command) error {
	n := p.nic
	if p.closed || !n.up {
		return errDown("issue")
	}
	if err := n.check(c); err != nil {
		return err
	}
	if len(p.free) == 0 {
		return opError("issue", verbs.ErrLimit, "all slots have commands: poll their completions")
	}
	i := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	s := &n.slots[i]
	s.generation++
	s.state, s.cmd, s.issued, s.entered, s.landed, s.ticket = queued, *c, now, now, 0, 0
	s.to.addr = c.Target.As4()
	if c.Local != nil {
		c.Local.uses++
	}
	n.last = max(n.last, now)
	if c.Op == onerma.Read {
		n.window.fifos[c.Class].push(waiter{index: i, deadline: now.Add(n.cfg.DispatchTimeout), size: c.Length})
	} else {
		n.offers.push(waiter{index: i})
	}
	return nil
}

// check returns an error for a command that this NIC, the initiator, can refuse without asking the
// target.
func (n *NIC) check(c *Command) error {
	bad := func(format string, args ...any) error {
		return opError("issue", verbs.ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case c.Op < onerma.Read || c.Op > onerma.Rekey:
		return bad("%v: use READ, WRITE or REKEY", c.Op)
	case c.Length < 1 || c.Length > onerma.MaxOp || c.Op == onerma.Rekey && (c.Length != onerma.KeyLen || c.Offset != 0):
		return bad("%v of %d bytes: use 1 to %d, and %d at offset 0 of a REKEY", c.Op, c.Length, onerma.MaxOp, onerma.KeyLen)
	case c.Class >= onerma.Classes:
		return bad("class %d: use 0 or 1", c.Class)
	case c.Key == nil:
		return bad("no key: pass the cipher of the key that the region's owner has granted")
	case !c.Target.Is4() || c.Target == n.cfg.Addr:
		return bad("target %v: use the IPv4 address of another NIC", c.Target)
	case c.Op == onerma.Rekey && c.Local != nil:
		return bad("a REKEY has no local memory")
	case c.Op == onerma.Rekey:
		return nil
	case c.Local == nil || c.Local.gone || n.region(uint32(c.Local.id)) != c.Local:
		return bad("the local region is not registered on this NIC")
	case !c.Local.holds(c.LocalOffset, c.Length):
		return bad("bytes [%d,+%d) of a local region of %d", c.LocalOffset, c.Length, c.Local.mem.Len())
	case c.Op == onerma.Read && c.Local.mem.Access()&verbs.LocalWrite == 0:
		return bad("a READ needs local memory with LocalWrite")
	}
	return nil
}

// Poll moves completions to out, in the order in which the commands ended, and returns their
// number. It frees the slots of these commands. Completions in host memory are read there.
func (p *Portal) Poll(out []Completion) int {
	k := 0
	for k < len(out) && !p.closed {
		c, ok := p.next()
		if !ok {
			break
		}
		s := &p.nic.slots[c.Slot]
		s.state, s.cmd = idle, Command{}
		p.free = append(p.free, c.Slot)
		out[k] = c
		k++
	}
	return k
}

// next takes the next completion; false means that there is none. It leaves out a completion in host
// memory whose bytes were changed since: its slot stays in use.
func (p *Portal) next() (c Completion, ok bool) {
	if p.memory.region == nil {
		if p.done.n == 0 {
			return c, false
		}
		return p.nic.slots[p.done.pop()].completion, true
	}
	for {
		if c, ok = p.memory.get(); !ok {
			return c, false
		}
		if int(c.Slot) < len(p.nic.slots) {
			if s := &p.nic.slots[c.Slot]; s.portal == p && s.state == ended && s.completion.same(&c) {
				return s.completion, true // its delays are whole
			}
		}
	}
}
