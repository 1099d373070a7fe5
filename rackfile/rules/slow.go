package rules

import "maps"

// Slowed says which clients of a shared connection slow down when the server has sent the switch a congestion
// notification (CNP), which names the connection and no packet. Either the switch passes the CNP on to clients, or it
// is the reaction point itself: it sends requests on the shared connection at a rate that a CNP lowers, and
// clients hear nothing.
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
	// SlowConnection: the switch has one rate for the shared connection, whose clients take turns.
	SlowConnection
	// SlowFlow: the switch has a rate for each client's connection. A CNP lowers the rates of those that
	// SlowMarked would tell.
	SlowFlow
	// SlowQueue is SlowFlow, but a mark by the switch's own queue lowers the rate at once, and CNPs count only while
	// that queue marks nothing.
	SlowQueue
)

// BySwitch reports whether the switch is the reaction point.
func (s Slowed) BySwitch() bool { return s >= SlowConnection }

// ByMarks reports whether the marks of the switch's own queue say which clients slow down.
func (s Slowed) ByMarks() bool { return s == SlowMarked || s == SlowFlow || s == SlowQueue }

var slowedNames = []string{"all", "marked", "share", "heaviest", "connection", "flow", "queue"}

func (s Slowed) String() string { return word(slowedNames, uint8(s)) }

func (s Slowed) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *Slowed) UnmarshalText(b []byte) error { return readWord(s, "slow", slowedNames, b) }

// keySlow is the key of actions move and atomics whose value is a Slowed.
const keySlow = "slow"

var slowField = Option(keySlow, "marked", "with actions move and atomics in mode hardened: which clients of a shared connection get a congestion notification when the server has sent the switch one: "+
	"all with unanswered requests (all), those whose packets the switch's queue has marked (marked), one drawn in proportion to its bytes in flight (share), or the one with the most (heaviest); "+
	"or none, because the switch itself sends at a rate: one for the connection, whose clients take turns (connection), one for each client's connection (flow), or that, lowered by a mark of the switch's queue at once (queue); default: all",
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
