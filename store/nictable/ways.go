package nictable

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// reader has the READs of one GET (store.GetsReads): first both slots of the key and the number of
// moves, then the item.
type reader struct {
	slots [probes]remotemem.Op
	note  remotemem.Op
	item  remotemem.Op
}

// checkWay returns an error if way is no value of ClientConfig.Gets.
func checkWay(way string) error {
	switch way {
	case "", store.GetsNIC, store.GetsReads, store.GetsServer:
		return nil
	}
	return fmt.Errorf("gets %.20q: want %s, %s or %s", way, store.GetsNIC, store.GetsReads, store.GetsServer)
}

// fetch looks for the item of a key by READs. Like ask, it sets c.version, and c.moves at its end.
// If c.version is not 0 then, the item is in the client's buffer; 0 means that fetch found no item.
func (c *Client) fetch(f redn.Operand, deadline clock.Time) error {
	g, at, ops := &c.reads, noteAt(c.shape)+wordLen, []*remotemem.Op(nil)
	c.version = 0
	for i, n := range c.shape.slotsOf(f) {
		c.gets.Read(&g.slots[i], remotemem.Target{Addr: c.base + uint64(c.shape.slotAt(n)), RKey: c.rkey}, at+i*line, redn.SlotLen)
		ops = append(ops, &g.slots[i])
	}
	c.gets.Read(&g.note, remotemem.Target{Addr: c.base, RKey: c.rkey}, noteAt(c.shape), wordLen)
	if err := c.trip(deadline, append(ops, &g.note)...); err != nil {
		return err
	}
	var b [line]byte
	mr := c.gets.MR()
	for i := range probes {
		if err := mr.ReadAt(b[:redn.SlotLen], at+i*line); err != nil {
			return err
		}
		s := parseSlot(b[:])
		if s.print != f || s.length > c.shape.itemLen() {
			continue
		}
		c.gets.Read(&g.item, remotemem.Target{Addr: s.at, RKey: c.rkey}, 0, s.length)
		if err := c.trip(deadline, &g.item); err != nil {
			return err
		}
		c.version = s.version
		break
	}
	if err := mr.ReadAt(b[:wordLen], noteAt(c.shape)); err != nil {
		return err
	}
	c.moves = binary.LittleEndian.Uint64(b[:])
	return nil
}

// trip posts READs together and waits for them.
func (c *Client) trip(deadline clock.Time, ops ...*remotemem.Op) error {
	if err := c.gets.Chain(ops...); err != nil {
		return err
	}
	c.cost.RTTs++
	defer c.rt.Leave(c.rt.Enter(kv.PhaseTrip))
	return c.gets.Wait(deadline, ops...)
}

// getFromServer asks the server's process for a value.
func (c *Client) getFromServer(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	for {
		err := c.call(opGet, key, nil, deadline)
		switch {
		case err == nil:
			value := make([]byte, c.found)
			if err := c.calls.MR().ReadAt(value, c.caller.Answer+answerLen); err != nil {
				return dst[:0], err
			}
			return append(dst[:0], value...), nil
		case errors.Is(err, kv.ErrNotFound), errors.Is(err, verbs.ErrClosed), c.rt.Now() >= deadline:
			return dst[:0], err
		}
		c.cost.Retries++ // an opGet changes nothing, so it is sent again
	}
}
