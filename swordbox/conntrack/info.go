package conntrack

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Info describes a flow in listings.
type Info struct {
	ID         uint32     `json:"id"`
	Generation uint32     `json:"generation"`
	State      State      `json:"state"`
	Requester  netip.Addr `json:"requester"`
	Responder  netip.Addr `json:"responder"`
	// ReqQPN and RespQPN are the queue pairs of the two ends; ReqQPN is 0 if it is not known. Peer
	// is the ID of the peer; -1 means not known.
	ReqQPN  wire.QPN `json:"reqQpn"`
	RespQPN wire.QPN `json:"respQpn"`
	Peer    int      `json:"peer"`
	// How says how the connection was learnt: "cm" or "packets"; "" means not known yet.
	How string `json:"how"`
	// Expected is valid if Synced is true, Acked if HasAcked is true. Both are PSNs of the
	// requester.
	Expected wire.PSN      `json:"expected"`
	Synced   bool          `json:"synced"`
	Acked    wire.PSN      `json:"acked"`
	HasAcked bool          `json:"hasAcked"`
	MTU      int           `json:"mtu"`
	Port     int           `json:"port"`
	Pinned   bool          `json:"pinned"`
	Idle     time.Duration `json:"idle"`
	Age      time.Duration `json:"age"`
}

// List returns the flows in use, by ID.
func (t *Table) List(now clock.Time) []Info {
	list := make([]Info, 0, t.used)
	for _, fl := range t.flows {
		if fl.Generation == 0 {
			continue
		}
		i := Info{
			ID: fl.ID, Generation: fl.Generation, State: fl.State, Requester: fl.Requester, Responder: fl.Responder,
			ReqQPN: fl.ReqQPN, RespQPN: fl.RespQPN, Peer: -1, Expected: fl.Expected, Synced: fl.Synced(), Acked: fl.Acked,
			HasAcked: fl.HasAcked, MTU: fl.MTU, Port: fl.Port, Pinned: fl.Pinned, Idle: now.Sub(fl.Last), Age: now.Sub(fl.Since),
		}
		if fl.Peer != nil {
			i.Peer, i.How = int(fl.Peer.ID), "packets"
		}
		if fl.announced {
			i.How = "cm"
		}
		list = append(list, i)
	}
	return list
}

// Flow returns the flow with an ID; nil if the ID is not in use.
func (t *Table) Flow(id uint32) *Flow {
	if int(id) >= len(t.flows) || t.flows[id].Generation == 0 {
		return nil
	}
	return t.flows[id]
}

// Clearable counts the flows that Clear would forget.
func (t *Table) Clearable() int {
	n := 0
	for _, fl := range t.flows {
		if fl.Generation != 0 && !fl.pinned() {
			n++
		}
	}
	return n
}

// Clear forgets all flows except pinned ones (Flow.Pinned) and their peers; it also forgets flows
// in quarantine. It returns how many it has forgotten. It is called for an operator. Afterwards the
// table learns live connections from their packets, as after its start.
func (t *Table) Clear() int {
	before := t.used
	for _, fl := range t.flows {
		if fl.Generation != 0 && !fl.pinned() {
			t.drop(fl)
		}
	}
	t.started, t.cfg.Settle = false, max(t.cfg.Settle, defaultSettle)
	return before - t.used
}
