package selective

// Kind is how a queue pair recovers from lost packets.
type Kind uint8

// Kinds of recovery.
const (
	// GoBackN: the receiver drops what follows a lost packet, and the sender sends all of it again. It
	// needs nothing of this package.
	GoBackN Kind = iota
	// IRN is selective retransmission as in "Revisiting Network Support for RDMA" (SIGCOMM 2018): a
	// packet is lost if a later PSN has arrived, each packet is sent again once in a recovery, and the
	// window counts from the oldest PSN that is not settled.
	IRN
	// RACK takes a packet for lost if one that was sent later has arrived, as RFC 8985 does for TCP,
	// and the window counts the packets in flight alone. So it also finds lost retransmissions.
	RACK
)

var kindNames = [...]string{"go-back-n", "irn", "rack"}

func (k Kind) String() string { return kindNames[k] }

// Kinds lists the names of all kinds.
func Kinds() []string { return kindNames[:] }

// KindOf returns the kind with a name; false if there is none.
func KindOf(name string) (Kind, bool) {
	for i, n := range kindNames {
		if n == name {
			return Kind(i), true
		}
	}
	return 0, false
}
