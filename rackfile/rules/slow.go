package rules

import "maps"

// Slowed says which clients of a shared connection the switch tells to slow down when the server has sent it a
// congestion notification (CNP). A CNP names the connection and no packet.
type Slowed uint8

// Values of Slowed. The zero value is SlowAll.
const (
	// SlowAll: every client with unanswered requests on the connection.
	SlowAll Slowed = iota
	// SlowMarked: the clients whose packets the switch's own queue has marked lately, and that have not been told
	// yet; all, if it has marked none, because the mark is of another switch.
	SlowMarked
	// SlowShare: one client, drawn with a probability in proportion to its bytes in flight on the connection.
	SlowShare
	// SlowHeaviest: the client with the most bytes in flight there.
	SlowHeaviest
)

var slowedNames = []string{"all", "marked", "share", "heaviest"}

func (s Slowed) String() string { return word(slowedNames, uint8(s)) }

func (s Slowed) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *Slowed) UnmarshalText(b []byte) error { return readWord(s, "slow", slowedNames, b) }

// keySlow is the key of actions move and atomics whose value is a Slowed.
const keySlow = "slow"

var slowField = Option(keySlow, "marked", "with actions move and atomics in mode hardened: which clients of a shared connection get a congestion notification when the server has sent the switch one: "+
	"all with unanswered requests (all), those whose packets the switch's queue has marked (marked), one drawn in proportion to its bytes in flight (share), or the one with the most (heaviest); default: all",
	func(text string) error { return new(Slowed).UnmarshalText([]byte(text)) })

// Slowed returns which clients of the shared connections slow down when the way to the server is congested.
func (r *Rule) Slowed() (s Slowed) {
	if text := r.Options[keySlow]; text != "" {
		_ = s.UnmarshalText([]byte(text)) // validated
	}
	return s
}

// SetSlowed sets what Slowed returns.
func (r *Rule) SetSlowed(s Slowed) {
	r.Options = maps.Clone(r.Options)
	if delete(r.Options, keySlow); s == SlowAll {
		return
	}
	if r.Options == nil {
		r.Options = map[string]string{}
	}
	r.Options[keySlow] = s.String()
}

// Slows are the values of the key slow.
func Slows() []string { return slowedNames }
