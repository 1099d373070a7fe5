package conntrack

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Info describes a row to people.
type Info struct {
	ID         uint32     `json:"id"`
	Generation uint32     `json:"generation"`
	State      State      `json:"state"`
	Requester  netip.Addr `json:"requester"`
	Responder  netip.Addr `json:"responder"`
	// ReqQPN and RespQPN are the two queue pairs; ReqQPN 0 is not known. Peer is the ID of the other half, -1: not known.
	ReqQPN  wire.QPN `json:"reqQpn"`
	RespQPN wire.QPN `json:"respQpn"`
	Peer    int      `json:"peer"`
	// How the connection was learnt: "cm" or "packets"; "" if it was not yet.
	How string `json:"how"`
	// Expected is meaningful if Synced, Acked if HasAcked, and both are the requester's numbers.
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

// List describes the rows in use, by ID.
func (t *Table) List(now clock.Time) []Info {
	list := make([]Info, 0, t.used)
	for _, r := range t.rows {
		if r.Generation == 0 {
			continue
		}
		i := Info{
			ID: r.ID, Generation: r.Generation, State: r.State, Requester: r.Requester, Responder: r.Responder,
			ReqQPN: r.ReqQPN, RespQPN: r.RespQPN, Peer: -1, Expected: r.Expected, Synced: r.Synced, Acked: r.Acked,
			HasAcked: r.HasAcked, MTU: r.MTU, Port: r.Port, Pinned: r.Pinned, Idle: now.Sub(r.Last), Age: now.Sub(r.Since),
		}
		if r.Peer != nil {
			i.Peer, i.How = int(r.Peer.ID), "packets"
		}
		if r.announced {
			i.How = "cm"
		}
		list = append(list, i)
	}
	return list
}

// Row returns the row of an ID if it is in use, else nil.
func (t *Table) Row(id uint32) *Row {
	if int(id) >= len(t.rows) || t.rows[id].Generation == 0 {
		return nil
	}
	return t.rows[id]
}
