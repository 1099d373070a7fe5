package experiment

import (
	"context"
	"time"
)

// Ways in which the overload of a port ends: packets that find no room are dropped; they wait in the memory
// of servers; hosts are paused by PFC; hosts slow down by DCQCN.
const (
	ReliefDrop  = "dropped"
	ReliefRing  = "ring on 8 servers"
	ReliefPFC   = "PFC"
	ReliefDCQCN = "DCQCN"
)

// reliefs are the ways in the order of the figure.
var reliefs = []string{ReliefDrop, ReliefRing, ReliefPFC, ReliefDCQCN}

// Relief is a load of hosts that write to one server at the same time, all at the rate of their links. One
// of them also writes to another server, whose port has nothing else to do.
type Relief struct {
	Way     string
	Senders int
	// Bytes is the length of the WRITE of each sender, Room what the switch can keep.
	Bytes, Room int
}

// ReliefResult is what a Relief has shown.
type ReliefResult struct {
	// Slowest is the time from the start of all senders to the completion of the last WRITE. Victim is that
	// to the completion of the WRITE to the other server.
	Slowest, Victim time.Duration
	// Resent counts packets that the senders have sent again.
	Resent uint64
}

func (l Relief) label() string { return "overload of a port, " + l.Way }

func (l Relief) effort() float64 { return 5 }

func (l Relief) measure(ctx context.Context, p Platform) (outcome, error) {
	res, err := p.Relief(ctx, l)
	return outcome{relief: &res}, err
}

// reliefFigure compares the buffer in servers' memory with what the paper names instead of it.
func reliefFigure(quick bool) figure {
	f := figure{
		key: "instead", title: "eight senders WRITE to one server, one also to an idle one; 12 MB of buffer, 40 Gb/s each", x: "", unit: "ms, packets", format: "%.4g",
		why: []string{
			"with PFC the WRITE to the idle server waits with the others of its host; DCQCN, like the ring, lets it pass, and leaves the port idle while it slows its senders",
			"what is lost at the end of a WRITE is sent again after the ACK timeout, 67 ms",
		},
	}
	l := Relief{Senders: 8, Bytes: incastBytes / 8, Room: incastRoom}
	if quick {
		l.Bytes, l.Room = l.Bytes/5, l.Room/5
	}
	for _, l.Way = range reliefs {
		for _, c := range []namedValue{
			{"last WRITE to the server, ms", func(o *outcome) float64 { return 1e3 * o.relief.Slowest.Seconds() }},
			{"WRITE to the idle server, ms", func(o *outcome) float64 { return 1e3 * o.relief.Victim.Seconds() }},
			{"packets sent again", func(o *outcome) float64 { return float64(o.relief.Resent) }},
		} {
			f.add(ours(c.name, "", l.Way, l, c.value))
		}
	}
	return f
}
