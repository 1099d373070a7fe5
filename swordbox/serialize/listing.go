package serialize

import (
	_ "embed" // of help.md
	"fmt"
	"io"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

//go:embed help.md
var helpText string

var heldHelp = handler.Help{
	Name:  "held",
	Short: "Show how many requests of each host the switch holds, and the limit",
	Text:  helpText,
	Most:  "show at most this many ports; 0 means all",
}

// HostShare says how many requests the switch holds for one host.
type HostShare struct {
	Host netip.Addr `json:"host"`
	// Port is the host's port of the switch; -1: not known.
	Port int `json:"port"`
	// Held is the number of the host's requests that the switch holds now. Peak is the largest
	// number so far. Limit is the number that it may hold at present.
	Held  int `json:"held"`
	Peak  int `json:"peak"`
	Limit int `json:"limit"`
	// Refused counts requests for which the host's share had no room.
	Refused uint64 `json:"refused"`
}

// heldShares lists the hosts of which the switch has held or refused a request.
func (m *Machine) heldShares(clock.Time) []HostShare {
	var list []HostShare
	for i := range m.held.hosts {
		if h := &m.held.hosts[i]; h.peak > 0 || h.refused > 0 {
			list = append(list, HostShare{
				Host: h.addr, Port: i - 1, Held: h.held, Peak: h.peak, Limit: m.held.limit(i - 1), Refused: h.refused,
			})
		}
	}
	return list
}

func printHeld(out io.Writer, host func(netip.Addr) string, list []HostShare) error {
	return handler.WriteTable(out, list, "no request was held under a hardened rule", "HOST\tPORT\tHELD\tPEAK\tLIMIT\tREFUSED", func(h *HostShare) string {
		return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d", host(h.Host), h.Port, h.Held, h.Peak, h.Limit, h.Refused)
	})
}

func (m *Machine) Tables() []handler.Table {
	return []handler.Table{{
		Name: "held", Doc: "requests that wait in the switch; each host has a share", Used: m.held.inUse, Max: m.held.most,
	}}
}

// ClearTable clears nothing: an operator cannot make the switch drop held requests.
func (m *Machine) ClearTable(string) int { return 0 }

// noteOwn describes a request on the client's connection for captures, and reports its new PSN to a
// pipeline.Follower. raw and rawAckReq are the PSN and AckReq that the client sent.
func noteOwn(c *pipeline.Ctx, p *pipeline.Parsed, raw wire.PSN, rawAckReq bool) string {
	if !c.Observed() {
		return ""
	}
	movedOwn(c, &p.Frame, raw)
	n := transform.Note{From: p.BTH.Opcode, To: p.BTH.Opcode, PSN: raw, NewPSN: p.BTH.PSN}
	if p.BTH.AckReq && !rawAckReq {
		n.Why = "acknowledgement requested"
	}
	return n.String()
}

// movedOwn reports to a pipeline.Follower that a request has another PSN on the client's connection
// than raw, the PSN that the client gave it.
func movedOwn(c *pipeline.Ctx, f *wire.Frame, raw wire.PSN) {
	to := pipeline.RequestID{Server: f.DstAddr(), QPN: f.BTH.DestQP, PSN: f.BTH.PSN}
	from := to
	from.PSN = raw
	c.Moved(from, to)
}

// noteResponse describes a response on the client's connection for captures; raw is the server's
// PSN.
func noteResponse(c *pipeline.Ctx, p *pipeline.Parsed, raw wire.PSN) string {
	if !c.Observed() {
		return ""
	}
	n := transform.Note{From: p.BTH.Opcode, To: p.BTH.Opcode, PSN: raw, NewPSN: p.BTH.PSN}
	if p.BTH.Opcode.Has(wire.HasAETH) {
		n.MSN, n.Show = p.AETH.MSN, transform.ShowMSN
	}
	return n.String()
}

// noteAnswer describes an answer to the client for captures. If a packet of the server caused the
// answer, noteAnswer also adds the text to the note of that packet.
func (a *replies) noteAnswer(c *pipeline.Ctx, r *record, op wire.Opcode) string {
	if !c.Observed() {
		return ""
	}
	n := a.m.step.from
	n.To, n.NewPSN, n.MSN, n.Show = op, r.psn, a.msn, transform.ShowMSN
	if n.Made {
		n.From = op
	}
	if r.op.Is(wire.OpAtomic) && r.op != wire.RCAtomicWrite {
		n.Show, n.Prior = n.Show|transform.ShowPrior, r.prior
	}
	text := n.String()
	if n.Made {
		return text
	}
	if a.m.step.note != "" {
		a.m.step.note += "; "
	}
	a.m.step.note += text
	return text
}
