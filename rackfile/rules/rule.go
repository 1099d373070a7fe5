package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/nearest"
)

// Mode says whether the switch works as the paper describes (published), or with the paper's holes
// closed (hardened).
type Mode uint8

// Modes. The zero value is Hardened.
const (
	// Hardened closes the holes of the paper. For example, the switch moves requests to connections
	// of its own, and keeps copies of them until the server has acknowledged them.
	Hardened Mode = iota
	// Published works as the paper describes, with its holes.
	Published
)

var modeNames = []string{"hardened", "published"}

// formerModes are former words for the modes. Rule files and journals may still contain them; the
// switch reads them and never writes them.
var formerModes = map[string]Mode{"hard": Hardened, "paper": Published}

func (m Mode) String() string { return word(modeNames, uint8(m)) }

func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads a word that String returns, and the former words hard and paper.
func (m *Mode) UnmarshalText(b []byte) error {
	if former, ok := formerModes[string(b)]; ok {
		*m = former
		return nil
	}
	return readWord(m, "mode", modeNames, b)
}

func word(names []string, i uint8) string {
	if int(i) >= len(names) {
		return fmt.Sprintf("unknown(%d)", i)
	}
	return names[i]
}

// readWord sets v to the index of word b in names; 0 if there is no such word, which is an error.
func readWord[T ~uint8](v *T, what string, names []string, b []byte) error {
	i := slices.Index(names, string(b))
	if *v = T(max(0, i)); i < 0 {
		return fmt.Errorf("%s %.40q is unknown; %suse one of %v", what, b, nearest.Meant(string(b), names), names)
	}
	return nil
}

// Bounds of a rule.
const (
	// MaxRules is how many rules a set can hold.
	MaxRules = 256
	// MaxShards is how many shared connections to a server a rule can ask for.
	MaxShards = 64
	// MaxID is the length of the longest ID in bytes. MaxService is the length of the longest name
	// of a service.
	MaxID, MaxService = 32, 48
	// MaxDepth is the largest MaxRdAtomic.
	MaxDepth = 128
	// MaxKeys is how many keys a rule can name.
	MaxKeys = 256
	// MaxHot is the largest number N of the value hot:N.
	MaxHot = 256
	// DefaultRegisters is how many registers for tails (the newest nodes of keys) the published P4
	// program has. MaxRegisters is how many a rule can ask for. The authors' program on DPDK has
	// 1,024.
	DefaultRegisters, MaxRegisters = 256, 1 << 14
	// MaxMissTime is the largest MissTime. If a client's ACK timeout is shorter than MissTime, the
	// CMP_SWAP waits only until the client's NIC retransmits it.
	MaxMissTime = time.Second
	// MaxAlso is how many addresses a server can have in addition to the first one.
	MaxAlso = 7
	// DefaultService is the service of a memory server through which clients connect to its region.
	DefaultService = "memory"
)

// Rule selects requests and says what happens to them. The zero value of a field stands for its
// default; for Service see Start.
type Rule struct {
	// ID names the rule. Validate requires one; Set.Add assigns one.
	ID string `json:"id"`
	// Host is the server's name, if the rule was read from text that names the server by a name.
	// Resolve finds its addresses.
	Host string `json:"host,omitempty"`
	// Server is the server's first address: the switch connects to it, and names words of the
	// server's memory by it. Also are the other addresses of the same server.
	Server netip.Addr   `json:"server"`
	Also   []netip.Addr `json:"also,omitempty"`
	Action Action       `json:"action"`
	Mode   Mode         `json:"mode"`
	// From and To bound the range of memory addresses, To excluded; if both are 0, the range is all
	// addresses.
	From uint64 `json:"from,omitempty"`
	To   uint64 `json:"to,omitempty"`
	// RKey restricts the rule to requests with this key; 0 means any.
	RKey uint32 `json:"rkey,omitempty"`
	// Shards is how many shared connections there are to the server; 0 means 1.
	Shards int `json:"shards,omitempty"`
	// Service is the service to which the switch connects if the rule Dials: a name or a port
	// number. "" means that the switch makes no connections; an operator hands it some (`rdmalab
	// switch connections adopt`).
	Service string `json:"service,omitempty"`
	// MaxRdAtomic bounds the READs and atomics in flight on a shared connection; 0 means 16. The
	// server may grant less.
	MaxRdAtomic int `json:"depth,omitempty"`
	// MTU bounds the path MTU of shared connections, in bytes; 0 means no bound. The path MTU is the
	// largest one within the bound that the link and the server support.
	MTU int `json:"mtu,omitempty"`
	// Misses says what answers a CMP_SWAP if the switch knows that it will fail. With AnswerWait,
	// the CMP_SWAP first waits for up to MissTime; 0 means 1 ms.
	Misses   Answerer      `json:"misses,omitempty"`
	MissTime time.Duration `json:"missTime,omitempty"`
	// Steer restricts action steer to appends or to READs. Keys restricts the action to requests
	// for the keys in the list; nil means no restriction. Hot, if not 0, restricts it to requests
	// for the Hot keys that clients request most.
	Steer Steering `json:"steer,omitempty"`
	Keys  []uint64 `json:"keys,omitempty"`
	Hot   int      `json:"hot,omitempty"`
	// Registers is how many registers for tails the switch has under a published rule of action
	// steer. Keys with the same remainder modulo Registers share a register (hole 46). 0 means
	// DefaultRegisters.
	Registers int `json:"registers,omitempty"`
	// Options holds the settings that only rules of this action have (Definition.Keys). It maps the
	// key in the rule's text to the value as it was written.
	Options map[string]string `json:"options,omitempty"`
}

