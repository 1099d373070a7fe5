package simrack

import (
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
)

// virtual returns the configuration of queues without what real time needs: in virtual time, frames leave
// exactly when they may.
func virtual(c portqueue.Config) portqueue.Config {
	c.Lateness, c.Wake = 0, 0
	return c
}

// nicQueues makes the egress queues of a host's NIC, nil if it has none. The queues send no faster than its
// link (linkTo).
func (r *Rack) nicQueues(h *rackfile.Host) (*portqueue.Bank, error) {
	cfg, ok := r.Spec.NICQueue(h)
	if !ok {
		return nil, nil
	}
	return portqueue.New(virtual(cfg), 1)
}

// Queues returns the egress queues of a switch, by its number in rackfile.Rack.SwitchNames; nil if the rack file gives its ports no
// rate.
func (r *Rack) Queues(n int) *portqueue.Bank { return r.net.Queues(r.fabric.boxes[n].node) }

// Queues returns the egress queue of the host's NIC; nil if it has none.
func (h *Host) Queues() *portqueue.Bank { return h.rack.net.Queues(h.node) }

// Deadlock describes ports that pause each other for ever; "" means that there are none.
func (r *Rack) Deadlock() string { return r.net.Deadlock() }
