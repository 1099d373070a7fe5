package sherman

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sherman/lock"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fabric"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

func (c *Client) wordAt(i int) int { return c.at.words + 8*i }

// load reads word i of the buffer.
func (c *Client) load(i int) (uint64, error) { return c.fab.MR().Load64(c.wordAt(i)) }

// target is the memory at an address, whose server must have been reached.
func (c *Client) target(a layout.Addr) fabric.Target {
	l := &c.links[a.Server()]
	return fabric.Target{Peer: l.peer, Addr: l.mem.Addr + a.Offset(), RKey: l.mem.RKey}
}

// lockTarget is a lock word. Its region is zero-based if it is on the NIC.
func (c *Client) lockTarget(k lock.Key) fabric.Target {
	if c.super.HostLocks {
		return c.target(layout.At(k.Server, layout.LocksAt+8*uint64(k.Index)))
	}
	l := &c.links[k.Server]
	return fabric.Target{Peer: l.peer, Addr: l.mem.Locks.Addr + 8*uint64(k.Index), RKey: l.mem.Locks.RKey}
}

// lockOf is the lock of a page.
func (c *Client) lockOf(a layout.Addr) lock.Key {
	return lock.Key{Server: a.Server(), Index: layout.LockOf(a, c.super.Locks)}
}

// charge counts the bytes of an operation.
func (c *Client) charge(o *fabric.Op, answer bool) {
	n, mtu := 0, 1024
	for i := range c.links {
		if c.links[i].peer == o.Peer {
			mtu = c.links[i].mtu
		}
	}
	for _, s := range o.WR.SGL {
		n += int(s.Length)
	}
	switch o.WR.Op {
	case verbs.OpRead:
		c.cost.Bytes += ipBase + ipRETH + packets(n, mtu) + ipAETH
		if n > mtu {
			c.cost.Bytes += ipAETH // the first and the last have one
		}
		return
	case verbs.OpCmpSwap, verbs.OpFetchAdd:
		c.cost.Bytes += ipBase + ipAtomic + ipAck + 8
		return
	default:
		c.cost.Bytes += packets(n, mtu) + ipRETH
	}
	if answer {
		c.cost.Bytes += ipAck
	}
}

// do is one round trip: operations on servers that have been reached, each with an answer.
func (c *Client) do(deadline clock.Time, ops ...*fabric.Op) error {
	c.cost.RTTs++
	for _, o := range ops {
		c.charge(o, true)
	}
	return c.post(deadline, ops...)
}

// post starts operations and waits for all. It does not connect: memory must be known before it is used.
func (c *Client) post(deadline clock.Time, ops ...*fabric.Op) error {
	var first error
	for _, o := range ops {
		if err := c.fab.Start(o); err != nil && first == nil {
			first = err
		}
	}
	if err := c.fab.Wait(deadline, ops...); first == nil {
		first = err
	}
	return first
}

// chain is one round trip of operations with one doorbell.
func (c *Client) chain(deadline clock.Time, ops []*fabric.Op) error {
	c.cost.RTTs++
	for i, o := range ops {
		c.charge(o, i == len(ops)-1)
	}
	if err := c.fab.Chain(ops...); err != nil {
		return err
	}
	return c.fab.Wait(deadline, ops...)
}

// readPage reads a page of the tree into buf until it is whole.
func (c *Client) readPage(a layout.Addr, p *layout.Page, buf []byte, deadline clock.Time) error {
	if !c.inside(a) {
		return fmt.Errorf("%w: address %v", ErrBroken, a)
	}
	if c.rt.Now() >= deadline { // a walk along a damaged tree ends here, however fast its pages come
		return kv.ErrTimeout
	}
	for {
		err := c.reach(a.Server(), deadline)
		if err == nil {
			o := &c.ops[0]
			c.fab.Read(o, c.target(a), c.at.in, len(buf))
			err = c.do(deadline, o)
		}
		if err == nil {
			err = c.fab.MR().ReadAt(buf, c.at.in)
		}
		if err != nil {
			if err := c.again(err, deadline); err != nil {
				return err
			}
			continue
		}
		whole, err := c.parse(a, p, buf, deadline)
		if whole || err != nil {
			return err
		}
	}
}

// parse reads a page; false says that it was written meanwhile.
func (c *Client) parse(a layout.Addr, p *layout.Page, buf []byte, deadline clock.Time) (whole bool, err error) {
	err = p.Parse(c.super.Shape, buf)
	if errors.Is(err, layout.ErrTorn) {
		c.node.count(func(s *NodeStats) { s.Torn++ })
		if c.rt.Now() >= deadline {
			return false, timeout(err)
		}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: page %v: %w", ErrBroken, a, err)
	}
	if p.Shape.Kind == layout.Sound && (p.Self != a || p.Generation != c.super.Generation) {
		return false, fmt.Errorf("%w: page %v says that it is %v of tree %x", ErrBroken, a, p.Self, p.Generation)
	}
	return true, nil
}

// readWord reads a word of a server.
func (c *Client) readWord(t fabric.Target, i int, deadline clock.Time) (uint64, error) {
	o := &c.ops[0]
	c.fab.Read(o, t, c.wordAt(i), 8)
	if err := c.do(deadline, o); err != nil {
		return 0, err
	}
	return c.load(i)
}

// swap compares and swaps a word of a server and returns what it was.
func (c *Client) swap(t fabric.Target, compare, swap uint64, deadline clock.Time) (uint64, error) {
	o := &c.ops[0]
	c.fab.CompareSwap(o, t, compare, swap, c.wordAt(wordAtomic))
	if err := c.do(deadline, o); err != nil {
		return 0, err
	}
	return c.load(wordAtomic)
}
