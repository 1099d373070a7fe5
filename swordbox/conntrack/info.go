package conntrack

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

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
			HasAcked: fl.HasAcked, MTU: fl.PathMTU.MTU, Port: fl.Port, Pinned: fl.Pinned, Idle: now.Sub(fl.Last), Age: now.Sub(fl.Since),
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

// Stats says what a table holds, and counts what it did and refused.
type Stats struct {
	Flows    int `json:"rows" help:"flows in use"`
	Learning int `json:"learning" help:"flows in use whose peer is not known yet"`
	Closed   int `json:"closed" help:"flows in quarantine, because their connection has ended"`
	// Hosts is the number of addresses that the table remembers.
	Hosts int `json:"hosts"`

	Announced uint64 `json:"announced" help:"connections that the connection manager named"`
	Paired    uint64 `json:"paired" help:"connections learnt from packets"`
	Ended     uint64 `json:"ended" help:"connections that were closed"`
	Idled     uint64 `json:"idled" help:"connections forgotten because they were silent"`
	// GivenUp counts pinned connections that the table ended because they were silent and the table
	// was nearly full.
	GivenUp uint64 `json:"givenUp"`
	// Reused counts flows whose queue pair was found to belong to another connection than before.
	Reused uint64 `json:"reused"`
	// Resyncs counts responses that showed that the switch had missed requests.
	Resyncs uint64 `json:"resyncs"`
	// HostMoves counts addresses that appeared at another port after a silence.
	HostMoves uint64 `json:"hostMoves"`

	// Spoofed counts packets that came in at a port to which their source address does not belong.
	Spoofed uint64 `json:"spoofed"`
	NoRoom  uint64 `json:"noRoom" help:"packets of connections for which the table had no room"`
	Evicted uint64 `json:"evicted" help:"learning flows removed to make room"`
	// Quarantined counts packets of connections that have ended.
	Quarantined uint64 `json:"quarantined"`
	// Implausible counts responses to a PSN that was not requested.
	Implausible uint64 `json:"implausible"`
	// Doubted counts responses that may belong to a newer connection, whose queue pair has the same
	// QPN as that of an older connection.
	Doubted uint64 `json:"doubted"`
	// Damaged counts packets with a wrong ICRC, from which the table therefore did not learn.
	Damaged      uint64 `json:"damaged"`
	Contradicted uint64 `json:"contradicted" help:"learning flows that start over because their responses match no flow's requests"`
	Contested    uint64 `json:"contested" help:"learning flows that start over because two flows claimed the same peer"`
	// Unhurried counts responses from which the table did not learn, because the budget of
	// comparisons was used up.
	Unhurried uint64 `json:"unhurried"`
	Datagrams uint64 `json:"datagrams" help:"valid messages of the connection manager"`
	Strays    uint64 `json:"strays" help:"messages of the connection manager that match no connection or are malformed"`
}

func (t *Table) States(visit func(table string, entry uint32, state string)) {
	for _, fl := range t.flows {
		if fl.Generation != 0 {
			visit("flow", fl.ID, fl.State.String())
		}
	}
}
