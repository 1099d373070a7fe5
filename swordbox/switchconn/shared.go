package switchconn

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Key names a connection of the switch.
type Key struct {
	// Server is the address by which rules name the server.
	Server netip.Addr `json:"server"`
	// Shard tells the connections to one server apart. Shared connections have the numbers from 0.
	// Connections for other uses have numbers from the constants below.
	Shard int `json:"shard"`
}

// RepairShard is the shard number of a connection that carries no requests of clients, only repairs
// of a store's chains. Rules cannot ask for so many shards.
const RepairShard = 1 << 10

// CountShard is the shard number of the first connection to a server in whose memory the switch
// counts. Further connections of this kind have the numbers after it.
const CountShard = 1 << 11

// MeasureShard is CountShard for rules of action measure.
const MeasureShard = CountShard + 1<<10

// BufferShard is the shard number of a connection to a server in whose memory the switch keeps
// packets of port 0. The connection for another port has the port's number added.
const BufferShard = 1 << 12

// PublishedShard is added to the shard number of a connection to a server's memory if a published
// handler uses it. So the handlers of both modes have connections of their own, and one can end its
// work while the other one begins.
const PublishedShard = 1 << 16

// LookupShard is the shard number of a connection to a server in whose memory the switch looks up
// the packets that come in at port 0. The connection for another port has the port's number added.
const LookupShard = 1 << 13

// TraceShard is the shard number of the connection to a server in whose memory the switch records
// packets.
const TraceShard = 1 << 15

// CacheShard is the shard number of a connection to a server in whose memory the switch keeps the values of the
// key-value server at port 0. The connection for one at another port has the port's number added.
const CacheShard = TraceShard + 1<<10

// compare orders keys by server and shard.
func (k Key) compare(o Key) int {
	return cmp.Or(k.Server.Compare(o.Server), cmp.Compare(k.Shard, o.Shard))
}

// Shared is an established connection of the switch to a memory server.
type Shared struct {
	Key
	// Generation numbers the connections of one incarnation of the switch, from 1.
	Generation uint32 `json:"generation"`
	// ServerQPN is the server's queue pair, to which requests go. OwnQPN is the switch's queue
	// pair, to which responses go.
	ServerQPN wire.QPN `json:"serverQPN"`
	OwnQPN    wire.QPN `json:"ownQPN"`
	// SendPSN is the PSN of the first request of the switch. RecvPSN is the first PSN that the
	// switch expects from the server.
	SendPSN wire.PSN `json:"sendPSN"`
	RecvPSN wire.PSN `json:"recvPSN"`
	// MTU is the path MTU in bytes.
	MTU int `json:"mtu"`
	// Depth is how many READs and atomics may be in flight.
	Depth int `json:"depth"`
	// Adopted is true if another program has set up the connection, and an operator has handed it
	// to the switch (Adopt). The Dialer neither ends it nor makes it again.
	Adopted bool `json:"adopted,omitempty"`
	// Answer is the private data of the server's REP: what its service says about the connection.
	// It is nil for an adopted connection, because the switch has seen no REP. It must not be
	// changed.
	Answer []byte `json:"-"`
	// To has the headers of requests to the server: Ethernet, IP, UDP, and P_Key and DestQP of the
	// BTH. All other fields are zero.
	To wire.Frame `json:"-"`
}

// check returns why the connection cannot be adopted; nil means that it can.
func (s *Shared) check() error {
	switch {
	case !s.Server.IsValid():
		return errors.New("the connection has no server address")
	case s.Shard < 0:
		return fmt.Errorf("shard %d: want 0 or more", s.Shard)
	case s.ServerQPN < 2 || s.ServerQPN > lastQPN || s.OwnQPN < 2 || s.OwnQPN > lastQPN:
		return fmt.Errorf("queue pairs %#x of the server and %#x of the switch: want QPNs from 2 to %#x",
			uint32(s.ServerQPN), uint32(s.OwnQPN), lastQPN)
	case s.SendPSN != s.SendPSN.Add(0) || s.RecvPSN != s.RecvPSN.Add(0):
		return fmt.Errorf("PSNs %#x and %#x: want 24 bits", uint32(s.SendPSN), uint32(s.RecvPSN))
	case cm.MTUOf(cm.MTUCode(verbs.MTU(s.MTU))) != verbs.MTU(s.MTU):
		return fmt.Errorf("path MTU %d: want 256, 512, 1024, 2048 or 4096", s.MTU)
	case s.Depth < 0 || s.Depth > 255:
		return fmt.Errorf("depth %d: want 0 to 255", s.Depth)
	}
	return nil
}

// EventKind says what has happened to a connection.
type EventKind uint8

const (
	// EventUp: the user may use Shared from now on.
	EventUp EventKind = iota + 1
	// EventDown: the connection of this generation has ended, because of Reason. The user must send
	// no more packets on it.
	EventDown
)

// Event reports a change of a connection to the user of the connection.
type Event struct {
	Kind   EventKind
	Shared Shared // the connection; for EventDown, the ended one
	Reason string
}

// Info describes a wanted or adopted connection in listings.
type Info struct {
	Key
	State State `json:"state"`
	// Shared is the connection if it is up; otherwise nil.
	Shared *Shared `json:"shared,omitempty"`
	// Attempts is how many attempts have failed since the connection was last up. Error is why the
	// last one failed.
	Attempts int    `json:"attempts,omitempty"`
	Error    string `json:"error,omitempty"`
	// Next is when the next attempt begins if the state is Waiting.
	Next clock.Time `json:"next,omitempty"`
}

// Target describes the service to connect to.
type Target struct {
	// Service is the name of the server's service, or a port number.
	Service string
	// MTU is the path MTU to request in bytes; 0 means the largest that the link supports. Depth is
	// how many READs and atomics may be in flight; 0 means 16.
	MTU, Depth int
}

func (t *Target) depth() int { return cmp.Or(t.Depth, 16) }
