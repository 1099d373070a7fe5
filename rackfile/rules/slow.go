package rules

// Slowed says which clients of a shared connection the switch tells to slow down when the server has sent it a
// congestion notification (CNP). A CNP names the connection and no packet.
type Slowed uint8

// Values of Slowed. The zero value is SlowAll.
const (
	// SlowAll: every client with requests in flight on the connection.
	SlowAll Slowed = iota
	// SlowMarked: the clients whose packets the switch's own queue has marked since the notification before;
	// all, if it has marked none, because the mark is of another switch.
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
