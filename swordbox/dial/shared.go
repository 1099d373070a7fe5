package dial

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Key names a shared connection.
type Key struct {
	// Server is the address that rules call Server.
	Server netip.Addr `json:"server"`
	Shard  int        `json:"shard"`
}

// RepairShard is the number of connections that carry no client's requests: those of a control plane that mends. No rule has as many
// for requests.
const RepairShard = 1 << 10

// compare orders keys by server and shard.
func (k Key) compare(o Key) int {
	return cmp.Or(k.Server.Compare(o.Server), cmp.Compare(k.Shard, o.Shard))
}

// Shared is an established connection of the switch to a memory server.
type Shared struct {
	Key
	// Generation numbers all connections of the switch's life, from 1.
	Generation uint32 `json:"generation"`
	// ServerQPN is where requests go, OwnQPN where answers come.
	ServerQPN wire.QPN `json:"serverQPN"`
	OwnQPN    wire.QPN `json:"ownQPN"`
	// SendPSN is that of the first request of the switch, RecvPSN the one that the switch expects from the server.
	SendPSN wire.PSN `json:"sendPSN"`
	RecvPSN wire.PSN `json:"recvPSN"`
	// MTU is the path MTU in bytes.
	MTU int `json:"mtu"`
	// Depth is how many READs and atomics may be outstanding.
	Depth int `json:"depth"`
	// Adopted says that the connection was made elsewhere: nobody ends it here, and it cannot be made anew.
	Adopted bool `json:"adopted,omitempty"`
	// To is how a request reaches the server: Ethernet, IP and UDP headers, and of the BTH P_Key and DestQP. All else
	// is zero.
	To wire.Frame `json:"-"`
}

// check says what is wrong with a connection that is to be adopted.
func (s *Shared) check() error {
	switch {
	case !s.Server.IsValid():
		return errors.New("it has no server")
	case s.Shard < 0:
		return fmt.Errorf("shard %d: want 0 or more", s.Shard)
	case s.ServerQPN < 2 || s.ServerQPN > lastQPN || s.OwnQPN < 2 || s.OwnQPN > lastQPN:
		return fmt.Errorf("queue pairs %#x of the server and %#x of the switch: want numbers from 2 to %#x", uint32(s.ServerQPN), uint32(s.OwnQPN), lastQPN)
	case s.SendPSN != s.SendPSN.Add(0) || s.RecvPSN != s.RecvPSN.Add(0):
		return fmt.Errorf("PSNs %#x and %#x: want 24 bits", uint32(s.SendPSN), uint32(s.RecvPSN))
	case cm.MTUOf(cm.MTUCode(verbs.MTU(s.MTU))) != verbs.MTU(s.MTU):
		return fmt.Errorf("path MTU %d: want 256, 512, 1024, 2048 or 4096", s.MTU)
	case s.Depth < 0 || s.Depth > 255:
		return fmt.Errorf("depth %d: want 0 to 255", s.Depth)
	}
	return nil
}

// State is the state of a wanted connection.
type State uint8

// States.
const (
	// Waiting: nothing is under way; the next attempt is at Info.Next.
	Waiting State = iota
	// Dialing: the server was asked.
	Dialing
	// Up: the connection can be used.
	Up
	// Ending: the server was told that it is over; a successor is dialed after that, if it is still wanted.
	Ending
)

var stateNames = [...]string{"waiting", "dialing", "up", "ending"}

// String is the name of the state.
func (s State) String() string { return stateNames[s] }

// MarshalText is String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what String prints.
func (s *State) UnmarshalText(b []byte) error {
	i := slices.Index(stateNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("%.20q is no state of a connection", b)
	}
	*s = State(i)
	return nil
}

// EventKind says what happened to a connection.
type EventKind uint8

// Events.
const (
	// EventUp: Shared can be used from now on.
	EventUp EventKind = iota + 1
	// EventDown: the connection of this generation is no more, for Reason; nothing must be sent on it.
	EventDown
)

// Event is news for the user of a connection.
type Event struct {
	Kind   EventKind
	Shared Shared // of an EventDown, the one that was
	Reason string
}

// Info describes a wanted or adopted connection to people.
type Info struct {
	Key
	State State `json:"state"`
	// Shared is the connection, if it is up.
	Shared *Shared `json:"shared,omitempty"`
	// Attempts that failed since it was last up, and why the last one did.
	Attempts int    `json:"attempts,omitempty"`
	Error    string `json:"error,omitempty"`
	// Next is when the next attempt is made, while the state is Waiting.
	Next clock.Time `json:"next,omitempty"`
}

// Target says what to connect to.
type Target struct {
	// Service is the name of the server's service, or the number of a port.
	Service string
	// MTU to ask for in bytes; 0: the largest that the link can do. Depth is how many READs and atomics shall be
	// outstanding; 0: 16.
	MTU, Depth int
}

func (t *Target) depth() int {
	const usual = 16
	if t.Depth == 0 {
		return usual
	}
	return t.Depth
}