// Answerer says what answers a CMP_SWAP that fails because the word has another value than its
// compare operand.
type Answerer uint8

// Values of Answerer. The zero value is AnswerServer.
const (
	// AnswerServer: the server answers. The switch sends it a WRITE of no bytes instead of the
	// CMP_SWAP, because in the paper the server receives every request.
	AnswerServer Answerer = iota
	// AnswerSwitch: the switch answers if the server has acknowledged the known value of the word.
	AnswerSwitch
	// AnswerWait: as AnswerSwitch, but first the CMP_SWAP waits in the switch, in the order of
	// arrival, for up to MissTime, until the word has the value that it compares with.
	AnswerWait
)

var answererNames = []string{"server", "switch", "wait"}

func (a Answerer) String() string { return word(answererNames, uint8(a)) }

func (a Answerer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

func (a *Answerer) UnmarshalText(b []byte) error { return readWord(a, "misses", answererNames, b) }

// Steering says which requests a rule of action steer sends to the newest node of their key.
type Steering uint8

// Values of Steering: which of appends (write) and READs (read) are steered. The zero value is
// SteerBoth.
const (
	SteerBoth Steering = iota
	SteerWrite
	SteerRead
)

var steerNames = []string{"both", "write", "read"}

func (s Steering) String() string { return word(steerNames, uint8(s)) }

func (s Steering) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *Steering) UnmarshalText(b []byte) error { return readWord(s, "steer", steerNames, b) }

// Writes reports whether the switch steers appends: sends them to the newest node of their key.
func (s Steering) Writes() bool { return s != SteerRead }

// Reads reports whether the switch steers READs: sends them to the newest node of their key.
func (s Steering) Reads() bool { return s != SteerWrite }

// HasKey reports whether a rule of action steer is about requests for a key of Clover.
func (r *Rule) HasKey(key uint64) bool { return len(r.Keys) == 0 || slices.Contains(r.Keys, key) }

// NumRegisters returns Registers, with its default for 0.
func (r *Rule) NumRegisters() int { return cmp.Or(r.Registers, DefaultRegisters) }

// NumShards returns Shards, with its default for 0.
func (r *Rule) NumShards() int { return max(1, r.Shards) }

// MissPatience returns MissTime, with its default for 0.
func (r *Rule) MissPatience() time.Duration { return cmp.Or(r.MissTime, time.Millisecond) }

// Depth returns MaxRdAtomic, with its default for 0.
func (r *Rule) Depth() int { return cmp.Or(r.MaxRdAtomic, 16) }

// Covers reports whether the n bytes at va overlap the range of the rule. For n 0 it reports
// whether the range contains va.
func (r *Rule) Covers(va uint64, n int) bool {
	if r.From == 0 && r.To == 0 {
		return true
	}
	last := va + uint64(max(n, 1)) - 1
	if last < va { // the range runs past the end of the address space
		last = ^uint64(0)
	}
	return va < r.To && last >= r.From
}

// Of reports whether a is an address of the rule's server.
func (r *Rule) Of(a netip.Addr) bool { return a == r.Server || slices.Contains(r.Also, a) }

// Moves reports whether the rule needs shared connections, on which requests move.
func (r *Rule) Moves() bool { return r.Action == Move || r.Action == Atomics }

// Queues reports whether the rule is about all frames that leave to the server or come from it, and
// not about requests.
func (r *Rule) Queues() bool { return r.Action.Definition().Queues }

// Observes reports whether the rule only observes: the switch handles a request as if the rule did
// not exist.
func (r *Rule) Observes() bool { return r.Action.Definition().Observes }
