package fusee

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// pulse is how a client of a store with a master shows that it is alive: every half of its Lease it
// writes its lease word (layout.LeaseAt), in a batch that it sends anyway. So no operation takes
// longer. next is when the client writes the word again, and count how many times it has written
// it. An idle client is silent: if it owns blocks, a master takes it for dead after
// Config.ClientLease. A request of its next operation is then refused, and the client takes a new
// number and repeats the operation (see Client.renew).
type pulse struct {
	next  clock.Time
	count uint32
}

// beat adds the WRITE of the client's lease word to the batch, if it is time for it.
func (c *changer) beat() {
	now := c.mem.rt.Now()
	if !c.mem.managed || c.mem.exempt || c.mem.view == 0 || c.mem.id == 0 || c.mem.room() == 0 || now < c.mem.pulse.next {
		return
	}
	c.mem.pulse.next, c.mem.pulse.count = now.Add(c.mem.cfg.Lease/2), c.mem.pulse.count+1
	if c.mem.put(binary.LittleEndian.AppendUint64(nil, layout.Beat(c.mem.id, c.mem.pulse.count)), atBeat) == nil {
		c.mem.write(c.space.root(), c.space.super.Shape.LeaseAt(c.mem.id), atBeat, 8)
	}
}

// renew is called when an operation has failed and changed nothing. If the cause is that the client
// was taken for dead, renew takes a new number and returns true: then the operation is to be
// repeated.
func (c *Client) renew(err error, deadline clock.Time) bool {
	return c.mem.fenced && errors.Is(err, kv.ErrTimeout) && c.mem.rt.Now() < deadline && c.rejoin(deadline) == nil
}

// ward is what a master knows of a client that owns blocks: the value of the client's lease word
// (beat), since when it is unchanged, and how many checks after the end of the client's lease have
// found it unchanged (silent).
type ward struct {
	beat   uint64
	since  clock.Time
	silent int
}

// tend recovers clients that own blocks and have been silent for Config.ClientLease. A client that
// is alive after all is not harmed: it takes a new number. A lease word that is unchanged between
// two READs proves silence even if the master was hung in between. The master repeats the second
// READ, so that a lease word which a client has sent while the memory server was hung can arrive.
//
// To settle the objects of all blocks may take longer than the master may go without a probe of the
// memory servers. So each call settles some of them (Master.settle).
func (m *Master) tend() error {
	if m.c.mem.cfg.ClientLease < 0 {
		return nil
	}
	var looked error
	if m.c.mem.rt.Now() >= m.nextTend {
		m.nextTend = m.c.mem.rt.Now().Add(m.c.mem.cfg.ClientLease / 4)
		looked = m.look()
		m.notice(m.c.mem.rt.Now())
	}
	return errors.Join(looked, m.settle())
}

// settle continues with the blocks of dead clients, for an eighth of the lease, but at least 50 ms.
func (m *Master) settle() error {
	c := m.c
	until := c.mem.rt.Now().Add(max(c.mem.cfg.Lease/8, minPatience/2))
	err := c.slots.settleOrphans(until, until.Add(max(c.mem.cfg.Lease/4, minPatience)))
	if len(c.slots.orphans) == 0 {
		for _, owner := range m.ended {
			if m.Recovered != nil {
				m.Recovered(owner)
			}
		}
		m.ended = nil
	}
	if errors.Is(err, errLater) {
		return nil
	}
	return err
}

// look reads the lease words and the block tables, and takes over the blocks of clients that have
// been silent for Config.ClientLease.
func (m *Master) look() error {
	c := m.c
	end := c.mem.rt.Now().Add(max(c.mem.cfg.Lease/4, minPatience))
	asked := c.mem.rt.Now()
	beats, err := c.mem.fetch(nil, c.space.root(), c.space.super.Shape.LeaseAt(0), 8*layout.Leases, end)
	if err != nil {
		return err
	}
	read, wards := c.mem.rt.Now(), make(map[uint32]ward)
	err = c.space.tables(end, func(h usedBlock) (bool, error) {
		if owner := h.use.Client(); owner != 0 && owner != c.mem.id {
			w, known := m.wards[owner]
			if beat := binary.LittleEndian.Uint64(beats[8*(owner%layout.Leases):]); !known || w.beat != beat {
				w = ward{beat: beat, since: read}
			}
			wards[owner] = w
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	m.wards = wards
	var failed error
	// in a fixed order, so that a simulation with the same seed does the same
	for _, owner := range slices.Sorted(maps.Keys(wards)) {
		w := wards[owner]
		if asked < w.since.Add(c.mem.cfg.ClientLease) {
			continue
		}
		if w.silent++; w.silent < deadAfter {
			wards[owner] = w
			continue
		}
		if err := c.slots.inherit(owner, c.mem.rt.Now().Add(max(2*c.mem.cfg.Lease, minPatience))); err != nil {
			failed = errors.Join(failed, fmt.Errorf("recover client %d: %w", owner, err))
			continue
		}
		delete(wards, owner)
		m.ended = append(m.ended, owner)
	}
	return failed
}
