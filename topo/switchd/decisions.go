package switchd

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// PathDecisions is the path of the request for the newest decisions of the switch's program.
const PathDecisions = "/decisions"

// Decisions are the packets that the program of a switch has dropped or refused, oldest first.
type Decisions struct {
	// Total counts all of them since the switch was started; List has the newest.
	Total uint64     `json:"total"`
	List  []Decision `json:"list"`
}

// Decision is a packet that the program has dropped, or a negative acknowledgment that it has made.
type Decision struct {
	At      time.Time `json:"at"`
	Program string    `json:"program"`
	Rule    string    `json:"rule,omitempty"`
	// Reason is why the packet was dropped; "" for an acknowledgment that the program has made.
	Reason string `json:"reason,omitempty"`
	// Host is the one from whose link the packet came, or whose packet is answered; "" if a timer made it.
	Host    string     `json:"host,omitempty"`
	Packets int        `json:"packets"`
	Src     netip.Addr `json:"src"`
	Dst     netip.Addr `json:"dst"`
	Opcode  string     `json:"opcode"` // of a negative acknowledgment the name of its syndrome
	DestQPN uint32     `json:"destQpn"`
	PSN     uint32     `json:"psn"`
}

func (p *programControl) handleDecisions(m *control.Mux) {
	control.Handle(m, "GET "+PathDecisions, func(*http.Request, none) (out Decisions, err error) {
		err = p.commands.Do(func() { out = p.decisions() })
		return out, err
	})
}

func (p *programControl) decisions() (out Decisions) {
	total, list := p.decided.Newest()
	out.Total = total
	t, hosts := p.traffic, p.traffic.ports.hosts
	for i := range list {
		x := &list[i]
		at := Decision{
			At:      time.Unix(0, t.wall.UnixNano()+int64(t.clk.Real(time.Duration(x.At)))),
			Program: x.Program, Rule: x.Rule, Reason: string(x.Reason), Packets: x.Packets, Src: x.Src.Unmap(), Dst: x.Dst.Unmap(),
			Opcode: x.Opcode.String(), DestQPN: uint32(x.DestQP), PSN: uint32(x.PSN),
		}
		if x.Opcode.Plain() == wire.RCAck && !x.Syndrome.IsAck() {
			at.Opcode = x.Syndrome.String()
		}
		if x.Ingress >= 0 && x.Ingress < len(hosts) {
			at.Host = hosts[x.Ingress]
		}
		out.List = append(out.List, at)
	}
	return out
}
