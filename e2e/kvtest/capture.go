package kvtest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Capture records the RoCEv2 packets of connections on the link of a host, in order. Its See is
// simrack.Options.Trace.
type Capture struct {
	// Host is the host, "" means cn0.
	Host string

	list  []packet
	frame wire.Frame
}

type packet struct {
	up   bool
	what string
}

// See records a packet.
func (c *Capture) See(ev *simnet.Event) {
	if ev.Kind != simnet.Sent || ev.Link() != cmp.Or(c.Host, "cn0") || wire.ParseFrame(ev.Frame, &c.frame) != nil || c.frame.BTH.DestQP <= 1 {
		return
	}
	what := strings.TrimPrefix(c.frame.BTH.Opcode.String(), "RC_")
	for _, part := range []string{"_ONLY", "_REQUEST", "_RESPONSE", "_ACK"} {
		what = strings.TrimSuffix(what, part)
	}
	c.list = append(c.list, packet{ev.Dir() == fault.Up, what})
}

// Phases describes the packets since its last call: the requests of each round trip, which ends
// with its last response.
func (c *Capture) Phases() string {
	list := c.list
	c.list = nil
	var out []string
	var now []string
	for i, p := range list {
		if !p.up {
			continue
		}
		now = append(now, p.what)
		if i+1 < len(list) && list[i+1].up {
			continue
		}
		slices.Sort(now)
		out, now = append(out, strings.Join(now, "+")), nil
	}
	return strings.Join(out, ", ")
}
