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
	now := c.rt.Now()
	if !c.managed || c.exempt || c.view == 0 || c.id == 0 || c.room() == 0 || now < c.pulse.next {
		return
	}
	c.pulse.next, c.pulse.count = now.Add(c.cfg.Lease/2), c.pulse.count+1
	if c.put(binary.LittleEndian.AppendUint64(nil, layout.Beat(c.id, c.pulse.count)), atBeat) == nil {
		c.write(c.root(), c.super.Shape.LeaseAt(c.id), atBeat, 8)
	}
}

// renew is called when an operation has failed and changed nothing. If the cause is that the client
// was taken for dead, renew takes a new number and returns true: then the operation is to be
// repeated.
func (c *Client) renew(err error, deadline clock.Time) bool {
	return c.fenced && errors.Is(err, kv.ErrTimeout) && c.rt.Now() < deadline && c.rejoin(deadline) == nil
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
	if m.c.cfg.ClientLease < 0 {
		return nil
	}
	var looked error
	if m.c.rt.Now() >= m.nextTend {
		m.nextTend = m.c.rt.Now().Add(m.c.cfg.ClientLease / 4)
		looked = m.look()
		m.notice(m.c.rt.Now())
	}
	return errors.Join(looked, m.settle())
}

// settle continues with the blocks of dead clients, for an eighth of the lease, but at least 50 ms.
func (m *Master) settle() error {
	c := m.c
	until := c.rt.Now().Add(max(c.cfg.Lease/8, minPatience/2))
	err := c.settleHeirs(until, until.Add(max(c.cfg.Lease/4, minPatience)))
	if len(c.heirs) == 0 {
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
	end := c.rt.Now().Add(max(c.cfg.Lease/4, minPatience))
	asked := c.rt.Now()
	beats, err := c.fetch(nil, c.root(), c.super.Shape.LeaseAt(0), 8*layout.Leases, end)
	if err != nil {
		return err
	}
	read, wards := c.rt.Now(), make(map[uint32]ward)
	err = c.tables(end, func(h heir) (bool, error) {
		if owner := h.use.Client(); owner != 0 && owner != c.id {
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
		if asked < w.since.Add(c.cfg.ClientLease) {
			continue
		}
		if w.silent++; w.silent < deadAfter {
			wards[owner] = w
			continue
		}
		if err := c.inherit(owner, c.rt.Now().Add(max(2*c.cfg.Lease, minPatience))); err != nil {
			failed = errors.Join(failed, fmt.Errorf("recover client %d: %w", owner, err))
			continue
		}
		delete(wards, owner)
		m.ended = append(m.ended, owner)
	}
	return failed
}
